"""What other linters say about the hazards that cachelint looks for: one row a case.

    python benchmarks/other_tools.py CASES --torchfix PATH [--ruff PATH] [--pylint PATH]

CASES is a folder of pairs: ``name.py``, a small input, and ``name.json`` with the right answer beside it:
``{"expect": {"fields": {field: class}, "report": [field, ...], "codes": [{"code": [code, ...], "names": [...]}, ...]}}``.
Where a file has no answer beside it, its comments ``# expect: CODE`` are the answer, as in ``fixtures/cases``.

A finding of another tool counts as being about the hazard when it stands on a line of the statements that carry the
expected findings (of the first line of a type for what concerns the whole type), and its rule is about autograd state or the
lifetime of a tensor. No rule is excluded by its name beforehand: all rules that fired on those lines are printed with what
they say, and RELEVANT below names those that count. Style, typing, naming, docstrings and the like don't.

Each tool must find a fault of its own kind in a control file first, so that silence means something.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RELEVANT: dict[str, str] = {}
"""Rules of other tools that are about autograd state or lifetime, with the reason. None that fired is."""

CONTROL = """import os

import torch

model = torch.load("weights.pt")
solution = torch.lstsq(model, model)
print(undefined_name)
"""


@dataclass(frozen=True)
class Found:
    """One finding of a tool: the rule, the line and what it says."""

    rule: str
    line: int
    text: str


def run(command: list[str]) -> str:
    """Standard output; linters end with a status other than 0 when they find something."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Traceback" in done.stderr:
        sys.exit(f"{command[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def cachelint(path: Path) -> list[dict[str, Any]]:
    """The findings of this project's own linter, rules that are off by default included."""
    command = [sys.executable, "-m", "cachelint", "check", "--isolated", "--no-cache", "--output-format", "json"]
    return list(json.loads(run([*command, "--extend-select", "CL215", str(path)]))["findings"])


def torchfix(tool: str) -> Callable[[Path], list[Found]]:
    """TorchFix with all of its rules."""
    return lambda path: [
        Found(match[2], int(match[1]), match[3])
        for match in re.finditer(r":(\d+):\d+: (TOR\d+) (.*)", run([tool, "--select", "ALL", str(path)]))
    ]


def ruff(tool: str, *options: str) -> Callable[[Path], list[Found]]:
    """Ruff without configuration."""
    command = [tool, "check", "--isolated", "--no-cache", "--output-format", "json", *options]
    return lambda path: [
        Found(f["code"] or "syntax", f["location"]["row"], f["message"]) for f in json.loads(run([*command, str(path)]))
    ]


def pylint(tool: str) -> Callable[[Path], list[Found]]:
    """Pylint with its own defaults."""
    command = [tool, "--rcfile=/dev/null", "--output-format=json"]
    return lambda path: [
        Found(f["message-id"], f["line"], f["message"]) for f in json.loads(run([*command, str(path)]))
    ]


def hidden(answer: dict[str, Any]) -> str:
    """What the answer says that a tool should report."""
    expect = answer["expect"]
    fields = [f"`{field}` {expect['fields'].get(field, '')}".strip() for field in expect["report"]]
    codes = ["/".join(c["code"]) + (f" `{', '.join(c['names'])}`" if "names" in c else "") for c in expect["codes"]]
    return "; ".join(fields + codes) or "nothing"


def answer_of(path: Path) -> dict[str, Any]:
    """The answer beside a case, or the one in its comments."""
    beside = path.with_suffix(".json")
    if beside.exists():
        return dict(json.loads(beside.read_text(encoding="utf-8")))
    marked = re.findall(r"# expect: (CL\d+)", path.read_text(encoding="utf-8"))
    codes = [{"code": [code]} for code in dict.fromkeys(marked)]
    return {"title": "", "expect": {"fields": {}, "report": [], "codes": codes}}


def expected_lines(path: Path, answer: dict[str, Any], own: list[dict[str, Any]]) -> set[int]:
    """The lines of the statements on which the expected findings stand, as cachelint places them."""
    expect = answer["expect"]
    codes = {code for entry in expect["codes"] for code in entry["code"]}
    hits = [f for f in own if f["code"] in codes or f["field"] in expect["report"]]
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if any(f["line"] in span for f in hits):
                lines.update(span)
    return lines | {f["line"] for f in hits}


def main() -> None:
    """Print the table, the rules that fired on the lines in question, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--torchfix", default="torchfix")
    parser.add_argument("--ruff", default="ruff")
    parser.add_argument("--pylint", default="pylint")
    args = parser.parse_args()
    others = {
        "TorchFix": torchfix(args.torchfix),
        "Ruff": ruff(args.ruff),
        "Ruff, all rules": ruff(args.ruff, "--select", "ALL", "--preview"),
        "pylint": pylint(args.pylint),
    }
    with tempfile.TemporaryDirectory() as folder:
        control = Path(folder, "control.py")
        control.write_text(CONTROL, encoding="utf-8")
        for name, tool in others.items():
            if not tool(control):
                sys.exit(f"{name} says nothing about the control file: it doesn't run as it should")
    print("| case | hidden there | cachelint | " + " | ".join(others) + " |")
    print("|:--|:--|:--|" + "--:|" * len(others))
    near: dict[str, dict[str, str]] = {name: {} for name in others}
    seen_in: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    about: Counter[str] = Counter()
    hazards = quiet = silent = 0
    for path in sorted(args.cases.glob("*.py")):
        answer = answer_of(path)
        own = cachelint(path)
        lines = expected_lines(path, answer, own)
        asked = bool(answer["expect"]["report"] or answer["expect"]["codes"])
        told = ", ".join(sorted({f["code"] for f in own})) or "-"
        row = []
        for name, tool in others.items():
            found = tool(path)
            totals[name] += len(found)
            here = [f for f in found if f.line in lines]
            near[name].update((f.rule, f.text) for f in here)
            seen_in.update((name, rule) for rule in {f.rule for f in here})
            counted = [f for f in here if f.rule in RELEVANT]
            about[name] += bool(counted)
            row.append(f"{len(counted)} of {len(found)}")
        if asked:
            hazards += 1
            about["cachelint"] += bool(lines)
        else:
            quiet += 1
            silent += not own
        totals["cachelint"] += len(own)
        number = path.stem.partition("_")[0]
        print(f"| {number} {answer.get('title', '')} | {hidden(answer)} | {told} | " + " | ".join(row) + " |")
    print(
        f"\n{hazards} cases with a hazard, {quiet} without one. Cases in which a tool says something about the hazard:"
    )
    for name in ("cachelint", *others):
        print(f"  {name}: {about[name]} of {hazards} ({totals[name]} findings in all)")
    print(
        f"cachelint is silent in {silent} of the {quiet} without one.\n\nRules that fired on the lines in question, in how many cases:"
    )
    for name, rules in near.items():
        print(f"  {name}:" + ("" if rules else " none"))
        for rule, text in sorted(rules.items()):
            print(f"    {rule} in {seen_in[name, rule]}: {text.splitlines()[0][:90]}")


if __name__ == "__main__":
    main()
