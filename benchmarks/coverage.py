"""Whether ``cachelint audit`` lists every class that has a forward and a backward, against a count made here.

    python benchmarks/coverage.py FOLDER...

The count parses every file with the standard library and knows nothing of dialects: a class whose own body defines a
method called ``forward`` and one called ``backward``. Prints one line a folder and the classes that are missing; ends
with status 1 when one is, or when the audit ended badly.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path


def expected(folder: Path) -> set[tuple[str, int]]:
    """(path, line) of every class with both methods in its own body."""
    found = set()
    for path in sorted(folder.rglob("*.py")):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                if {"forward", "backward"} <= names:
                    found.add((path.relative_to(folder).as_posix(), node.lineno))
    return found


def main() -> int:
    """Compare each folder's audit with the count."""
    bad = 0
    for name in sys.argv[1:]:
        folder = Path(name).resolve()
        start = time.perf_counter()
        run = subprocess.run(
            ["cachelint", "audit", "--format", "json", "--no-cache", "."],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
        ok = run.returncode in (0, 1, 3) and "Traceback" not in run.stderr
        report = json.loads(run.stdout) if ok else {"types": [], "errors": []}
        listed = {(kind["path"], kind["line"]) for kind in report["types"]}
        wanted = expected(folder)
        missing = sorted(wanted - listed)
        bad += bool(missing) or not ok
        print(
            f"{folder.name}: status {run.returncode}, {len(listed)} types, {len(wanted)} classes with both methods, "
            f"{len(missing)} missing, {len(report['errors'])} files in error, {seconds:.1f} s"
        )
        for path, line in missing:
            print(f"    missing {path}:{line}")
        if not ok:
            print(run.stderr[-400:])
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
