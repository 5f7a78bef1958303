"""Fix copies of whole packages, and count what was fixed safely, fixed unsafely and refused, by reason.

    python benchmarks/fix_packages.py FOLDER... [--codes CL101,CL102] [--contract MODULE] [--time] [--out FILE [--append]]

Each folder is copied first; the original is not touched. For each package the script makes sure that every changed file
still compiles, that text outside the functions concerned is what it was, byte for byte, that a second check finds
nothing that could still be fixed safely, and that a second fix changes nothing. With ``--contract`` each copy is told
which module layers get the save-for-backward contract from. With ``--time`` it also measures a cold check and a cold fix
of the whole folder as commands. With ``--out`` the tables are written to a file as well, with what the refusals mean.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cachelint.config import Configs
from cachelint.fix.api import FileFix, Summary, fix_findings
from cachelint.fix.edits import Span
from cachelint.model import Applicability, Finding
from cachelint.runner import Options, run

CODES = tuple(f"CL10{n}" for n in range(1, 8))
GONE = "gone with another fix"
MEANINGS = {
    GONE: "no plan of its own; no longer reported once the others were carried out",
    "accumulated gradient": "a `.grad` or `main_grad` that every backward adds to: the version check would stop the next one",
    "an array": "a NumPy array, which no save call takes",
    "called without apply": "code calls forward or backward with a ctx of its own, which need not know how to save",
    "changed in backward": "backward writes into an input that other calls share",
    "changed in place": "the array is changed after it was made, so making it again gives something else",
    "closure": "a function that was made in forward carries it",
    "cross-step": "it outlives the step; a saved tensor does not",
    "ctx escapes": "ctx is handed to, or returned to, code that can't be followed",
    "decorated": "a decorator stands between the inputs and a function node's forward",
    "derived elsewhere": "a class in another file derives from it",
    "generator state": "states of several generators, in whatever form they come",
    "in another file": "a helper in another file is given ctx and uses the attribute, or saves",
    "inherited": "forward or backward is inherited by a node or layer",
    "legacy style": "the instance style of old versions of PyTorch, which have no ctx",
    "may be a container": "by its name it is several things, and nothing shows which",
    "may be a host value": "a layer's field that is a number on some path",
    "mixed container": "nothing shows whether it is a list, a tuple or a dict, so it can't be built again",
    "nested container": "containers or objects with tensors inside a container",
    "name taken": "a name that the fix needs means something else there",
    "no contract": "chainer retains inputs and outputs, and it is neither",
    "no slice": "the code that makes it is not known to be pure and cheap",
    "made in different ways": "the forwards of a node make it in different ways",
    "not clean after the fix": "the fixed text was linted, and the finding was still there, or another had come",
    "object": "an object that owns tensors and is no plain dataclass",
    "object identity": "backward uses the very object (an attribute that somebody hung on it, a list that it fills)",
    "read after clean-up": "backward clears the attribute and reads it again",
    "read from outside": "code outside the class reads the attribute",
    "read in a helper": "a helper of backward reads it, and is called from elsewhere too",
    "retained in several ways": "the forwards of a node don't retain one fixed set of inputs",
    "saved in two functions": "two functions save tensors for the same backward",
    "self escapes": "a node or layer hands itself to other code",
    "set on some paths": "a node sets it on some paths only",
    "shared container": "a container of the module or of another object, which may change before backward",
    "side channel": "it travels outside ctx",
    "tabs": "a layer in a file that is indented with tabs",
    "tested for": "code asks whether the attribute is there, or is None",
    "two runs": "tensors are saved in runs of unknown length that can't be told apart",
    "used elsewhere": "another method of the node uses it",
    "workspace": "it lies in memory that other calls reuse",
    "written in a helper": "a helper writes it, and not surely once",
}


@dataclass
class Result:
    """What came of one package."""

    name: str
    findings: Counter[str] = field(default_factory=Counter)
    safe: int = 0
    unsafe: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    check_seconds: float = 0.0
    fix_seconds: float = 0.0


def copied(folder: Path, into: Path, contract: str = "") -> Path:
    """The Python files and notebooks of a folder, and its configuration, with a contract for layers if one is named."""
    target = into / folder.name
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".ipynb", ".toml") and path.is_file() and ".git" not in path.parts:
            new = target / path.relative_to(folder)
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new)
    if contract:
        config = target / "cachelint.toml"
        config.write_text(f'[contract]\nmodule = "{contract}"\nbase = "SaverAware"\nsave = "save_for_backward"\n')
    return target


def findings_of(folder: Path, codes: tuple[str, ...]) -> list[Finding]:
    """The findings of these rules, without the cache."""
    report = run(["."], Configs(str(folder)), Options(use_cache=False), cwd=str(folder))
    return [finding for finding in report.findings if finding.code in codes]


def fix_all(folder: Path, codes: tuple[str, ...], unsafe: bool) -> Summary:
    """Fix and write."""
    found = findings_of(folder, codes)
    return fix_findings(found, Configs(str(folder)), str(folder), unsafe=unsafe)


def outside(change: FileFix) -> str | None:
    """What changed outside the functions that the plans of a file name, and the imports that they edit: it must be
    nothing.

    The spans are those of the text that a plan was made for, so a file whose plans took several rounds is only held
    against the first lines and the last.
    """
    spans: list[Span] = [span for plan in change.fixed.applied for span in plan.scope]
    spans += [edit.span for plan in change.fixed.applied for edit in plan.edits]
    spans += [edit.span for edit in change.fixed.lent]
    before = change.source.text.splitlines(keepends=True)
    after = change.fixed.text.splitlines(keepends=True)
    first = min(span.line for span in spans) - 1
    last = max(span.end_line for span in spans)
    if before[:first] != after[:first]:
        return "lines above the first function changed"
    tail = before[last:]
    if tail and tail != after[-len(tail) :]:
        return "lines below the last function changed"
    return None


def examine(folder: Path, codes: tuple[str, ...], timed: bool, contract: str = "") -> Result:
    """Everything for one package."""
    result = Result(folder.name)
    with tempfile.TemporaryDirectory() as scratch:
        copy = copied(folder, Path(scratch), contract)
        if timed:
            result.check_seconds = seconds("check", copy, "--exit-zero", "--output-format", "json")
            result.fix_seconds = seconds("fix", copy, "--diff")
        found = findings_of(copy, codes)
        result.findings = Counter(finding.code for finding in found)
        originals = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        summary = fix_all(copy, codes, unsafe=False)
        result.safe = sum(len(plan.findings) for plan in summary.applied)
        result.unsafe = sum(len(plan.findings) for plan in summary.skipped)
        result.refused = Counter(refusal.kind for refusal in summary.refused)
        rest = len(found) - result.safe - result.unsafe - sum(result.refused.values())
        if rest > 0:
            result.refused[GONE] += rest
        changed = {copy / one.source.path for one in summary.changed}
        for path, raw in originals.items():
            if path not in changed and path.read_bytes() != raw:
                result.faults.append(f"{path.name}: changed without a plan")
        for one in summary.changed:
            path = copy / one.source.path
            try:
                compile(path.read_bytes(), str(path), "exec")
            except SyntaxError as error:
                result.faults.append(f"{one.source.path}: no longer compiles: {error}")
            fault = outside(one)
            if fault:
                result.faults.append(f"{one.source.path}: {fault}")
        result.faults += [f"{error.path}:{error.line}: {error.message}" for error in summary.errors]
        again = findings_of(copy, codes)
        left = [f for f in again if f.fix is not None and f.fix.applicability is Applicability.SAFE]
        barred = {(r.finding.path, r.finding.field) for r in summary.refused}
        result.faults += [
            f"{f.path}:{f.line}: {f.code} `{f.field}` could still be fixed"
            for f in left
            if (f.path, f.field) not in barred
        ]
        if fix_all(copy, codes, unsafe=False).changed:
            result.faults.append("a second fix changes something")
    return result


def seconds(command: str, folder: Path, *options: str) -> float:
    """How long a command takes on a folder, without the cache."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "cachelint", command, "--no-cache", "-q", *options, "."],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - start


