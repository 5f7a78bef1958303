"""Fix the files of a run: read, fix, write back. The command line is thin over this."""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.config import Configs
from cachelint.discover import Discovery
from cachelint.examine import brief
from cachelint.fix.apply import Ask, Fixed, May, Quit, fix_text
from cachelint.fix.edits import Plan, Refusal
from cachelint.fix.remedies import fixable_codes
from cachelint.index.project import Project
from cachelint.model import FileError, Finding
from cachelint.runner import engine_settings
from cachelint.select import UNUSED_SUPPRESSION
from cachelint.source import Source, SourceError, WriteRefused, decode, describe, encode, read_bytes, write_back


@dataclass(frozen=True, slots=True)
class FileFix:
    """One file: as it was read, and what became of it. ``error`` says why it was left alone after all."""

    source: Source
    fixed: Fixed
    error: FileError | None = None

    @property
    def changed(self) -> bool:
        """Whether there is a new text."""
        return self.error is None and self.fixed.text != self.source.text

    def diff(self) -> Iterator[str]:
        """The change as a unified diff, line by line."""
        yield from unified(self.source.path, self.source.text, self.fixed.text)


@dataclass
class Summary:
    """What a run of fixes did."""

    files: list[FileFix] = field(default_factory=list)

    def add(self, new: FileFix) -> None:
        """Take a file in; of one that was changed before, for another file's sake or its own, the whole change."""
        for number, old in enumerate(self.files):
            if old.source.abspath == new.source.abspath and old.error is None and new.error is None:
                fixed = Fixed(
                    new.fixed.text,
                    (*old.fixed.applied, *new.fixed.applied),
                    (*old.fixed.refused, *new.fixed.refused),
                    (*old.fixed.skipped, *new.fixed.skipped),
                    lent=(*old.fixed.lent, *new.fixed.lent),
                )
                self.files[number] = FileFix(old.source, fixed)
                return
        self.files.append(new)

    @property
    def changed(self) -> list[FileFix]:
        """The files with a new text."""
        return [one for one in self.files if one.changed]

    @property
    def applied(self) -> list[Plan]:
        """Every plan that was carried out."""
        return [plan for one in self.files if one.error is None for plan in one.fixed.applied]

    @property
    def skipped(self) -> list[Plan]:
        """Unsafe plans that were not asked for, and what a person declined."""
        return [plan for one in self.files for plan in one.fixed.skipped]

    @property
    def refused(self) -> list[Refusal]:
        """Every finding that stays, with the reason."""
        return [refusal for one in self.files for refusal in one.fixed.refused]

    @property
    def errors(self) -> list[FileError]:
        """The files that could not be fixed or written."""
        return [one.error for one in self.files if one.error is not None]


