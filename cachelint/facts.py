"""What verdicts ask of a project as a whole, so that the cache knows when an answer may have changed.

A verdict mostly rests on files that resolution leads to, and records them. A few questions go to every file instead:
who calls ``X.apply``, who derives from ``X``, has any class called ``B`` a backward, who mentions a field or a helper.
:func:`stated` is what a file has to say on the first three, :func:`words` everything that it mentions, :func:`asked`
what the verdicts on a file want to know. Where they meet in a file that was changed or added, or what was stated in a
file that was changed or removed, the verdict is made anew.

A new search through all files of a project needs its words here, and puts the file that settles it among the used ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_CLASS: Final = re.compile(rb"class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?")
_APPLY: Final = re.compile(rb"\.\s*apply\b")
_DEF: Final = re.compile(rb"def[ \t]+(\w+)")  # beginning with a literal, which the search can jump to
_EVERYWHERE: Final = frozenset(
    {"__init__", "apply", "backward", "forward", "forward_cpu", "forward_gpu", "jvp", "setup_context"}
)
"""Methods whose callers nobody looks for by name."""
_LAST_WORD: Final = re.compile(rb"(\w+)\s*\Z")
_WORDS: Final = bytes(code if chr(code).isalnum() or code == 95 or code >= 128 else 32 for code in range(256))
_BEFORE: Final = 80
"""How many bytes before ``.apply`` its class may be named."""


def stated(raw: bytes) -> frozenset[str]:
    """The statements of one file: ``define X``, ``derive X``, ``apply X``."""
    found: set[str] = set()
    for name, bases in _classes(raw):
        found.add(f"define {name}")
        found.update(f"derive {base}" for base in bases)
    if b"apply" in raw:
        for match in _APPLY.finditer(raw):
            word = _LAST_WORD.search(raw[max(0, match.start() - _BEFORE) : match.start()])
            if word:
                found.add(f"apply {_text(word[1])}")
    return frozenset(found)


def words(raw: bytes) -> frozenset[str]:
    """A statement ``word w`` for every word of a file."""
    return frozenset(f"word {word}" for word in _words(raw))


def defined(raw: bytes) -> frozenset[str]:
    """The names of all classes of a file, and of their bases."""
    return frozenset(name for own, bases in _classes(raw) for name in (own, *bases))


def asked(raw: bytes, ancestors: Iterable[str], fields: Iterable[str]) -> frozenset[str]:
    """The statements that would matter to the verdicts on a file.

    ``ancestors`` are the names of classes that its classes may derive from, by whatever way, ``fields`` the names of
    the attributes whose readers matter.
    """
    found: set[str] = {f"define {name}" for name in ancestors}
    for name, bases in _classes(raw):
        found |= {f"define {name}", f"derive {name}", f"apply {name}"}
        found.update(f"define {base}" for base in bases)
    helpers = {_text(name) for name in _DEF.findall(raw)}
    found.update(f"word {word}" for word in (*fields, *(helpers - _EVERYWHERE)))
    return frozenset(found)


def _classes(raw: bytes) -> Iterable[tuple[str, set[str]]]:
    """Everything that looks like the head of a class, with the words of its bases."""
    at = raw.find(b"class")
    while at >= 0:
        match = _CLASS.match(raw, at)
        if match:
            yield _text(match[1]), _words(match[2] or b"")
        at = raw.find(b"class", at + 5)


def _words(raw: bytes) -> set[str]:
    return {_text(word) for word in raw.translate(_WORDS).split()}


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
