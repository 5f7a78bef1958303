"""A rule of the catalogue as a page: Markdown for the docs and SARIF, plain text for pipes."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from cachelint.catalogue import SECTIONS, Example, Rule

FIX_WORDS = {
    "safe": "yes, safely",
    "unsafe": "only as an unsafe fix",
    "sometimes": "sometimes; the finding says so",
    "no": "no",
}


def markdown(rule: Rule, level: int = 1) -> str:
    """The page in Markdown; ``level`` is that of its first heading."""
    head, sub = "#" * level, "#" * (level + 1)
    parts = [f"{head} {rule.code} {rule.name}", f"{rule.summary}", _facts(rule)]
    for title in SECTIONS:
        text = rule.section(title)
        if title == "References":
            listed = [f"- {_reference(item)}" for item in rule.references]
            text = "\n".join([*([text] if text else []), *listed])
        if text:
            parts.append(f"{sub} {title}\n\n{text}")
        if title == "What to do":
            parts += _examples(rule, sub)
    return "\n\n".join(parts) + "\n"


def plain(rule: Rule) -> str:
    """The page without Markdown's marks, wrapped at 100 columns."""
    out: list[str] = []
    fenced = False
    for line in markdown(rule).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            out.append(f"    {line}".rstrip())
        elif line.startswith("#"):
            out.append(re.sub(r"^#+ ", "", line).upper() if line.startswith("## ") else re.sub(r"^#+ ", "", line))
        else:
            text = line.replace("**", "")
            indent = "  " if line.startswith("- ") else ""
            out += textwrap.wrap(
                text, 100, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
            ) or [""]
    return "\n".join(out) + "\n"


def _facts(rule: Rule) -> str:
    default = "on" if rule.default else "off by default, select it by its code"
    facts = (
        ("Severity", rule.severity),
        ("Fixable", FIX_WORDS[rule.fixable]),
        ("Default", default),
        ("Dialects", ", ".join(rule.dialects)),
        ("The right form", f"`cachelint/runtime/layers/{rule.reference}.py`"),
    )
    return "\n".join(f"- **{label}:** {value}" for label, value in facts)


def _examples(rule: Rule, sub: str) -> list[str]:
    return [
        f"{sub} {title}\n\n" + "\n\n".join(_example(example) for example in examples)
        for title, examples in (("Reported", rule.bad), ("Not reported", rule.good))
    ]


def _example(example: Example) -> str:
    note = f"{example.note.strip()}\n\n" if example.note.strip() else ""
    return f"{note}```python\n{example.code}```"


def _reference(item: str) -> str:
    return f"<{item}>" if item.startswith(("https://", "http://")) else item


def shape(rule: Rule) -> dict[str, Any]:
    """The rule for programs; ``sections`` by heading, in Markdown."""
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.summary,
        "severity": rule.severity,
        "fixable": rule.fixable,
        "default": rule.default,
        "dialects": list(rule.dialects),
        "fixture": rule.fixture,
        "reference": rule.reference,
        "references": list(rule.references),
        "bad": [{"code": example.code, "note": example.note, "findings": example.findings} for example in rule.bad],
        "good": [{"code": example.code, "note": example.note} for example in rule.good],
        "sections": dict(rule.sections),
    }
