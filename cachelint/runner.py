"""One run: discover, read, prefilter, analyse in processes, suppress, select; with the cache where nothing changed.

:func:`run` is all that commands call. What it returns, a :class:`Report`, is what every output format shows.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cachelint import cache as caching
from cachelint import select
from cachelint.config import Configs
from cachelint.discover import Discovery, Scope
from cachelint.examine import NOTHING, Batch, Engine, Job, default_engine, syntax_error
from cachelint.model import FileError, FileResult, Finding, TypeReport
from cachelint.settings import Settings
from cachelint.source import SourceError, decode, describe, digest_of, display_path, read_bytes

CLEAN, FINDINGS, UNREADABLE = 0, 1, 3

ITEM_LIMIT = 120.0
"""Seconds that one file may take."""

POOL_FROM = 300_000
"""Bytes of source below which starting processes takes longer than it saves."""

PARSE_ALL_UP_TO = 1_000_000
"""Bytes of a project up to which every file is parsed for its errors. In a larger one, what no verdict needs is parsed
only when it is named on the command line: parsing everything would take longer than all the rest.
"""

PROGRESS_AFTER = 1.0
"""Seconds after which the progress callback is first called."""

Progress = Callable[[int, int], None]
"""Called with the number of files done and the number to do."""


@dataclass(frozen=True)
class Options:
    """How a run is done; nothing here changes a verdict.

    ``jobs`` is the number of processes (None: one a processor). ``overlay`` maps absolute paths to texts that stand for
    the files' content (standard input, an editor's buffers). ``limit`` is the time that one file may take, in seconds,
    ``pool_from`` the bytes of source from which on processes are started.
    """

    jobs: int | None = None
    use_cache: bool = True
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    progress: Progress | None = None
    limit: float = ITEM_LIMIT
    pool_from: int = POOL_FROM


@dataclass(frozen=True)
class Report:
    """The typed result of a run.

    ``files`` are the paths examined, as shown. ``findings`` are what the selected rules report, suppressions taken off;
    ``suppressed`` what comments or per-file-ignores took off. ``timings`` are seconds by phase, ``cached`` counts the
    files whose verdict came from the cache. Types are decoded when they are first asked for.
    """

    files: tuple[str, ...]
    findings: tuple[Finding, ...]
    errors: tuple[FileError, ...]
    suppressed: tuple[Finding, ...] = ()
    cached: int = 0
    timings: tuple[tuple[str, float], ...] = ()
    bodies: tuple[tuple[str, bytes], ...] = ()
    places: Mapping[str, tuple[str, bytes | None]] = field(default_factory=dict)

    @cached_property
    def types(self) -> tuple[TypeReport, ...]:
        """Every class or pair of functions with a forward and a backward, by path and line."""
        return tuple(kind for _, body in self.bodies for kind in types_of(body))

    @cached_property
    def types_with_findings(self) -> tuple[TypeReport, ...]:
        """The types of the files that have findings: all that a report on those has to decode."""
        paths = {finding.path for finding in self.findings}
        return tuple(kind for path, body in self.bodies if path in paths for kind in types_of(body))

    @cached_property
    def results(self) -> tuple[FileResult, ...]:
        """The same by file, for the files that yielded something: what fixes consume."""
        types = {path: types_of(body) for path, body in self.bodies}
        findings: dict[str, list[Finding]] = {}
        for finding in self.findings:
            findings.setdefault(finding.path, []).append(finding)
        errors: dict[str, list[FileError]] = {}
        for error in self.errors:
            errors.setdefault(error.path, []).append(error)
        return tuple(
            FileResult(path, types.get(path, ()), tuple(findings.get(path, ())), tuple(errors.get(path, ())))
            for path in self.files
            if path in types or path in findings or path in errors
        )

    def source_lines(self, path: str) -> tuple[str, ...]:
        """The lines of an examined file without their ends; of a notebook, those of its virtual text.

        Empty when the file cannot be read.
        """
        if path not in self._lines:
            abspath, raw = self.places.get(path, (os.path.abspath(path), None))
            try:
                content = read_bytes(abspath) if raw is None else raw
                self._lines[path] = decode(content, path, abspath).lines
            except (OSError, SourceError):
                self._lines[path] = ()
        return self._lines[path]

    def cell(self, path: str, line: int) -> tuple[int, int] | None:
        """For a notebook, the cell and the line in it (1-based) of a finding's line; None for other files."""
        if not path.endswith(".ipynb"):
            return None
        abspath, raw = self.places.get(path, (os.path.abspath(path), None))
        try:
            notebook = decode(read_bytes(abspath) if raw is None else raw, path, abspath).notebook
        except (OSError, SourceError):
            return None
        return notebook.place(line) if notebook is not None else None

    def exit_status(self, fail_on_findings: bool = True) -> int:
        """0 clean, 1 findings, 3 some file could not be read or parsed (also when there are findings)."""
        if self.errors:
            return UNREADABLE
        return FINDINGS if self.findings and fail_on_findings else CLEAN

    @cached_property
    def _lines(self) -> dict[str, tuple[str, ...]]:
        return {}


