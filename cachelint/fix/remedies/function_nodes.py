"""Chainer: an input is read back, what is cheap is computed again, an output is retained; the rest has no contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext
from cachelint.fix.edits import Outcome, Text
from cachelint.fix.nodes.node import Node
from cachelint.model import Finding

CODES = frozenset(("CL101", "CL102", "CL103", "CL104", "CL105", "CL106", "CL107"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a class, refusals for what stays."""
    text = Text(file.module.text)
    for context in file.types:
        unit = context.analysis.unit
        if context.report.dialect != "chainer" or unit.info is None:
            continue
        lines = {field.field: field.line for field in context.report.fields}
        own: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.type == context.report.type and finding.field and lines.get(finding.field) == finding.line:
                own.setdefault(finding.field, []).append(finding)
        if own:
            yield from Node(context, text, own).outcomes()
