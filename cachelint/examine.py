"""What one file yields: decoded, prefiltered, analysed by the engine, its suppression comments applied.

A :class:`Job` holds what the files of one project share; it works in this process or in a worker (see
:mod:`cachelint.pool`). Whatever goes wrong with a file becomes one FileError of that file.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachelint import facts, suppress
from cachelint.cache import Record, module_name
from cachelint.discover import Scope
from cachelint.model import Evidence, FieldReport, FileError, FileResult, TypeReport
from cachelint.settings import Settings
from cachelint.source import Source, SourceError, decode, digest_of, display_path, read_bytes

NOTHING = b""
"""The head of a record for a file that yields nothing, whatever the other files say."""

if TYPE_CHECKING:
    from cachelint.index.project import Project

_COLLECT_AT = 2_000_000
"""Objects made since the last collection after which a worker collects garbage: bounds its memory."""


@dataclass(frozen=True)
class Engine:
    """The engine as the runner uses it. ``name`` tells one from another in cache keys; it is empty for the real one.

    ``wants`` says whether a file can hold anything to judge, from its bytes. ``project`` builds what ``analyze`` takes
    from the root, the files, and two functions that give the text and the bytes of a file, or None. ``warm`` computes,
    before processes are forked, what they would each compute. ``bases`` gives the names of all ancestors that classes
    of these names may have in the project: whether a class is judged can depend on them.
    """

    wants: Callable[[bytes, Settings], bool]
    project: Callable[[str, list[str], Callable[[str], str | None], Callable[[str], bytes | None]], Any]
    analyze: Callable[[str, Any, Settings], FileResult]
    parse: Callable[[str, str], Any]
    warm: Callable[[Any], None]
    bases: Callable[[Any, frozenset[str]], frozenset[str]]
    name: str = ""


def default_engine() -> Engine:
    """The real engine, imported only when a file has to be examined."""
    from cachelint import engine
    from cachelint.index.lower import check
    from cachelint.index.project import Project

    return Engine(engine.wants, Project, engine.analyze, check, _warm, _bases)


def _warm(project: Project) -> None:
    from cachelint.checks import load
    from cachelint.fix.remedies import remedies
    from cachelint.infer.optable import operators

    operators()
    load()
    remedies()
    project.apply_files("")
    _ = project.headers


def _bases(project: Project, names: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        for _, parents in project.headers.get(pending.pop(), ()):
            pending += (name for name in parents if name not in found)
            found.update(parents)
    return frozenset(found)


class TimeUp(BaseException):
    """The limit of one file has passed. Not an Exception, so that no handler in between swallows it."""


@dataclass
class Job:
    """Examines the files ``todo`` of one project. ``raw`` and ``digests`` are the run's snapshot of the files read.

    The engine parses what its verdicts need; a ``thorough`` job parses the rest of each file too, for its errors. A job
    that is not ``kept`` leaves out what only a cache wants to know.
    """

    scope: Scope
    todo: tuple[str, ...]
    raw: Mapping[str, bytes]
    digests: Mapping[str, str]
    settings: Settings
    cwd: str
    limit: float
    engine: Engine
    thorough: bool = True
    kept: bool = True
    _project: Any = None
    _read: dict[str, bytes | None] = field(default_factory=dict)
    _sources: dict[str, Source] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """What goes to a process that is not forked: nothing that it can compute itself."""
        return self.__dict__ | {"_project": None, "_read": {}, "_sources": {}}

    def prepare(self) -> None:
        """Compute what all workers share, before they are forked."""
        if self._project is None:
            self._project = self.engine.project(self.scope.root, list(self.scope.files), self._text, self._bytes)
            self.engine.warm(self._project)

    def answer(self, item: int) -> Record:
        """The record of one file. Raises nothing."""
        path = self.todo[item]
        shown = display_path(path, self.cwd)
        try:
            record = self._examine(path, shown)
        except TimeUp:
            record = self.failed(item, f"gave up after {self.limit:.0f} s")
        except RecursionError:
            record = self.failed(item, "nested too deeply to be analysed")
        except MemoryError:
            record = self.failed(item, "too large to be analysed: out of memory")
        except Exception as error:
            record = self.failed(item, f"cachelint failed on this file, please report it: {brief(error)}")
        if gc.get_count()[0] > _COLLECT_AT:
            gc.collect()
        return record

    def failed(self, item: int, why: str) -> Record:
        """The record of a file that could not be examined. It is not kept: ``digest`` fits no content."""
        path = self.todo[item]
        error = FileError(display_path(path, self.cwd), 1, why)
        return Record(path, "", head=_line({"errors": [error]}))

    def _examine(self, path: str, shown: str) -> Record:
        raw, digest = self.raw[path], self.digests[path]
        try:
            source = decode(raw, shown, path)
        except SourceError as error:
            return Record(path, digest, head=_line({"errors": [error.error]}))
        if not self.engine.wants(raw, self.settings):
            return self._rejected(path, source, digest)
        with _time_limit(self.limit):
            return self._judged(path, source, digest)

    def _judged(self, path: str, source: Source, digest: str) -> Record:
        """The record of a file that may hold something to judge."""
        raw = self.raw[path]
        self._sources[path] = source
        self.prepare()
        result = self._relabelled(self.engine.analyze(path, self._project, self.settings))
        del self._sources[path]
        errors = (*source.problems, *(result.errors or self._syntax_error(source)))
        head = _head(suppress.apply(result.findings, source), errors)
        body = _line(result.types) if result.types else b""
        if not self.kept:
            return Record(path, digest, head=head, body=body)
        ancestors = self.engine.bases(self._project, facts.defined(raw))
        # Who reads a field elsewhere matters where nobody here does, and where a fix would move it.
        names = {entry.field for kind in result.types for entry in kind.fields if not entry.read}
        for one in result.findings:
            # Whoever reads the field, and whoever calls the type's methods by hand.
            names.update(name for name in (one.field, one.type and one.type.rpartition(".")[2]) if name)
        asked = facts.asked(raw, ancestors, names)
        deps = tuple((dep, self._digest(dep)) for dep in sorted(set(result.deps)) if dep != path)
        missing = {module_name(one) for one in result.missing}
        return Record(path, digest, deps, tuple(sorted(missing)), tuple(sorted(asked)), head, body)

    def _rejected(self, path: str, source: Source, digest: str) -> Record:
        """The record of a file that holds nothing to judge."""
        problems = (*source.problems, *self._syntax_error(source))
        outcome = suppress.apply((), source)
        if not problems and not outcome.kept:
            return Record(path, digest, head=NOTHING, body=b"")
        return Record(path, digest, head=_head(outcome, problems), body=b"")

    def _syntax_error(self, source: Source) -> tuple[FileError, ...]:
        return syntax_error(source, self.engine) if self.thorough else ()

    def _digest(self, path: str) -> str:
        known = self.digests.get(path)
        if known is not None:
            return known
        content = self._bytes(path)
        return "" if content is None else digest_of(content)

    def _bytes(self, path: str) -> bytes | None:
        found = self.raw.get(path)
        if found is not None:
            return found
        if path not in self._read:
            try:
                self._read[path] = read_bytes(path)
            except OSError:
                self._read[path] = None
        return self._read[path]

    def _text(self, path: str) -> str | None:
        if path in self._sources:
            return self._sources[path].text
        raw = self._bytes(path)
        if raw is None:
            return None
        try:
            return decode(raw, display_path(path, self.cwd), path).text
        except SourceError:
            return None

    def _relabelled(self, result: FileResult) -> FileResult:
        """The result with every path as it is shown; the engine's may be relative to the process's directory."""
        here = os.getcwd()
        shown: dict[str, str] = {}

        def show(path: str) -> str:
            if path not in shown:
                shown[path] = display_path(os.path.normpath(os.path.join(here, path)), self.cwd)
            return shown[path]

        def link(one: Evidence) -> Evidence:
            return dataclasses.replace(one, path=show(one.path)) if show(one.path) != one.path else one

        def entry(one: FieldReport) -> FieldReport:
            if all(show(each.path) == each.path for each in one.evidence):
                return one  # the usual case
            return dataclasses.replace(one, evidence=tuple(link(each) for each in one.evidence))

        def kind(one: TypeReport) -> TypeReport:
            fields = tuple(entry(each) for each in one.fields)
            if show(one.path) == one.path and all(new is old for new, old in zip(fields, one.fields, strict=True)):
                return one
            return dataclasses.replace(one, path=show(one.path), fields=fields)

        return dataclasses.replace(
            result,
            path=show(result.path),
            types=tuple(kind(one) for one in result.types),
            findings=tuple(dataclasses.replace(one, path=show(one.path)) for one in result.findings),
            errors=tuple(dataclasses.replace(one, path=show(one.path)) for one in result.errors),
        )


@dataclass(frozen=True)
class Batch:
    """The jobs of all projects of a run as one: their items are numbered through."""

    jobs: tuple[Job, ...]

    def place(self, item: int) -> tuple[int, int]:
        """The number of the job that an item belongs to, and its number there."""
        for number, job in enumerate(self.jobs):
            if item < len(job.todo):
                return number, item
            item -= len(job.todo)
        raise IndexError(item)

    def answer(self, item: int) -> Record:
        """The record of one file. Raises nothing."""
        number, own = self.place(item)
        return self.jobs[number].answer(own)


def syntax_error(source: Source, engine: Engine) -> tuple[FileError, ...]:
    """The error of a file that is not Python, if it is not."""
    try:
        engine.parse(source.text, source.abspath)
    except SyntaxError as error:
        return (FileError(source.path, error.lineno or 1, f"cannot be parsed: {error.msg}"),)
    except RecursionError:
        return (FileError(source.path, 1, "nested too deeply to be parsed"),)
    return ()


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp when the body takes longer. Works in main threads on POSIX and does nothing elsewhere."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _shape(value: Any) -> dict[str, Any]:
    """A dataclass of the model as JSON takes it; the encoder asks for what is inside."""
    return {name: getattr(value, name) for name in value.__slots__}


def _head(outcome: suppress.Outcome, errors: tuple[FileError, ...]) -> bytes:
    """The line of a record that the runner decodes first."""
    parts = {"findings": outcome.kept, "suppressed": outcome.suppressed, "errors": errors}
    return _line({key: value for key, value in parts.items() if value})


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_shape)


def _line(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("ascii")


def brief(error: Exception) -> str:
    """An exception in one line, with the place in cachelint that raised it."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if f"{os.sep}cachelint{os.sep}" in os.sep + code.co_filename:  # compiled code has a relative name
            place = f" at {os.path.basename(code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"
