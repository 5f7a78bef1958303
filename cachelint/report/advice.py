"""What is wrong, why here, what to do: the words that go with a finding.

Why and what come from the verdict on the field where the finding has one, else from the rule's page. A rule that the
catalogue refuses to load costs the report its help, never the finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cachelint import catalogue
from cachelint.model import FieldReport, Finding, TypeReport
from cachelint.report.text import first_sentence

_LEVELS = {"error": "error", "warning": "warning", "info": "info"}


@dataclass(frozen=True, slots=True)
class Advice:
    """``why`` and ``todo`` are one line each, or empty; ``evidence`` are lines ``place: what it shows``."""

    why: str
    todo: str
    evidence: tuple[str, ...] = ()


class Adviser:
    """Looks verdicts and rules up for one report; a rule is loaded once, when the first finding asks for it."""

    def __init__(self, types: Iterable[TypeReport]) -> None:
        self._fields: dict[tuple[str, str, str], list[FieldReport]] = {}
        for kind in types:
            for field in kind.fields:
                self._fields.setdefault((kind.path, kind.type, field.field), []).append(field)
        self._rules: dict[str, catalogue.Rule | None] = {}

    def rule(self, code: str) -> catalogue.Rule | None:
        """The rule, or None when the catalogue has no complete one."""
        if code not in self._rules:
            try:
                self._rules[code] = catalogue.load(code)
            except catalogue.CatalogueError:
                self._rules[code] = None
        return self._rules[code]

    def severity(self, code: str) -> str:
        """``error``, ``warning`` or ``info``."""
        rule = self.rule(code)
        return _LEVELS[rule.severity] if rule else "warning"

    def verdict(self, finding: Finding) -> FieldReport | None:
        """The field report behind a finding: at the finding's line when the field has several."""
        if finding.type is None or finding.field is None:
            return None
        found = self._fields.get((finding.path, finding.type, finding.field), [])
        return next((field for field in found if field.line == finding.line), found[0] if found else None)

    def advice(self, finding: Finding) -> Advice:
        """The words for one finding."""
        field = self.verdict(finding)
        rule = self.rule(finding.code)
        if field is not None and (field.rule == finding.code or field.rule is None):
            chain = tuple(f"{link.path}:{link.line}: {link.text}" for link in field.evidence)
            return Advice(field.reason, field.resolution, chain)
        if rule is None:
            return Advice("", finding.fix.description if finding.fix else "")
        todo = finding.fix.description if finding.fix else first_sentence(rule.section("What to do"))
        return Advice(first_sentence(rule.section("Why it matters")), todo)
