"""The command line's frame: discovery, help, usage errors, pipes, and what it costs to start."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cachelint import __version__, cli

COMMAND = (sys.executable, "-m", "cachelint")


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def names() -> list[str]:
    return cli.root.list_commands(click.Context(cli.root))  # type: ignore[attr-defined, no-any-return]


def test_commands_are_discovered() -> None:
    assert {"check", "audit", "fix", "explain", "rule", "config", "clean", "server"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_each_command_is_a_click_command_with_help(name: str) -> None:
    command = importlib.import_module(f"cachelint.cli.{name}").command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option)), "an option without help"


def test_version() -> None:
    for flag in ("--version", "-V"):
        assert run(flag).stdout == f"cachelint {__version__}\n"


def test_version_is_quick() -> None:
    """Under 100 ms, in processor time, since the machine has other work too; the best of three."""
    assert min(processor_time("--version") for _ in range(3)) < 0.1


def processor_time(*arguments: str) -> float:
    before = os.times()
    run(*arguments)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from cachelint.cli import run; run(['--help']); "
        "print(sorted({'torch', 'libcst', 'rich', 'numpy', 'pygls', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("chekc",), "there is no command 'chekc'; did you mean 'check'?"),
        (("zzz",), "there is no command 'zzz'; the commands are audit, check, "),
        (("--nonsense",), "No such option"),
        (("rule", "CL999"), "there is no rule 'CL999'"),
        (("rule", "CL101", "--all"), "give a rule or --all, not both"),
        (("rule", "--format", "yaml"), "'yaml' is not one of"),
        (("check", "--output-format", "yaml"), "'yaml' is not one of"),
        (("audit", "--jobs", "zero"), "--jobs"),
        (("explain", "nowhere"), "FILE:LINE"),
        (("audit", ""), "a path is empty"),
        (("audit", "--config"), "requires an argument"),
    ],
)
def test_a_usage_error_is_one_line_and_status_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("cachelint: error: ")
    assert complaint in done.stderr


def test_no_command_shows_the_help() -> None:
    done = run()
    assert done.returncode == 2
    assert "Commands:" in done.stderr


def test_a_closed_pipe_is_silent() -> None:
    """`cachelint rule --all | head`, with a reader that leaves at once."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "rule", "--all"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "rule", "--all"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("cachelint: error: standard output: can't be written")


@pytest.mark.parametrize("command", ["check", "audit", "fix", "config", "clean", "explain x.py:1", "check -"])
def test_a_working_directory_that_is_gone_is_one_line(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "$1" && rmdir "$1" && shift && exec "$@" {command}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "cachelint: error: the working directory is gone: change to one that exists\n"


@pytest.mark.parametrize(("closed", "status"), [(">&-", 1), ("2>&-", 1), ("<&-", 1), ("- <&-", 0), (">&- 2>&-", 1)])
def test_streams_that_are_closed_change_no_status(tmp_path: Path, closed: str, status: int) -> None:
    (tmp_path / "ok.py").write_text(Path(__file__).parents[1].joinpath("docs/example.py").read_text())
    path = "" if closed.startswith("-") else "ok.py"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" check --no-cache {path} {closed}', "sh", *COMMAND], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
