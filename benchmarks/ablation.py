"""What each source of evidence adds: the scores on labelled fields with one source after the other switched off.

    python benchmarks/ablation.py --corpus DIR --labels FILE.jsonl [--only NAME ...]

DIR has one folder a repository; FILE has one labelled field a line: repo, path, cls, line, field, class, read, conf. The
table has a row for the whole engine and one for it without each source: precision, recall and F1 of RECOMPUTE or SAVE
against SAFE over the fields that backward reads, the share of right classes, and the fields whose storage stays unknown.
Labels of low confidence are left out. A switch replaces one function of the engine while its row is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cachelint.classify import type_report
from cachelint.collect.types import find
from cachelint.engine import wants
from cachelint.index.project import Project
from cachelint.infer import analysis, callers
from cachelint.infer.annotations import Reader
from cachelint.infer.machine import Machine
from cachelint.infer.values import HOST_VALUE, Value
from cachelint.model import FieldReport
from cachelint.settings import Settings

Label = dict[str, Any]
Key = tuple[str, str, str]


def nothing(*_args: object, **_kwargs: object) -> None:
    """Stands in for a function that notes evidence."""


def no_name(_name: str) -> int:
    """Names suggest nothing."""
    return 0


def not_followed(machine: Machine, func: Any, args: list[Value], kwargs: dict[str, Value], node: Any, *_: Any) -> Value:
    """A project function that is not looked into."""
    return machine.unfollowed(args, kwargs, node)


def launched_only(_machine: Machine, *_: Any) -> Value:
    """A launch that fills nothing and shows nothing."""
    return HOST_VALUE


def forward_only(machine: Machine, *rest: Any) -> None:
    """Evidence counts outside backward only."""
    if machine.log.phase != "backward":
        NOTE(machine, *rest)


def one_pass(_first: Any) -> bool:
    """The first interpretation is the last."""
    return False


NOTE = Machine.note
SWITCHES: dict[str, tuple[tuple[object, str, Callable[..., object]], ...]] = {
    "callers of apply": ((callers, "note_callers", nothing),),
    "annotations": ((Reader, "read", nothing),),
    "helpers followed": ((Machine, "call_function", not_followed),),
    "constructors, inner functions": ((Machine, "find_method", nothing),),
    "kernel launches": ((Machine, "launch", launched_only),),
    "unseen code fills buffers": ((Machine, "fill_opened", nothing),),
    "uses in backward, gradients": ((analysis, "_note_gradients", nothing), (Machine, "note", forward_only)),
    "all uses": ((analysis, "_note_gradients", nothing), (Machine, "note", nothing)),
    "second pass": ((analysis, "_undecided", one_pass),),
    "names as tie-breakers": ((analysis, "suggests", no_name),),
}


@contextlib.contextmanager
def without(source: str) -> Iterator[None]:
    """Switch one source of evidence off."""
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in SWITCHES.get(source, ()):
            stack.enter_context(patch.object(owner, name, stand_in))
        yield


def verdicts(folder: Path) -> dict[Key, list[tuple[int, FieldReport]]]:
    """Every field of one repository by path, class name and field, with the line of its class."""
    files = sorted(str(path) for path in folder.rglob("*.py"))

    def read(path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8-sig", errors="replace")
        except OSError:
            return None

    project = Project(str(folder), files, read, lambda path: Path(path).read_bytes())
    settings = Settings()
    found: dict[Key, list[tuple[int, FieldReport]]] = defaultdict(list)
    for path in files:
        module = project.module(path) if wants(Path(path).read_bytes(), settings) else None
        if module is None:
            continue
        with contextlib.suppress(SyntaxError):
            for unit in find(module, project, settings):
                report = type_report(analysis.analyse(unit, project), settings)
                for field in report.fields:
                    key = (os.path.relpath(path, folder), report.type.rpartition(".")[2], field.field)
                    found[key].append((report.line, field))
    return found


def score(corpus: Path, labels: list[Label]) -> Counter[str]:
    """Counts over all labelled fields."""
    count: Counter[str] = Counter()
    for repo in sorted({label["repo"] for label in labels}):
        found = verdicts(corpus / repo)
        for label in (x for x in labels if x["repo"] == repo):
            hits = found.get((label["path"], label["cls"], label["field"]), [])
            if not hits:
                count["absent"] += 1
                continue
            field = min(hits, key=lambda hit: abs(hit[0] - label["line"]))[1]
            count["unknown"] += field.storage.value == "unknown"
            if not label["read"]:
                continue
            truth, got = label["class"] != "SAFE", field.cls.value != "SAFE"
            count["tp"] += truth and got
            count["fp"] += got and not truth
            count["fn"] += truth and not got
            count["read"] += 1
            count["class"] += field.cls.value == label["class"]
    return count


def row(name: str, count: Counter[str], seconds: float) -> str:
    """One line of the table."""
    precision = count["tp"] / max(count["tp"] + count["fp"], 1)
    recall = count["tp"] / max(count["tp"] + count["fn"], 1)
    both = 2 * precision * recall / max(precision + recall, 1e-9)
    right = count["class"] / max(count["read"], 1)
    cells = [
        f"{precision:.3f}",
        f"{recall:.3f}",
        f"{both:.3f}",
        f"{right:.3f}",
        str(count["unknown"]),
        f"{seconds:.1f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="names of sources; all of them by default")
    args = parser.parse_args()
    lines = args.labels.read_text(encoding="utf-8").splitlines()
    labels = [label for label in (json.loads(line) for line in lines if line.strip()) if label.get("conf") != "low"]
    print("| without | precision | recall | F1 | class | unknown | s |")
    print("|:--|--:|--:|--:|--:|--:|--:|")
    for source in ["(nothing)", *(args.only or SWITCHES)]:
        start = time.process_time()
        with without(source):
            count = score(args.corpus, labels)
        print(row(source, count, time.process_time() - start), flush=True)


if __name__ == "__main__":
    main()
