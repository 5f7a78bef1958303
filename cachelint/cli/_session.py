"""One run for a command: configuration, standard input, progress, baseline, and what went wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cachelint import cache as caching
from cachelint import runner, suppress
from cachelint.cli._console import is_terminal, not_over_source, tell
from cachelint.cli._progress import progress_bar
from cachelint.cli._scope import Scope
from cachelint.cli._status import UsageProblem, status
from cachelint.config import ConfigError, Configs
from cachelint.discover import Discovery
from cachelint.report.text import plural
from cachelint.runner import Options, Report
from cachelint.source import SourceError, WriteRefused, encode, load, write_back

if TYPE_CHECKING:
    from cachelint.fix.api import Summary
    from cachelint.fix.apply import Ask

STDIN = "-"


class Session:
    """What a command needs of a run. Every method raises UsageProblem for what the person has to change."""

    def __init__(
        self,
        scope: Scope,
        overrides: Mapping[str, Any] | None = None,
        *,
        baseline: str | None = None,
        stdin_filename: str | None = None,
    ) -> None:
        self._scope = scope
        self._overrides = {**scope.overrides(), **(overrides or {})}
        self._baseline = os.path.abspath(baseline) if baseline is not None else None
        self._stdin_filename = stdin_filename
        self._cwd = os.getcwd()
        self._overlay: dict[str, bytes] | None = None

    def run(self, paths: Sequence[str]) -> Report:
        """Examine paths (the working directory without any); what a baseline accepts is taken off."""
        if "" in paths:
            raise UsageProblem("a path is empty; leave it out to examine the working directory")
        overlay = self._standard_input(paths)
        named = [path for path in paths if path != STDIN]
        if not paths:
            named = ["."]
        with _usage():
            report = self._examine(self._cwd, named, overlay)
            accepted = self._baseline or (None if overlay else self._configs(self._cwd).at(self._cwd).baseline)
            return report if accepted is None else self._without(report, accepted)

    def run_in(self, folder: str, paths: Sequence[str]) -> Report:
        """Examine the same paths below another folder; a path that isn't there yields nothing."""
        relative = [os.path.relpath(os.path.abspath(path), self._cwd) for path in paths or ["."]]
        if any(path.startswith("..") for path in relative):
            raise UsageProblem("--since needs paths below the working directory")
        with _usage(), contextlib.chdir(folder):
            return self._examine(folder, [path for path in relative if os.path.exists(path)], {})

    def output_format(self) -> str | None:
        """The configured format of ``check``."""
        with _usage():
            return self._configs(self._cwd).at(self._cwd).output_format

    def complain(self, report: Report) -> None:
        """Say on stderr which files were not read, and why."""
        for error in report.errors:
            tell(f"{error.path}:{error.line}: {error.message}")

    def add_noqa(self, paths: Sequence[str]) -> int:
        """Append a suppression to every line with a finding. The exit status."""
        if STDIN in paths:
            raise UsageProblem("--add-noqa changes files; standard input is none")
        report = self.run(paths)
        changed, suppressed, refused = 0, 0, []
        for result in report.results:
            if not result.findings:
                continue
            try:
                source = load(os.path.abspath(result.path), result.path)
                text = suppress.add_noqa(source, result.findings)
                if write_back(source, text):
                    changed += 1
                    suppressed += len(result.findings)
            except WriteRefused as error:
                refused.append(f"{error.path}: {error.message}")
            except (OSError, SourceError) as error:
                refused.append(str(error))
        self.complain(report)
        for message in refused:
            tell(message)
        if not self._scope.quiet:
            tell(f"suppressed {plural(suppressed, 'finding')} in {plural(changed, 'file')}")
        return status((), report.errors or refused)

    def write_baseline(self, paths: Sequence[str], target: str) -> int:
        """Accept today's findings. The exit status."""
        not_over_source(target)
        with _usage():
            report = self._examine(self._cwd, list(paths) or ["."], self._standard_input(paths))
            from cachelint import baseline

            path = os.path.abspath(target)
            entries = baseline.build(report.findings, os.path.dirname(path), self._cwd, report.source_lines)
            baseline.save(path, entries)
        self.complain(report)
        if not self._scope.quiet:
            tell(f"{target}: accepts {plural(len(report.findings), 'finding')}")
        return status((), report.errors)

    def fix(self, report: Report, *, unsafe: bool, write: bool, ask: Ask | None = None) -> Summary:
        """Carry out the fixes for a report's findings."""
        from cachelint.fix.api import fix_findings

        show = is_terminal(sys.stderr) and not self._scope.quiet and ask is None
        with _usage(), progress_bar(show) as progress:
            return fix_findings(
                report.findings,
                self._configs(self._cwd),
                self._cwd,
                overlay=self._overlay,
                unsafe=unsafe,
                write=write,
                ask=ask,
                progress=progress,
                within=self._scope.paths or ["."],
            )

    def standard_output(self, summary: Summary) -> bytes:
        """What standard input became; what it was, where it could not be read or fixed."""
        overlay = self._overlay or {"": b""}
        for one in summary.changed:
            if one.source.abspath in overlay:
                try:
                    return encode(one.source, one.fixed.text)
                except WriteRefused as error:
                    raise UsageProblem(str(error)) from error
        (raw,) = overlay.values()
        return raw

    def fingerprint(self, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Size and modification time of every file that a run over the paths would examine."""
        with _usage():
            found = Discovery(self._cwd, self._configs(self._cwd)).find(list(paths) or ["."])
        marks: dict[str, tuple[int, int]] = {}
        for scope in found.scopes:
            for path in scope.files:
                with contextlib.suppress(OSError):
                    entry = os.stat(path)
                    marks[path] = (entry.st_size, entry.st_mtime_ns)
        return marks

    def clean(self) -> str | None:
        """Remove the cache that a run here would use; its folder, None when there was none."""
        with _usage():
            configs = self._configs(self._cwd)
            root = Discovery(self._cwd, configs).project_root(self._cwd)
            folder = caching.locate(root, [], configs.at(self._cwd).cache_dir)
        try:
            return folder if folder is not None and caching.clean(folder) else None
        except OSError as error:
            raise UsageProblem(f"{folder}: cannot be removed: {error.strerror or error}") from error

    def _configs(self, cwd: str) -> Configs:
        pinned = self._scope.config and os.path.join(self._cwd, self._scope.config)
        return Configs(cwd, self._overrides, pinned=pinned, isolated=self._scope.isolated)

    def _examine(self, cwd: str, paths: Sequence[str], overlay: Mapping[str, bytes]) -> Report:
        show = is_terminal(sys.stderr) and not self._scope.quiet
        with progress_bar(show) as progress:
            options = Options(
                jobs=self._scope.jobs or None, use_cache=self._scope.cache, overlay=overlay, progress=progress
            )
            return runner.run(paths, self._configs(cwd), options, cwd=cwd)

    def _standard_input(self, paths: Sequence[str]) -> dict[str, bytes]:
        """What standard input stands for: the bytes of one file."""
        if STDIN not in paths:
            if self._stdin_filename is not None:
                raise UsageProblem("--stdin-filename names what `-` reads: give `-` as the path")
            return {}
        if self._overlay is None:
            name = self._stdin_filename or "stdin.py"
            self._overlay = {os.path.abspath(name): sys.stdin.buffer.read()}
        return self._overlay

    def _without(self, report: Report, path: str) -> Report:
        from cachelint import baseline

        folder = os.path.dirname(path)
        compared = baseline.compare(
            report.findings, baseline.load(path), folder, self._cwd, report.source_lines, report.files
        )
        if compared.stale and not self._scope.quiet:
            shown = os.path.relpath(path, self._cwd)
            tell(f"{shown}: {len(compared.stale)} accepted findings are gone; --write-baseline {shown} forgets them")
        return dataclasses.replace(report, findings=compared.new)


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """Errors that a person has to mend become usage problems."""
    try:
        yield
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    except Exception as error:
        # Imported only when something went wrong: most runs have no baseline.
        from cachelint.baseline import BaselineError

        if isinstance(error, BaselineError):
            raise UsageProblem(str(error)) from error
        raise
