"""The README tells the truth: its commands run, and print what it says they print."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from readme_blocks import README, ROOT, RULES, Block, blocks, matches, rules_table, run

from cachelint import cli
from cachelint.config import Configs

TEXT = README.read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_console_block_is_understood() -> None:
    assert len(BLOCKS) == TEXT.count("```console") >= 5
    assert sum(block.needs_network for block in BLOCKS) == 2


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if not block.needs_network], ids=lambda block: block.command
)
def test_a_command_prints_what_the_readme_says(block: Block) -> None:
    assert block.output, "run `python tests/readme_blocks.py`"
    assert matches(block.output, run(block.command)), "run `python tests/readme_blocks.py` and read the diff"


def test_the_first_command_does_the_main_job() -> None:
    """Its install step is checked by the packaging tests; what follows the step runs here."""
    first = next(block for block in BLOCKS if block.needs_network)
    venv, install, audit = first.command.split(" && ")
    assert venv == "python3 -m venv .venv"
    assert install.split() == [".venv/bin/pip", "install", "-q", "."]
    out = run(audit.removeprefix(".venv/bin/"))
    lines = out.splitlines()
    assert lines[0].startswith("| Type")
    assert first.output.count("\n") >= 5
    assert matches(first.output, out)
    assert re.match(r"\d+ types, \d+ flagged", lines[-1])


def test_the_second_command_passes_the_tests() -> None:
    """Its extras exist, it is the command of CI, and these tests are what it collects."""
    second = [block for block in BLOCKS if block.needs_network][1]
    install, tests = second.command.split(" && ")
    (extras,) = re.findall(r"\.\[(.*?)\]", install)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    command = tests.removeprefix(".venv/bin/")
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert shlex.split(command)[:3] == ["python", "-m", "pytest"]


def test_the_example_is_the_file_that_the_commands_read() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert example == (ROOT / "docs" / "example.py").read_text(encoding="utf-8")


def test_the_table_of_rules_is_the_catalogue() -> None:
    (table,) = RULES.findall(TEXT)
    assert table == rules_table(), "run `python tests/readme_blocks.py`"


def test_the_configuration_is_accepted(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(example)
    config = Configs(str(tmp_path)).at(str(tmp_path))
    assert config.path is not None
    assert config.settings.dialects[0].bases == ("mylib.ops.Operator",)
    assert config.settings.contract.module == "mylib.memory"


def test_inline_commands_exist() -> None:
    """Every `cachelint something` in running text names a command and options that it has."""
    mentioned = set(re.findall(r"`(cachelint [a-z][^`]*)`", TEXT))
    assert len(mentioned) > 8
    for line in mentioned:
        words = shlex.split(line)[1:]
        context = cli.root.make_context("cachelint", [words[0]], resilient_parsing=True)
        command = cli.root.get_command(context, words[0])
        assert command is not None, line
        known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        for word in words[1:]:
            assert not word.startswith("-") or word.split("=")[0] in known, (line, word)


def test_it_warns_of_the_other_package() -> None:
    assert PROJECT["name"] == "torch-cachelint"
    assert "don't `pip install cachelint`" in TEXT


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_hooks_run_commands_that_exist() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    ids = re.findall(r"^- id: (\S+)$", text, re.MULTILINE)
    assert ids == ["cachelint", "cachelint-fix", "cachelint-audit"]
    for name in ids:
        assert name in TEXT
    for entry in re.findall(r"^  entry: (.+)$", text, re.MULTILINE):
        words = entry.split()
        context = cli.root.make_context("cachelint", [words[1]], resilient_parsing=True)
        command = cli.root.get_command(context, words[1])
        assert command is not None
        known = {flag for option in command.params for flag in option.opts}
        assert set(words[2:]) <= known
