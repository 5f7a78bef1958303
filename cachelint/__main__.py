"""The command: ``cachelint`` and ``python -m cachelint``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; the exit status."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        # Editors and hooks ask this all the time; it needs no command line parser.
        from cachelint import __version__

        print(f"cachelint {__version__}")
        return 0
    try:
        from cachelint.cli import run

        return run(arguments)
    except KeyboardInterrupt:  # while it is imported; from then on `run` sees to it
        return 130


if __name__ == "__main__":
    sys.exit(main())
