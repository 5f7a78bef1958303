"""The rule catalogue: ``rules/CL*.toml`` with the Markdown page beside each, loaded one rule at a time.

A file name holds the code and the name (``CL101-cached-live-input.toml``), so listing the catalogue reads no file.
In a checkout the folder ``rules`` beside the package is read; in an installed package its copy, ``cachelint/_rules``.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachelint.data import rules_dir

PACKAGE = Path(__file__).resolve().parent

SECTIONS = ("What it finds", "Why it matters", "What to do", "Proof", "When it stays silent", "References")
"""The second-level headings that a rule's page may have, in the order in which they are shown."""

REQUIRED_SECTIONS = ("What it finds", "Why it matters", "What to do", "When it stays silent")
SEVERITIES = ("error", "warning", "info")
FIXABLE = ("safe", "unsafe", "sometimes", "no")

_STEM = re.compile(r"(?P<code>CL\d{3})-(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)\Z")
_KEYS: dict[str, type] = {
    "code": str,
    "name": str,
    "summary": str,
    "severity": str,
    "fixable": str,
    "default": bool,
    "dialects": list,
    "fixture": str,
    "reference": str,
    "references": list,
    "bad": list,
    "good": list,
}


class CatalogueError(Exception):
    """A rule that is not there, or that is incomplete. ``path`` is the file at fault, or the folder."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class Example:
    """A piece of code that the rule reports (``findings`` times), or must stay silent on (``findings`` is 0)."""

    code: str
    note: str = ""
    findings: int = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its data from the TOML file, its page from the Markdown file."""

    code: str
    name: str
    summary: str
    severity: str
    fixable: str
    default: bool
    dialects: tuple[str, ...]
    fixture: str
    reference: str
    references: tuple[str, ...]
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    sections: tuple[tuple[str, str], ...]

    def section(self, title: str) -> str:
        """The text under a heading of the page; empty when the page has no such heading."""
        return next((text for heading, text in self.sections if heading == title), "")


def folder() -> Path:
    """Where the catalogue lives: ``rules`` beside the package in a checkout, ``_rules`` inside an installed package.

    Raises CatalogueError when neither is there.
    """
    where = Path(rules_dir())
    if where.is_dir():
        return where
    raise CatalogueError(where, "the rule catalogue is missing: reinstall torch-cachelint")


def names(root: Path | None = None) -> dict[str, str]:
    """Code to name, sorted by code, from the directory listing alone."""
    where = root or folder()
    files = sorted(name for name in os.listdir(where) if name.endswith(".toml")) if os.path.isdir(where) else []
    found = (_STEM.match(name.removesuffix(".toml")) for name in files)
    return {match["code"]: match["name"] for match in found if match}


def find(query: str, root: Path | None = None) -> str:
    """The code that a code or a name, in any case, stands for. Raises CatalogueError when there is none."""
    where = root or folder()
    return _named(query, names(where), where)


def _named(query: str, listing: dict[str, str], where: Path) -> str:
    wanted = query.strip()
    if wanted.upper() in listing:
        return wanted.upper()
    for code, name in listing.items():
        if name == wanted.lower():
            return code
    raise CatalogueError(where, f"there is no rule {query!r}; `cachelint rule` lists them all")


def load(query: str, root: Path | None = None) -> Rule:
    """Load one rule by code or name.

    Raises CatalogueError for an unknown rule, and for one that is incomplete: a missing or foreign key, no bad or no
    good example, a page without its headings, a fixture or a reference layer that is not there.
    """
    where = root or folder()
    listing = names(where)
    code = _named(query, listing, where)
    path = where / f"{code}-{listing[code]}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(path, f"not readable as TOML: {error}") from error
    _check_keys(path, data)
    if f"{data['code']}-{data['name']}" != path.stem:
        raise CatalogueError(path, f"holds {data['code']}-{data['name']}: the file name must be the code and the name")
    rule = Rule(
        code=data["code"],
        name=data["name"],
        summary=data["summary"].strip(),
        severity=data["severity"],
        fixable=data["fixable"],
        default=data["default"],
        dialects=tuple(data["dialects"]),
        fixture=data["fixture"],
        reference=data["reference"],
        references=tuple(data["references"]),
        bad=_examples(path, data, "bad"),
        good=_examples(path, data, "good"),
        sections=_page(path.with_suffix(".md")),
    )
    _check_files(path, rule, where)
    return rule


