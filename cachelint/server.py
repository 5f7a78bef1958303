"""The language server (extra ``lsp``): findings as diagnostics, verdicts on hover, suppressions as code actions.

A buffer is examined as it stands in the editor, with the rest of its project from disk. Positions come and go in the
units that the client asked for.
"""

from __future__ import annotations

import asyncio
import io
import os
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from cachelint import __version__, runner, suppress
from cachelint.config import ConfigError, Configs
from cachelint.model import Applicability, FieldReport, Finding, TypeReport
from cachelint.report.advice import Adviser
from cachelint.runner import Options, Report
from cachelint.source import SourceError, decode

QUIET_SECONDS = 0.3
"""How long nobody must have typed before a changed buffer is examined."""

_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "info": lsp.DiagnosticSeverity.Information,
}


class Server(LanguageServer):
    """One editor's session. ``reports`` holds the last report of each open document."""

    def __init__(self, overrides: Mapping[str, Any] | None = None, use_cache: bool = True) -> None:
        super().__init__("cachelint", f"v{__version__}")
        self.overrides = dict(overrides or {})
        self.use_cache = use_cache
        self.reports: dict[str, Report] = {}

    def examine(self, document: TextDocument) -> Report:
        """Run over one buffer. Raises ConfigError."""
        cwd = self.folder(document)
        options = Options(jobs=1, use_cache=self.use_cache, overlay={document.path: _bytes(document.source)})
        return runner.run((), Configs(cwd, self.overrides), options, cwd=cwd)

    def folder(self, document: TextDocument) -> str:
        """The working directory for a document: the editor's folder, or the document's own without one."""
        return self.workspace.root_path or os.path.dirname(document.path)

    def publish(self, document: TextDocument) -> None:
        """Examine a document and show what was found."""
        try:
            report = self.examine(document)
        except ConfigError as error:
            self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, f"cachelint: {error}"))
            return
        self.reports[document.uri] = report
        found = list(diagnostics(report, document))
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, found, document.version))


def diagnostics(report: Report, document: TextDocument) -> Iterator[lsp.Diagnostic]:
    """The findings and errors of one document."""
    adviser = Adviser(report.types_with_findings)
    cwd = _base(report, document)
    for finding in report.findings:
        advice = adviser.advice(finding)
        text = "\n".join(part for part in (finding.message, advice.why, advice.todo) if part)
        field = adviser.verdict(finding)
        yield lsp.Diagnostic(
            range=_range(document, finding),
            message=text,
            severity=_SEVERITIES[adviser.severity(finding.code)],
            code=finding.code,
            source="cachelint",
            related_information=[
                lsp.DiagnosticRelatedInformation(
                    lsp.Location(_uri(os.path.join(cwd, link.path)), _whole_line(link.line)), link.text
                )
                for link in (field.evidence if field else ())
            ],
        )
    for error in report.errors:
        yield lsp.Diagnostic(_whole_line(error.line), error.message, lsp.DiagnosticSeverity.Error, source="cachelint")


def actions(report: Report, document: TextDocument, wanted: lsp.Range, configs: Configs) -> Iterator[lsp.CodeAction]:
    """What can be done about the findings that touch a range: the fix, where there is one, and a suppression."""
    offered: set[str] = set()
    for finding in report.findings:
        place = _range(document, finding)
        if place.start.line > wanted.end.line or place.end.line < wanted.start.line:
            continue
        if finding.fix is not None and finding.fix.description not in offered:
            offered.add(finding.fix.description)
            text = _fixed(report, document, finding, configs)
            if text is not None:
                unsafe = "" if finding.fix.applicability is Applicability.SAFE else " (unsafe)"
                yield lsp.CodeAction(
                    title=f"{finding.fix.description}{unsafe}",
                    kind=lsp.CodeActionKind.QuickFix,
                    is_preferred=not unsafe,
                    edit=lsp.WorkspaceEdit(changes={document.uri: [lsp.TextEdit(_everything(document), text)]}),
                )
        edit = _suppression(document, finding)
        if edit is not None:
            yield lsp.CodeAction(
                title=f"Suppress {finding.code} here (# noqa)",
                kind=lsp.CodeActionKind.QuickFix,
                edit=lsp.WorkspaceEdit(changes={document.uri: [edit]}),
            )