def run(
    paths: Iterable[str],
    configs: Configs | None = None,
    options: Options | None = None,
    *,
    cwd: str | None = None,
    engine: Engine | None = None,
) -> Report:
    """Examine files and directories.

    ``configs`` finds the configuration of each file (by default from the files alone), ``cwd`` is the directory that
    shown paths are relative to. ``engine`` stands in for the real one in tests. Raises ConfigError.
    """
    start = time.perf_counter()
    cwd = os.path.abspath(cwd or os.getcwd())
    configs = configs or Configs(cwd)
    options = options or Options()
    collecting = gc.isenabled()
    gc.disable()  # parsing makes millions of objects and no garbage to speak of: collecting takes longer than the work
    try:
        return _Run(cwd, configs, options, engine, start).finish(paths)
    finally:
        if collecting:
            gc.enable()


@dataclass
class _Unit:
    """The requested files of one project whose verdicts follow the same settings."""

    scope: Scope
    settings: Settings
    files: list[str] = field(default_factory=list)


@dataclass
class _Started:
    """A unit with what the cache knows of it (``pack``, under ``key``) and the files that are still to do."""

    unit: _Unit
    files: dict[str, str]
    pack: caching.Pack
    key: str
    changed: bool
    todo: tuple[str, ...]

    def take(self, fresh: Iterable[caching.Record]) -> None:
        """Put the new records into the pack."""
        for record in fresh:
            if record.path in self.files and record.head == NOTHING:
                self.pack.empty.add(record.path)
                self.pack.records.pop(record.path, None)
            else:
                self.pack.records[record.path] = record

    def records(self) -> list[caching.Record]:
        """The records of the unit's files; none for files that yield nothing."""
        wanted = (self.pack.records.get(path) for path in self.unit.files)
        return [record for record in wanted if record is not None and record.head != NOTHING]