def table(results: list[Result], timed: bool) -> list[str]:
    """A Markdown table, its totals, and the reasons of the refusals."""
    head = ["package", "findings", "safe", "unsafe", "refused", "safe share"]
    head += ["check s", "fix s"] if timed else []
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    total = Result("all")
    for one in results:
        total.findings += one.findings
        total.safe += one.safe
        total.unsafe += one.unsafe
        total.refused += one.refused
        lines.append(row(one, timed))
    lines.append(row(total, timed))
    if not total.refused:
        return lines
    lines += ["", "| refused because | findings |", "| --- | ---: |"]
    lines += [
        f"| {kind} | {count} |" for kind, count in sorted(total.refused.items(), key=lambda one: (-one[1], one[0]))
    ]
    return lines


HEAD = """\
# How much is fixed safely

A fix is *safe* when outputs, gradients and public attributes stay the same wherever the program was right before;
`cachelint fix` makes these without being asked. *Unsafe* ones need `--unsafe`; a *refused* finding is left alone with a
sentence that says why. The folders are packages and repositories as they were published.
"""


def page(before: str, command: str, lines: list[str]) -> str:
    """A page with the tables of one more run behind those that it has, and what the reasons in all of them mean."""
    text = (before or HEAD).partition("\n## What the reasons mean\n")[0].rstrip()
    text = "\n".join([text, "", f"    {command}", "", *lines, ""])
    cells = {line.split("|")[1].strip() for line in text.splitlines() if line.count("|") == 3}
    meanings = [f"- *{kind}*: {meaning}." for kind, meaning in MEANINGS.items() if kind in cells]
    return "\n".join([text, "## What the reasons mean", "", *meanings, ""])


def row(one: Result, timed: bool) -> str:
    """One line of the table."""
    count = sum(one.findings.values())
    share = f"{100 * one.safe / count:.0f} %" if count else ""
    cells = [one.name, str(count), str(one.safe), str(one.unsafe), str(sum(one.refused.values())), share]
    cells += [f"{one.check_seconds:.1f}", f"{one.fix_seconds:.1f}"] if timed else []
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Print the table; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--codes", default=",".join(CODES))
    parser.add_argument("--contract", default="", help="the module that layers get the contract from")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--out", type=Path, help="a page for the tables")
    parser.add_argument("--append", action="store_true", help="keep the tables that the page has")
    args = parser.parse_args()
    codes = tuple(args.codes.split(","))
    results = []
    for folder in args.folders:
        print(f"{folder.name} …", file=sys.stderr, flush=True)
        results.append(examine(folder.resolve(), codes, args.time, args.contract))
    lines = table(results, args.time)
    print(*lines, sep="\n")
    if args.out:
        options = [f"--contract {args.contract}"] if args.contract else []
        command = " ".join(["python benchmarks/fix_packages.py", *(one.name for one in results), *options])
        before = args.out.read_text() if args.append and args.out.exists() else ""
        args.out.write_text(page(before, command, lines))
    faults = [f"{one.name}: {fault}" for one in results for fault in one.faults]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
