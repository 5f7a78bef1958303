"""Paths matched by patterns in gitignore's syntax: ignore files, ``exclude`` and ``per-file-ignores``.

Written for speed on the two things asked of it, directories and Python files, one level at a time from the top: plain
names and suffixes are looked up in sets, only patterns with other wildcards become a regular expression.
``git check-ignore`` is the reference (see https://git-scm.com/docs/gitignore#_pattern_format).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

_WILD = re.compile(r"[*?\[\\]")
_STARS = re.compile(r"\*{2,}(?=/|\Z)")
_POSIX_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


@dataclass(frozen=True)
class _Run:
    """Neighbouring patterns of one polarity. Keys that end in a slash hold for directories only."""

    negated: bool
    names: frozenset[str]
    paths: frozenset[str]
    suffixes: tuple[str, ...]
    globs: tuple[str, ...]
    folder_globs: tuple[str, ...]

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        """The patterns that need one."""
        return _any_of(self.globs)

    @cached_property
    def folder_regex(self) -> re.Pattern[str] | None:
        """The same for patterns that match directories only."""
        return _any_of(self.folder_globs)

    def matches(self, path: str, is_dir: bool) -> bool:
        """Whether one of the patterns matches a relative path."""
        name = path.rpartition("/")[2]
        if name in self.names or path in self.paths or name.endswith(self.suffixes):
            return True
        if self.regex is not None and self.regex.fullmatch(path):
            return True
        if not is_dir:
            return False
        name += "/"
        if name in self.names or f"{path}/" in self.paths or name.endswith(self.suffixes):
            return True
        return self.folder_regex is not None and self.folder_regex.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class Patterns:
    """An ordered list of patterns; the last that matches decides."""

    runs: tuple[_Run, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.runs)

    def match(self, path: str, is_dir: bool) -> bool | None:
        """Whether ``path`` (relative, forward slashes) is matched; None when no pattern says anything about it."""
        for run in reversed(self.runs):
            if run.matches(path, is_dir):
                return not run.negated
        return None

    def covers(self, path: str) -> bool:
        """Whether a file, or a directory above it, is matched."""
        parts = path.split("/")
        for count in range(1, len(parts)):
            if self.match("/".join(parts[:count]), True):
                return True
        return bool(self.match(path, False))


NOTHING = Patterns()


@lru_cache(maxsize=1024)
def parse(text: str) -> Patterns:
    """The patterns of an ignore file."""
    return compile_patterns(text.removeprefix("\ufeff").splitlines())


def compile_patterns(lines: Iterable[str]) -> Patterns:
    """Compile patterns, one a line. A pattern that git would find malformed matches nothing."""
    runs: list[_Run] = []
    current: list[str] = []
    negated = False
    for line in lines:
        pattern, negates = _clean(line)
        if not pattern:
            continue
        if negates != negated and current:
            runs.append(_run(current, negated))
            current = []
        negated = negates
        current.append(pattern)
    if current:
        runs.append(_run(current, negated))
    return Patterns(tuple(runs))


def _clean(line: str) -> tuple[str, bool]:
    """The pattern of a line and whether it is negated; an empty pattern for comments and blank lines."""
    line = line.rstrip("\r\n")
    stripped = line.rstrip(" ")
    if stripped != line and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "  # the backslash keeps one blank
    if not stripped or stripped.startswith("#"):
        return "", False
    if stripped.startswith("!"):
        return stripped[1:], True
    return stripped, False


def _run(patterns: list[str], negated: bool) -> _Run:
    names: set[str] = set()
    paths: set[str] = set()
    suffixes: list[str] = []
    globs: list[str] = []
    folder_globs: list[str] = []
    for pattern in patterns:
        body = pattern.removesuffix("/")
        slash = "/" if len(body) < len(pattern) else ""
        if not body or body.endswith("/"):  # no path ends in a slash of its own
            continue
        if not _WILD.search(body):
            if "/" in body:
                paths.add(body.removeprefix("/") + slash)
            else:
                names.add(body + slash)
        elif body.startswith("*") and "/" not in body and not _WILD.search(body[1:]):
            suffixes.append(body[1:] + slash)
        else:
            regex = _regex(body)
            if regex:
                (folder_globs if slash else globs).append(regex)
    return _Run(negated, frozenset(names), frozenset(paths), tuple(suffixes), tuple(globs), tuple(folder_globs))


def _any_of(globs: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(globs), re.DOTALL) if globs else None


def _regex(body: str) -> str:
    """A regular expression for a path. Empty for a malformed pattern."""
    out = "" if "/" in body else "(?:.*/)?"
    body = body.removeprefix("/")
    at = 0
    while at < len(body):
        char = body[at]
        stars = _STARS.match(body, at)
        if stars and (at == 0 or body[at - 1] == "/"):
            if stars.end() == len(body):  # everything inside; a lone ``**`` is everything
                return out + ".+"
            out += "(?:.*/)?"
            at = stars.end() + 1
            continue
        at += 1
        if char == "*":
            while body[at : at + 1] == "*":
                at += 1
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "\\":
            if at == len(body):
                return ""
            out += re.escape(body[at])
            at += 1
        elif char == "[":
            found = _bracket(body, at)
            if found is None:
                return ""
            group, at = found
            out += group
        else:
            out += re.escape(char)
    return out


def _bracket(part: str, at: int) -> tuple[str, int] | None:
    """A bracket expression that starts before ``at``, and where it ends; None when it never does."""
    inverted = part[at : at + 1] in ("!", "^")
    at += inverted
    items: list[str] = []
    first = True
    while True:
        if at >= len(part):
            return None
        char = part[at]
        if char == "]" and not first:
            break
        first = False
        if part.startswith("[:", at):
            end = part.find(":]", at + 2)
            if end < 0 or part[at + 2 : end] not in _POSIX_CLASSES:
                return None
            items.append(_POSIX_CLASSES[part[at + 2 : end]])
            at = end + 2
            continue
        if char == "\\":
            at += 1
            if at >= len(part):
                return None
            char = part[at]
        at += 1
        high = char
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("", "]"):
            at += 1
            high = part[at]
            if high == "\\":
                at += 1
                if at >= len(part):
                    return None
                high = part[at]
            at += 1
        if char <= high:
            items.append(f"{re.escape(char)}-{re.escape(high)}")
    group = "".join(items)
    if inverted:
        return (f"[^/{group}]", at + 1)
    return (f"(?:(?!/)[{group}])" if group else "(?!)", at + 1)
