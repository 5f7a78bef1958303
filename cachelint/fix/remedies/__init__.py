"""One module a remedy. A module has ``CODES`` (the rules it answers for), and

``plan(file, findings)``: for each finding of these rules that is its business a :class:`~cachelint.fix.edits.Plan`
that covers it or a :class:`~cachelint.fix.edits.Refusal`; findings that aren't its business are left out.

``file`` is the :class:`~cachelint.checks.FileContext` that the checks saw, ``findings`` those that were asked for.
Planning must not import libcst: the check asks for plans too, to say which findings have a fix.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Protocol, cast

from cachelint.checks import FileContext
from cachelint.fix.edits import Outcome, Plan, Refusal
from cachelint.model import Finding


class Remedy(Protocol):
    """What a module of this folder offers."""

    CODES: frozenset[str]

    def plan(self, file: FileContext, findings: Sequence[Finding]) -> Iterator[Outcome]:
        """Plans and refusals for the findings that are this remedy's business."""


@lru_cache(maxsize=1)
def remedies() -> tuple[Remedy, ...]:
    """Every remedy, in the order of the file names."""
    names = sorted(os.listdir(os.path.dirname(__file__)))
    stems = [name[:-3] for name in names if name.endswith(".py") and not name.startswith("_")]
    return tuple(cast(Remedy, importlib.import_module(f"{__name__}.{stem}")) for stem in stems)


@lru_cache(maxsize=1)
def fixable_codes() -> frozenset[str]:
    """The rules that some remedy answers for."""
    return frozenset(code for remedy in remedies() for code in remedy.CODES)


def plan_file(file: FileContext, findings: Sequence[Finding]) -> list[Outcome]:
    """What all remedies say about the findings of one file; a finding is answered by the first that takes it."""
    outcomes: list[Outcome] = []
    left = list(findings)
    for remedy in remedies():
        own = [finding for finding in left if finding.code in remedy.CODES]
        if not own:
            continue
        try:
            answers = list(remedy.plan(file, own))
        except Exception as error:  # a flaw in a remedy must take away neither the finding nor the other fixes
            answers = [Refusal(f, f"the fix failed, please report it: {error!r}", "internal error") for f in own]
        outcomes += answers
        taken = {
            finding
            for answer in answers
            for finding in (answer.findings if isinstance(answer, Plan) else (answer.finding,))
        }
        left = [finding for finding in left if finding not in taken]
    return outcomes
