"""Which rules are on: selectors are ``ALL``, a prefix of a code (``CL``, ``CL1``, ``CL101``) or a rule's name.

The most specific selector that fits a rule decides, and ``ignore`` wins a tie, as in Ruff. A rule that is off by
default is selected by ``ALL``, by its whole code or by its name.
"""

from __future__ import annotations

import os
import re

from cachelint.data import rules_dir
from cachelint.settings import Settings
from cachelint.source import read_bytes

UNUSED_SUPPRESSION = "CL001"
BUILT_IN = {UNUSED_SUPPRESSION: "unused-suppression"}
"""Codes that the runner itself reports; all others come from the catalogue."""

_WHOLE_CODE = 5
_FILE = re.compile(r"(CL\d{3})-([a-z0-9-]+)\.toml\Z")
_OFF = re.compile(rb"^default\s*=\s*false\b", re.MULTILINE)


def specificity(selector: str, code: str, name: str) -> int:
    """How closely a selector fits a rule: -1 not at all, 0 for ``ALL``, else the length of the prefix."""
    if selector.upper() == "ALL":
        return 0
    if selector.lower() == name:
        return _WHOLE_CODE
    return len(selector) if selector and code.startswith(selector.upper()) else -1


def matches(selector: str, code: str, name: str) -> bool:
    """Whether a selector fits a rule."""
    return specificity(selector, code, name) >= 0


def enabled(code: str, name: str, settings: Settings, default: bool = True) -> bool:
    """Whether a rule is on under these settings; ``default`` is the catalogue's word on it."""
    chosen = [specificity(one, code, name) for one in (*settings.select, *settings.extend_select)]
    if not default:
        chosen = [fit for fit in chosen if fit == 0 or fit >= _WHOLE_CODE]
    wanted = max(chosen, default=-1)
    unwanted = max((specificity(one, code, name) for one in settings.ignore), default=-1)
    return wanted >= 0 and wanted > unwanted


def known() -> dict[str, str]:
    """Code to name of every rule there is, from the names of the catalogue's files."""
    return BUILT_IN | {match[1]: match[2] for match in map(_FILE.match, sorted(os.listdir(rules_dir()))) if match}


def off_by_default() -> frozenset[str]:
    """The codes that a plain run leaves out, by a byte search in the catalogue's files (nothing is parsed)."""
    folder = rules_dir()
    off = set()
    for name in os.listdir(folder):
        match = _FILE.match(name)
        if match and _OFF.search(read_bytes(os.path.join(folder, name))):
            off.add(match[1])
    return frozenset(off)