def load_all(root: Path | None = None) -> tuple[Rule, ...]:
    """Every rule, by code. Raises CatalogueError for the first one that is incomplete."""
    return tuple(load(code, root) for code in names(root))


def _check_keys(path: Path, data: dict[str, Any]) -> None:
    """Every key is there, none is foreign, each has its type and its vocabulary."""
    missing = [key for key in _KEYS if key not in data]
    if missing:
        raise CatalogueError(path, f"incomplete: no {', '.join(missing)}")
    foreign = [key for key in data if key not in _KEYS]
    if foreign:
        raise CatalogueError(path, f"unknown key {', '.join(foreign)}")
    for key, kind in _KEYS.items():
        if not isinstance(data[key], kind):
            raise CatalogueError(path, f"{key} must be a {kind.__name__}, not {type(data[key]).__name__}")
        if kind is str and not data[key].strip():
            raise CatalogueError(path, f"{key} is empty")
    for key in ("dialects", "references"):
        if not all(isinstance(item, str) for item in data[key]):
            raise CatalogueError(path, f"{key} must be a list of strings")
    if not data["dialects"]:
        raise CatalogueError(path, "dialects is empty")
    for key, words in (("severity", SEVERITIES), ("fixable", FIXABLE)):
        if data[key] not in words:
            raise CatalogueError(path, f"{key} must be one of {', '.join(words)}, not {data[key]!r}")
    if "\n" in data["summary"].strip():
        raise CatalogueError(path, "summary must be one line")


def _examples(path: Path, data: dict[str, Any], key: str) -> tuple[Example, ...]:
    """The ``[[bad]]`` or ``[[good]]`` tables; at least one."""
    usual = 1 if key == "bad" else 0
    found = []
    for number, table in enumerate(data[key], start=1):
        if not isinstance(table, dict) or not isinstance(table.get("code"), str) or not table["code"].strip():
            raise CatalogueError(path, f"{key} example {number} has no code")
        foreign = [name for name in table if name not in ("code", "note", "findings")]
        if foreign:
            raise CatalogueError(path, f"{key} example {number} has an unknown key {', '.join(foreign)}")
        example = Example(table["code"].strip("\n") + "\n", table.get("note", ""), table.get("findings", usual))
        if (example.findings > 0) != (key == "bad"):
            raise CatalogueError(path, f"{key} example {number} cannot have {example.findings} findings")
        found.append(example)
    if not found:
        raise CatalogueError(path, f"incomplete: no {key} example")
    return tuple(found)


def _page(path: Path) -> tuple[tuple[str, str], ...]:
    """The page's sections in its own order. A heading inside a fenced block is text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(path, f"the rule's page is not readable: {error}") from error
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if line.startswith("## ") and not fenced:
            title = line[3:].strip()
            if title not in SECTIONS:
                raise CatalogueError(path, f"unknown heading {title!r}; the headings are {', '.join(SECTIONS)}")
            current = sections.setdefault(title, [])
        else:
            current.append(line)
    page = {title: "\n".join(lines).strip() for title, lines in sections.items()}
    empty = [title for title in REQUIRED_SECTIONS if not page.get(title)]
    if empty:
        raise CatalogueError(path, f"incomplete: nothing under {', '.join(repr(title) for title in empty)}")
    return tuple(page.items())


def _check_files(path: Path, rule: Rule, where: Path) -> None:
    """The reference layer exists; the fixture too where fixtures are (the wheel ships none)."""
    reference = PACKAGE / "runtime" / "layers" / f"{rule.reference}.py"
    if not reference.is_file():
        raise CatalogueError(path, f"reference {rule.reference!r}: there is no {reference}")
    fixtures = where.parent / "fixtures"
    if fixtures.is_dir() and not (where.parent / rule.fixture).is_file():
        raise CatalogueError(path, f"fixture {rule.fixture!r} does not exist")