def unified(path: str, before: str, after: str) -> Iterator[str]:
    """A unified diff between two texts of a file; a missing newline at the end is marked as patch does."""
    # Lines end as patch and git have it, at LF only: str.splitlines ends them at form feeds too.
    old, new = (io.StringIO(text, newline="\n").readlines() for text in (before, after))
    end = "\t" if " " in path else ""  # where patch would take a name with blanks for shorter than it is
    for line in difflib.unified_diff(old, new, f"a/{path}{end}", f"b/{path}{end}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def fix_findings(
    findings: Sequence[Finding],
    configs: Configs,
    cwd: str,
    *,
    overlay: Mapping[str, bytes] | None = None,
    unsafe: bool = False,
    write: bool = True,
    ask: Ask | None = None,
    progress: Callable[[int, int], None] | None = None,
    within: Sequence[str] = (".",),
) -> Summary:
    """Fix what can be fixed of the findings of a run. Files are replaced one by one, each in one step, and only those
    that did not change since they were read. With ``write`` off nothing is written. ``within`` are the files and
    folders that may be changed, where the fix of a file needs a change in another one. Raises ConfigError.
    """
    overlay = overlay or {}
    codes = fixable_codes() | {UNUSED_SUPPRESSION}
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.code in codes:
            by_path.setdefault(os.path.normpath(os.path.join(cwd, finding.path)), []).append(finding)
    summary = Summary()
    if not by_path:
        return summary
    on_disk = [path for path in by_path if path not in overlay]
    found = Discovery(cwd, configs).find(on_disk, extra=[path for path in by_path if path in overlay])
    projects: dict[int, Project] = {}
    cache: dict[str, bytes | None] = dict(overlay)

    def raw(path: str) -> bytes | None:
        if path not in cache:
            try:
                cache[path] = read_bytes(path)
            except OSError:
                cache[path] = None
        return cache[path]

    def text(path: str) -> str | None:
        data = raw(path)
        try:
            return None if data is None else decode(data, path, path).text
        except SourceError:
            return None

    folders = [os.path.normpath(os.path.join(cwd, name)) for name in within]

    def may(path: str) -> bool:
        inside = any(path == folder or path.startswith(os.path.join(folder, "")) for folder in folders)
        return inside and not overlay

    for number, (path, own) in enumerate(sorted(by_path.items())):
        if progress is not None:
            progress(number, len(by_path))
        place = found.requested.get(path)
        if place is None:
            continue
        if place not in projects:
            scope = found.scopes[place]
            projects[place] = Project(scope.root, list(scope.files), text, raw)
        try:
            one = _fix_file(path, own, projects[place], configs, raw(path), unsafe, ask, may)
        except Quit:
            break
        for other, new in one.fixed.elsewhere.items() if one.changed else ():
            # A file on which this one relies comes first: for itself it means what it meant.
            edits = tuple(e for plan in one.fixed.applied for o in plan.elsewhere if o.path == other for e in o.edits)
            lent = _lent(other, Fixed(new, lent=edits), cwd, raw(other))
            lent = _written(lent) if write else lent
            summary.add(lent)
            if lent.error is not None:
                said = lent.error.message.removeprefix("not fixed: ")
                why = f"not fixed: {lent.error.path} would have to change with it, which {said}"
                one = FileFix(one.source, one.fixed, FileError(one.source.path, 1, why))
                projects.pop(place)
                break
            cache[other] = encode(lent.source, new)
        if one.changed and write and path not in overlay:
            one = _written(one)
        if one.changed and path not in overlay and write:
            cache.pop(path, None)
        summary.add(one)
    return summary


def _lent(path: str, fixed: Fixed, cwd: str, data: bytes | None) -> FileFix:
    """A file that another one's fix needs changed."""
    shown = os.path.relpath(path, cwd).replace(os.sep, "/")
    try:
        source = decode(read_bytes(path) if data is None else data, shown, path)
        encode(source, fixed.text)
        return FileFix(source, fixed)
    except WriteRefused as error:
        return _failed(shown, path, FileError(shown, 1, f"not fixed: {error.message}"))
    except OSError as error:
        return _failed(shown, path, FileError(shown, 1, describe(error)))
    except SourceError as error:
        return _failed(shown, path, error.error)


def _fix_file(
    path: str,
    findings: Sequence[Finding],
    project: Project,
    configs: Configs,
    data: bytes | None,
    unsafe: bool,
    ask: Ask | None,
    may: May,
) -> FileFix:
    shown = findings[0].path
    try:
        source = decode(read_bytes(path) if data is None else data, shown, path)
    except OSError as error:
        return _failed(shown, path, FileError(shown, 1, describe(error)))
    except SourceError as error:
        return _failed(shown, path, error.error)
    keys = {(finding.code, finding.type, finding.field, finding.names) for finding in findings}

    def wanted(finding: Finding) -> bool:
        return (finding.code, finding.type, finding.field, finding.names) in keys

    settings = engine_settings(configs.of(path).settings)
    try:
        unused = [finding for finding in findings if finding.code == UNUSED_SUPPRESSION]
        fixed = fix_text(source, project, settings, wanted=wanted, unsafe=unsafe, ask=ask, unused=unused, may=may)
    except SyntaxError as error:
        return _left(source, f"cannot be parsed: {error.msg}", error.lineno or 1)
    except RecursionError:
        return _left(source, "not fixed: nested too deeply to be analysed")
    except Exception as error:
        return _left(source, f"cachelint failed to fix this file, please report it: {brief(error)}")
    return FileFix(source, fixed)


def _left(source: Source, why: str, line: int = 1) -> FileFix:
    return FileFix(source, Fixed(source.text), FileError(source.path, line, why))


def _failed(shown: str, path: str, error: FileError) -> FileFix:
    source = Source(shown, path, b"", "", "utf-8", False)
    return FileFix(source, Fixed(""), error)


def _written(one: FileFix) -> FileFix:
    try:
        write_back(one.source, one.fixed.text)
    except WriteRefused as error:
        return FileFix(one.source, one.fixed, FileError(one.source.path, 1, f"not fixed: {error.message}"))
    return one