def hover(report: Report, line: int) -> str | None:
    """The verdicts on the fields that a 1-based line sets, as Markdown."""
    pages = [
        _page(kind, field)
        for kind in report.types
        for field in kind.fields
        if kind.path in report.files and field.line <= line <= field.end_line
    ]
    return "\n\n---\n\n".join(pages) or None


def _page(kind: TypeReport, field: FieldReport) -> str:
    marks = [field.cls.value, field.storage.value, *(["registered"] if field.registered else [])]
    lines = [f"**{kind.type}.{field.field}**: {', '.join(marks)}", "", field.reason, "", f"*To do:* {field.resolution}"]
    lines += ["", *(f"- {link.path}:{link.line}: {link.text}" for link in field.evidence)]
    return "\n".join(lines).rstrip()


def _fixed(report: Report, document: TextDocument, finding: Finding, configs: Configs) -> str | None:
    """The buffer's text with the finding fixed, and what the same fix mends; None where it is refused after all."""
    from cachelint.fix.api import fix_findings

    overlay = {document.path: _bytes(document.source)}
    summary = fix_findings([finding], configs, _base(report, document), overlay=overlay, unsafe=True, write=False)
    return summary.changed[0].fixed.text if summary.changed else None


def _everything(document: TextDocument) -> lsp.Range:
    return lsp.Range(lsp.Position(0, 0), lsp.Position(len(document.lines), 0))


def _suppression(document: TextDocument, finding: Finding) -> lsp.TextEdit | None:
    """The edit that appends a suppression: the lines that differ, replaced."""
    try:
        source = decode(_bytes(document.source), finding.path, document.path)
    except SourceError:
        return None
    before = source.text.splitlines(keepends=True)
    after = suppress.add_noqa(source, [finding]).splitlines(keepends=True)
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    if len(changed) != 1 or len(before) != len(after):
        return None
    line = changed[0]
    return lsp.TextEdit(lsp.Range(lsp.Position(line, 0), lsp.Position(line + 1, 0)), after[line])


def _range(document: TextDocument, finding: Finding) -> lsp.Range:
    """The finding's span in the client's units; the model counts characters."""
    start = lsp.Position(finding.line - 1, max(0, finding.column - 1))
    end = lsp.Position(finding.end_line - 1, max(0, finding.end_column - 1))
    return document.position_codec.range_to_client_units(document.lines, lsp.Range(start, end))


def _whole_line(line: int) -> lsp.Range:
    return lsp.Range(lsp.Position(max(0, line - 1), 0), lsp.Position(max(1, line), 0))


def _uri(path: str) -> str:
    from pygls.uris import from_fs_path

    return from_fs_path(os.path.abspath(path)) or ""


def _base(report: Report, document: TextDocument) -> str:
    """The folder that the report's paths are relative to."""
    shown = report.files[0] if report.files else ""
    return document.path.removesuffix(shown) if document.path.endswith(shown) else os.path.dirname(document.path)


def _bytes(text: str) -> bytes:
    """A buffer as its file would hold it: the coding cookie decides."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode("utf-8", "replace")).readline)
    except SyntaxError:
        encoding = "utf-8"
    return text.encode(encoding, "replace")


def build(overrides: Mapping[str, Any] | None = None, use_cache: bool = True) -> Server:
    """A server with its handlers, not yet started."""
    server = Server(overrides, use_cache)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
        ls.publish(ls.workspace.get_text_document(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
        ls.publish(ls.workspace.get_text_document(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
        version = params.text_document.version
        await asyncio.sleep(QUIET_SECONDS)
        document = ls.workspace.get_text_document(params.text_document.uri)
        if document.version == version:
            ls.publish(document)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
        ls.reports.pop(params.text_document.uri, None)
        ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    def code_action(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        report = ls.reports.get(params.text_document.uri)
        document = ls.workspace.get_text_document(params.text_document.uri)
        if report is None:
            return []
        return list(actions(report, document, params.range, Configs(ls.folder(document), ls.overrides)))

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
        report = ls.reports.get(params.text_document.uri)
        text = hover(report, params.position.line + 1) if report else None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None

    return server
