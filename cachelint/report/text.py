"""Text for terminals and pipes: what is safe to print, how wide it is, and the colours."""

from __future__ import annotations

import unicodedata

_RESET = "\x1b[0m"
_CODES = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "cyan": "\x1b[36m",
}

CLASS_COLOURS = {"SAFE": "green", "RECOMPUTE": "yellow", "SAVE": "red"}
"""The colour of a class, on terminals and in the HTML report."""

TAB = 4


def paint(text: str, *styles: str, on: bool) -> str:
    """``text`` in the styles, or as it is when colour is off."""
    return "".join(_CODES[style] for style in styles) + text + _RESET if on and text else text


def printable(text: str) -> str:
    """``text`` on one line, with nothing in it that could move a cursor or change a colour."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        " " if char in "\t\n\r\f\v" else char if _shows(char) else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def _shows(char: str) -> bool:
    return (
        unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        and char not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def cell_width(char: str, column: int = 0) -> int:
    """How many columns a character takes when it starts at a 0-based column."""
    if char == "\t":
        return TAB - column % TAB
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def width(text: str) -> int:
    """How many columns a line takes."""
    column = 0
    for char in text:
        column += cell_width(char, column)
    return column


def pad(text: str, columns: int) -> str:
    """``text`` filled up with blanks to a number of columns."""
    return text + " " * max(0, columns - width(text))


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 type``, ``2 types``."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph, on one line."""
    paragraph = " ".join(text.strip().split("\n\n", 1)[0].split())
    for position, char in enumerate(paragraph):
        if (
            char in ".!?"
            and paragraph[position + 1 : position + 2] in ("", " ")
            and not _abbreviation(paragraph[: position + 1])
        ):
            return paragraph[: position + 1]
    return paragraph


def _abbreviation(text: str) -> bool:
    return text.endswith(("e.g.", "i.e.", "etc.", "cf.", "vs."))
