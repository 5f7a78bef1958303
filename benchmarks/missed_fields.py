"""What backward reads of its receiver, by a plain search of the source, against the fields that the audit lists.

    python benchmarks/missed_fields.py REPOSITORY... [--classes N] [--seed 20261201] [--verbose]

The search knows nothing of the inference: it takes the attributes that the body of backward reads and that a method
other than the constructor sets, or puts something into. What it finds and the audit doesn't list as read is printed.
Children that a helper of the constructor makes turn up as well, and are no fields.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

GROWS = frozenset("append update extend add insert".split())


def audited(root: Path) -> list[dict[str, Any]]:
    """The types of one repository that have fields to judge."""
    command = [sys.executable, "-m", "cachelint", "audit", "--format", "json", "--no-cache", "."]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 3):
        sys.exit(f"{root}: {run.stderr.strip()}")
    return [kind for kind in json.loads(run.stdout)["types"] if kind["dialect"] != "trainer"]


@cache
def classes(path: Path) -> dict[str, ast.ClassDef]:
    """The classes of a file, by name; none where it cannot be parsed."""
    try:
        tree = ast.parse(path.read_text(errors="replace"))
    except SyntaxError:
        return {}
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@cache
def elsewhere(root: Path, name: str) -> ast.ClassDef | None:
    """A class of that name anywhere in the repository."""
    for path in sorted(root.rglob("*.py")):
        if f"class {name}" in path.read_text(errors="replace") and name in classes(path):
            return classes(path)[name]
    return None


def methods(root: Path, path: Path, line: int) -> dict[str, ast.FunctionDef]:
    """The methods of the class at a line, and those of its bases that it does not override."""
    own = classes(path)
    chain = [node for node in own.values() if node.lineno == line]
    for known in chain:
        for base in known.bases:
            name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
            if name and name not in ("Module", "object"):
                found = own.get(name) or elsewhere(root, name)
                if found is not None and found not in chain:
                    chain.append(found)
    table: dict[str, ast.FunctionDef] = {}
    for known in chain:
        for item in known.body:
            if isinstance(item, ast.FunctionDef):
                table.setdefault(item.name, item)
    return table


def kept(method: ast.FunctionDef) -> Iterator[str]:
    """The attributes that a method sets, or into which it puts something."""
    for node in ast.walk(method):
        target: ast.expr | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS:
            target = node.func.value
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute):
            yield target.attr


def wanted(table: dict[str, ast.FunctionDef]) -> set[str]:
    """The attributes that backward reads and that forward, or a helper, keeps."""
    backward = table.get("backward") or table.get("vjp")
    names = [a.arg for a in backward.args.args] if backward is not None else []
    if backward is None or not names:
        return set()
    receiver = names[1] if names[0] == "cls" or names[:2] == ["self", "ctx"] else names[0]
    reads = {
        node.attr
        for node in ast.walk(backward)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == receiver
    }
    entries = ("forward", "setup_context", "__call__")
    found = {
        name
        for method in table.values()
        if method.name in entries or (method.name.startswith("_") and method.name not in ("__init__", "__new__"))
        for name in kept(method)
    }
    return {name for name in reads & found if name not in table}


def main() -> None:
    """Print what is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--classes", type=int, default=0, help="how many classes to draw (default: all)")
    parser.add_argument("--seed", type=int, default=20261201)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    kinds = [(root.resolve(), kind) for root in sorted(args.roots) for kind in audited(root.resolve())]
    if args.classes:
        kinds = random.Random(args.seed).sample(kinds, min(args.classes, len(kinds)))
    total = missed = 0
    for root, kind in kinds:
        names = wanted(methods(root, root / kind["path"], kind["line"]))
        absent = names - {field["field"] for field in kind["fields"] if field["read"]}
        total, missed = total + len(names), missed + len(absent)
        if absent and args.verbose:
            print(f"{root.name}/{kind['path']}:{kind['line']}\t{kind['type']}\t{', '.join(sorted(absent))}")
    print(f"{len(kinds)} classes, {total} fields that backward reads, {missed} not listed", file=sys.stderr)


if __name__ == "__main__":
    main()
