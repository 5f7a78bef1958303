"""The commands in the README and what they print.

``python tests/readme_blocks.py`` writes their output anew: read the diff. A console block starts with ``$ command``;
what follows is its output, in which ``[...]`` stands for any lines or any part of one. The table between the two
``rules`` marks comes from the catalogue.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n\$ (?P<command>.*)\n(?P<output>(?:(?!```).*\n)*)```$", re.MULTILINE)
RULES = re.compile(r"(?<=<!-- rules -->\n)(.*?)(?=<!-- /rules -->)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One console block."""

    command: str
    output: str

    @property
    def needs_network(self) -> bool:
        """Whether it makes an environment or installs into one."""
        return "pip install" in self.command


def blocks(text: str) -> list[Block]:
    """The console blocks of a text, in order."""
    return [Block(match["command"], match["output"]) for match in BLOCK.finditer(text)]


def run(command: str) -> str:
    """What a ``cachelint`` command prints on stdout, in the checkout, with this interpreter's cachelint."""
    words = shlex.split(command)
    assert words[0] == "cachelint", command
    env = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "CACHELINT_OUTPUT_FORMAT")}
    done = subprocess.run(
        [sys.executable, "-m", "cachelint", *words[1:]], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def matches(expected: str, output: str) -> bool:
    """Whether an output is the expected one, ``[...]`` standing for anything."""
    parts = map(re.escape, expected.split("[...]"))
    return re.fullmatch(".*".join(parts), output, re.DOTALL) is not None


def rules_table() -> str:
    """The README's table of rules."""
    from cachelint.catalogue import load_all
    from cachelint.report.markdown import cell, table

    rows = [(rule.code, rule.name, cell(rule.summary)) for rule in load_all()]
    return "\n" + "".join(table(("Code", "Name", "What it finds"), rows)) + "\n"


def refreshed(text: str) -> str:
    """The text with every output and the table written anew; an output with a gap in it is left alone."""

    def block(match: re.Match[str]) -> str:
        found = Block(match["command"], match["output"])
        if found.needs_network or "[...]" in found.output:
            return match[0]
        return f"```console\n$ {found.command}\n{run(found.command)}```"

    return RULES.sub(lambda _: rules_table(), BLOCK.sub(block, text))


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
