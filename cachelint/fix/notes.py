"""What ``check`` says of a finding's fix: planned, not carried out, so that no check waits for libcst."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cachelint.checks import FileContext
from cachelint.fix.edits import Plan
from cachelint.fix.remedies import fixable_codes, plan_file
from cachelint.model import Finding, FixNote


def annotate(file: FileContext, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the note of the plan that covers it; without one where a remedy refuses."""
    codes = fixable_codes()
    own = [finding for finding in findings if finding.code in codes]
    if not own:
        return list(findings)
    notes: dict[Finding, FixNote] = {}
    for outcome in plan_file(file, own):
        if isinstance(outcome, Plan):
            notes.update({f: FixNote(outcome.applicability, outcome.description) for f in outcome.findings})
    return [dataclasses.replace(f, fix=notes.get(f)) if f.code in codes else f for f in findings]
