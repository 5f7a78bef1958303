"""Where words go: results to stdout (or a file), messages to stderr, colour only where a terminal shows it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from cachelint.cli._status import PipeClosed, UsageProblem
from cachelint.report import Style

CHOICES = ("auto", "always", "never")


def wants_colour(stream: TextIO, choice: str) -> bool:
    """Whether to colour a stream: the option first, then NO_COLOR and FORCE_COLOR, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def style(*, colour: str, to_file: bool = False, show_all: bool = False, title: str = "cachelint audit") -> Style:
    """The style of a report on stdout, or in a file."""
    return Style(
        colour=colour == "always" if to_file else wants_colour(sys.stdout, colour),
        width=shutil.get_terminal_size((120, 40)).columns,
        show_all=show_all,
        title=title,
    )


def write(pieces: Iterable[str], output_file: str | None = None) -> None:
    """Write a report. Raises UsageProblem when the file can't be written, PipeClosed when the reader left."""
    if output_file is None:
        try:
            for piece in pieces:
                sys.stdout.write(piece)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise PipeClosed from error
        except OSError as error:
            silence_stdout()
            raise UsageProblem(f"standard output: can't be written: {error.strerror or error}") from error
        return
    not_over_source(output_file)
    try:
        with open(output_file, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.writelines(pieces)
    except OSError as error:
        raise UsageProblem(f"{output_file}: can't be written: {error.strerror or error}") from error


def not_over_source(target: str) -> None:
    """Raise UsageProblem for a target with the name of source code: a path too many after ``-o`` would be gone."""
    if target.endswith((".py", ".pyi", ".ipynb")):
        raise UsageProblem(f"{target}: is named like source code, which a report must not replace")


def write_bytes(content: bytes) -> None:
    """Write to stdout what need not be text in its encoding. Raises as :func:`write` does."""
    sys.stdout.flush()
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:  # a stand-in for a stream
        write([content.decode("utf-8", "replace")])
        return
    try:
        raw.write(content)
        raw.flush()
    except BrokenPipeError as error:
        raise PipeClosed from error
    except OSError as error:
        silence_stdout()
        raise UsageProblem(f"standard output: can't be written: {error.strerror or error}") from error


def silence_stdout() -> None:
    """Let whatever is still buffered for stdout go nowhere: Python flushes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(message: str) -> None:
    """Say something to the person, on stderr, on one line."""
    from cachelint.report.text import printable

    sys.stderr.write(printable(message) + "\n")
    sys.stderr.flush()
