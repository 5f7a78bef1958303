"""Layers and graph nodes: the live input is read, what is cheap is derived again, the rest is registered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cachelint.checks import FileContext
from cachelint.fix.edits import Outcome, Text
from cachelint.fix.layers.assemble import Layer
from cachelint.model import Finding

CODES = frozenset(("CL101", "CL102", "CL103", "CL104", "CL105", "CL106", "CL202", "CL206"))
DIALECTS = frozenset(("graph-node", "layer"))


def plan(file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """A plan a class, refusals for what stays."""
    text = Text(file.module.text)
    for context in file.types:
        unit = context.analysis.unit
        if context.report.dialect not in DIALECTS or unit.info is None:
            continue
        own: dict[str, list[Finding]] = {}
        side: list[Finding] = []
        for finding in findings:
            if finding.type != context.report.type or finding.field is None:
                continue
            if finding.code in ("CL202", "CL206"):
                side.append(finding)
            elif any(f.field == finding.field and f.line == finding.line for f in context.report.fields):
                own.setdefault(finding.field, []).append(finding)
        if own or side:
            yield from Layer(context, text, own, side).outcomes()
