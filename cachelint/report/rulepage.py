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
    """The page without Markdown's marks: paragraphs wrapped at 100 columns, code indented, headings in capitals."""
    out: list[str] = []
    for block in _blocks(markdown(rule)):
        if block[0].startswith("```"):
            out += [f"    {line}".rstrip() for line in block[1:-1]]
        elif block[0].startswith("#"):
            title = block[0].lstrip("#").strip()
            out.append(title.upper() if block[0].startswith("##") else title)
        elif block[0].startswith("|"):
            out += block
        else:
            for item in _items(block):
                text = re.sub(r"<(https?://[^>]+)>", r"\1", item.replace("**", ""))
                indent = "  " if text.startswith("- ") else ""
                wrapped = textwrap.wrap(
                    text, 100, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
                )
                out += [text] if text.count(" ") <= 1 else wrapped
        out.append("")
    return "\n".join(out[:-1]) + "\n"


def _blocks(text: str) -> list[list[str]]:
    """Lines that belong together: what blank lines part, but a fenced block is one whatever is in it."""
    blocks: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            blocks += [[]] if not fenced and blocks[-1] else []
            fenced = not fenced
            blocks[-1].append(line)
            blocks += [] if fenced else [[]]
        elif line.strip() or fenced:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _items(block: list[str]) -> list[str]:
    """A paragraph as one line, a list as one line an item."""
    items: list[str] = []
    for line in block:
        if re.match(r"(- |\d+\. )", line) or not items:
            items.append(line.strip())
        else:
            items[-1] += " " + line.strip()
    return items


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
