"""The command line: one module a command, found by its name and imported when it is asked for.

A module without a leading underscore is a command when it has ``command``, a :class:`click.Command` whose function
returns an exit status. Nothing at the top of such a module may import more than click and the standard library.

Exit statuses: 0 clean, 1 findings, 2 usage or configuration error, 3 some file could not be read or parsed.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import cast

import click

from cachelint import __version__
from cachelint.cli._status import INTERRUPTED, PIPE_CLOSED, USAGE, PipeClosed, UsageProblem


class Commands(click.Group):
    """The commands of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names from the folder's listing."""
        found = (module.name for module in pkgutil.iter_modules(__path__))
        return sorted(name for name in found if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__name__}.{cmd_name}")
        return cast(click.Command, module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; a near miss is suggested."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(known)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 clean, 1 findings, 2 usage or configuration error, 3 some file could not be read.",
)
@click.version_option(__version__, "-V", "--version", message="cachelint %(version)s")
def root() -> None:
    """Find tensors that forward leaves behind for backward without the save-for-backward contract."""


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status. Whatever a person did wrong is one line on stderr."""
    _open_closed_streams()
    # What the encoding can't say (a file name of raw bytes, too) is escaped; in JSON the escape is JSON's own.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = root.main(args=list(argv), prog_name="cachelint", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        _complain(error.format_message())
        return USAGE
    except UsageProblem as error:
        _complain(str(error))
        return USAGE
    except FileNotFoundError:
        # Anything relative needs the working directory; only what does without it works where it was removed.
        if not _is_homeless():
            raise
        _complain("the working directory is gone: change to one that exists")
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (PipeClosed, BrokenPipeError):
        from cachelint.cli._console import silence_stdout

        silence_stdout()
        return PIPE_CLOSED


def _open_closed_streams() -> None:
    """Put the null device in the place of a standard stream that was closed before Python started (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def _is_homeless() -> bool:
    """Whether the working directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _complain(message: str) -> None:
    from cachelint.cli._console import tell

    tell("cachelint: error: " + " ".join(message.split()))
