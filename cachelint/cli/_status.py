"""Exit statuses, and the error that means the second of them."""

from __future__ import annotations

from collections.abc import Sized

CLEAN = 0
FINDINGS = 1
USAGE = 2
UNREADABLE = 3
INTERRUPTED = 130
PIPE_CLOSED = 141


class PipeClosed(Exception):
    """The reader of stdout went away. Not the built-in BrokenPipeError, which click would turn into status 1."""


class UsageProblem(Exception):
    """Something that the person who typed the command has to change; the message is one line."""


def status(findings: Sized, errors: Sized) -> int:
    """The status of a finished run; an unreadable file outweighs findings."""
    if errors:
        return UNREADABLE
    return FINDINGS if findings else CLEAN