class _Run:
    """The steps of a run, with what they share."""

    def __init__(self, cwd: str, configs: Configs, options: Options, engine: Engine | None, start: float) -> None:
        self._cwd = cwd
        self._configs = configs
        self._options = options
        self._engine = engine
        self._start = start
        self._marks: list[tuple[str, float]] = [("start", start)]
        self._raw: dict[str, bytes] = dict(options.overlay)
        self._digest_of = digest_of if options.use_cache else _nothing  # only the cache asks for them
        self._digests = {path: self._digest_of(raw) for path, raw in options.overlay.items()}
        self._errors: list[FileError] = []
        self._done = 0
        self._total = 0

    def finish(self, paths: Iterable[str]) -> Report:
        discovery = Discovery(self._cwd, self._configs)
        found = discovery.find(paths, extra=self._options.overlay)
        self._errors += found.errors
        self._mark("discover")
        for scope in found.scopes:
            for path in scope.files:
                self._read(path)
        unreadable = [path for path in found.requested if path not in self._raw and not self._read(path, loud=True)]
        self._mark("read")
        units: dict[tuple[int, Settings], _Unit] = {}
        for path, number in found.requested.items():
            if path in self._raw:
                settings = engine_settings(self._configs.of(path).settings)
                unit = units.setdefault((number, settings), _Unit(found.scopes[number], settings))
                unit.files.append(path)
        self._total = len(found.requested) - len(unreadable)
        cache = self._cache(discovery.project_root(self._cwd), found.requested)
        started = [self._started(unit, cache) for unit in units.values()]
        self._advance(sum(len(one.unit.files) - len(one.todo) for one in started))
        open_ = [one for one in started if one.todo]
        if open_:
            for one, fresh in zip(open_, self._examined(open_), strict=True):
                one.take(fresh)
        records: list[caching.Record] = []
        for one in started:
            if cache is not None and one.changed and not self._options.overlay:
                cache.save(one.key, one.pack)
            own = one.records()
            records += own
            if not self._is_small(one.unit):
                parsed = {record.path for record in own if b'"errors"' in record.head}
                self._parse(path for path in one.unit.files if path in found.named and path not in parsed)
        cached = sum(len(one.unit.files) - len(one.todo) for one in started)
        self._mark("analyse")
        return self._report(list(found.requested), records, cached)

    def _is_small(self, unit: _Unit) -> bool:
        """Whether all of a project's files are parsed, not only what the verdicts need."""
        return sum(len(self._raw.get(path, b"")) for path in unit.scope.files) <= PARSE_ALL_UP_TO

    def _parse(self, paths: Iterable[str]) -> None:
        """Parse files for their errors. Which ones depends on the command line, so that the cache has no part in it."""
        for path in paths:
            try:
                source = decode(self._raw[path], display_path(path, self._cwd), path)
            except SourceError:
                continue
            self._errors += syntax_error(source, self._engine or default_engine())

    @cached_property
    def _tool_digest(self) -> str:
        return caching.tool_digest()

    def _read(self, path: str, loud: bool = False) -> bool:
        if path in self._raw:
            return True
        try:
            raw = read_bytes(path)
        except OSError as error:
            if loud:
                self._errors.append(FileError(display_path(path, self._cwd), 1, describe(error)))
            return False
        self._raw[path] = raw
        self._digests[path] = self._digest_of(raw)
        return True

    def _cache(self, root: str, requested: Iterable[str]) -> caching.Cache | None:
        if not self._options.use_cache:
            return None
        folder = caching.locate(root, requested, self._configs.at(self._cwd).cache_dir)
        return caching.Cache(folder) if folder else None

    def _started(self, unit: _Unit, cache: caching.Cache | None) -> _Started:
        """A unit with what the cache knows of it."""
        files = {path: self._digests[path] for path in unit.scope.files if path in self._digests}
        pack = caching.Pack()
        key, changed = "", True
        if cache is not None:
            engine = self._engine.name if self._engine else ""
            tool = self._tool_digest + engine
            extent = unit.scope.extent + ("" if self._is_small(unit) else " large")
            key = caching.pack_key(tool, unit.settings, self._cwd, unit.scope.root, extent)
            old = cache.load(key)
            pack = caching.carried(old, files, self._bytes_now)
            changed = old.files != files or len(old.records) != len(pack.records)
        todo = tuple(path for path in unit.files if not self._known(path, pack))
        return _Started(unit, files, pack, key, changed or bool(todo), todo)

    def _known(self, path: str, pack: caching.Pack) -> bool:
        if path in pack.empty:
            return True
        record = pack.records.get(path)
        return record is not None and record.digest == self._digests[path]

    def _examined(self, started: Sequence[_Started]) -> list[list[caching.Record]]:
        """The records of the files to do, by unit. All units share the processes."""
        engine = self._engine or default_engine()
        jobs = tuple(
            Job(
                scope=one.unit.scope,
                todo=one.todo,
                raw=self._raw,
                digests=self._digests,
                settings=one.unit.settings,
                cwd=self._cwd,
                limit=self._options.limit,
                engine=engine,
                thorough=self._is_small(one.unit),
                kept=self._options.use_cache,
            )
            for one in started
        )
        found: list[list[caching.Record]] = [[] for _ in jobs]
        batch = Batch(jobs)
        weights = [_weight(self._raw[path]) for job in jobs for path in job.todo]
        processes = self._jobs()

        def receive(item: int, record: caching.Record) -> None:
            found[batch.place(item)[0]].append(record)
            self._advance(1)

        size = sum(len(self._raw[path]) for job in jobs for path in job.todo)
        if processes < 2 or len(weights) < 2 or size < self._options.pool_from:
            for item in range(len(weights)):
                receive(item, batch.answer(item))
            return found

        from cachelint import pool

        def fail(item: int, why: str) -> None:
            number, own = batch.place(item)
            receive(item, jobs[number].failed(own, why))

        for job in jobs:
            job.prepare()
        gc.freeze()
        try:
            pool.run(batch, weights, processes, self._options.limit, receive, fail)
        finally:
            gc.unfreeze()
        return found

    def _jobs(self) -> int:
        if self._options.jobs is not None:
            return max(1, self._options.jobs)
        from cachelint import pool

        return pool.usable_jobs()

    def _bytes_now(self, path: str) -> bytes | None:
        if path not in self._raw and not self._read(path):
            return None
        return self._raw[path]

    def _advance(self, count: int) -> None:
        self._done += count
        progress = self._options.progress
        if progress is not None and time.perf_counter() - self._start > PROGRESS_AFTER:
            progress(self._done, self._total)

    def _report(self, requested: list[str], records: list[caching.Record], cached: int) -> Report:
        findings: list[Finding] = []
        hidden: list[Finding] = []
        bodies: list[tuple[str, bytes]] = []
        off: frozenset[str] | None = None
        for record in records:
            head = json.loads(record.head)
            config = self._configs.of(record.path)
            shown = display_path(record.path, self._cwd)
            self._errors += (FileError(**item) for item in head.get("errors", ()))
            if record.body:
                bodies.append((shown, record.body))
            for key, target in (("findings", findings), ("suppressed", hidden)):
                if not head.get(key):
                    continue
                off = select.off_by_default() if off is None else off
                ignored = config.ignored_codes(record.path)
                for finding in findings_of(shown, head[key]):
                    if not select.enabled(finding.code, finding.name, config.settings, finding.code not in off):
                        continue
                    silent = any(select.matches(code, finding.code, finding.name) for code in ignored)
                    (hidden if silent else target).append(finding)
        self._mark("report")
        return Report(
            files=tuple(sorted(display_path(path, self._cwd) for path in requested)),
            findings=tuple(sorted(findings, key=lambda finding: finding.sort_key)),
            errors=tuple(sorted(set(self._errors), key=lambda error: (error.path, error.line, error.message))),
            suppressed=tuple(sorted(hidden, key=lambda finding: finding.sort_key)),
            cached=cached,
            timings=tuple(
                (name, at - before) for (_, before), (name, at) in zip(self._marks, self._marks[1:], strict=False)
            ),
            bodies=tuple(sorted(bodies)),
            places={display_path(path, self._cwd): (path, self._options.overlay.get(path)) for path in requested},
        )

    def _mark(self, phase: str) -> None:
        self._marks.append((phase, time.perf_counter()))


def _weight(raw: bytes) -> int:
    """A rough cost: a backward that is interpreted takes about as long as 50,000 bytes that are only looked through."""
    return len(raw) + 50_000 * raw.count(b"def backward")


def _nothing(raw: bytes) -> str:
    return ""


def engine_settings(settings: Settings) -> Settings:
    """The settings as the engine sees them: every rule on, no file left out. Selection comes after the cache."""
    return Settings(
        select=("ALL",),
        unknown_storage=settings.unknown_storage,
        contract=settings.contract,
        dialects=settings.dialects,
    )


def types_of(body: bytes) -> tuple[TypeReport, ...]:
    """Decode the types of one file from its line of JSON."""
    shape = {"path": "", "types": json.loads(body), "findings": (), "errors": (), "deps": (), "missing": ()}
    return FileResult.from_dict(shape).types


def findings_of(path: str, items: list[dict[str, Any]]) -> tuple[Finding, ...]:
    """Decode the findings of one file."""
    shape = {"path": path, "types": (), "findings": items, "errors": (), "deps": (), "missing": ()}
    return FileResult.from_dict(shape).findings
