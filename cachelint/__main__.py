"""The command: ``cachelint`` and ``python -m cachelint``."""

from __future__ import annotations

import gc
import os
import sys

_BRIEF = frozenset(("audit", "check", "explain", "fix", "rule"))
"""Commands that end before garbage matters, and run nobody else's code."""
_DEEP = 4_000
"""How deep the analysis may recurse: a chain of 500 operators or branches is read, and the stack still holds."""


def main() -> None:
    """Run the command line and leave with its exit status."""
    status = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed: Python's own way out knows what to do
        sys.exit(status)
    # What a run read and made is the system's to take back at once; freeing it piece by piece takes as long as a report.
    os._exit(status)


def run() -> int:
    """Run the command line; the exit status."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        # Editors and hooks ask this all the time; it needs no command line parser.
        from cachelint import __version__

        print(f"cachelint {__version__}")
        return 0
    if arguments and arguments[0] in _BRIEF:
        gc.disable()  # going through all that a run has parsed takes longer than its report
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))
    try:
        from cachelint.cli import run as run_command

        return run_command(arguments)
    except KeyboardInterrupt:  # while it is imported; from then on `run` sees to it
        return 130


if __name__ == "__main__":
    main()
