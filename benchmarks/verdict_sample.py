"""A seeded sample of verdicts to judge by hand: so many that call a field RECOMPUTE or SAVE, so many SAFE ones.

    python benchmarks/verdict_sample.py REPOSITORY... [--seed 20261130] [--hazards 150] [--safe 150] [--reveal]

Only fields that backward reads and that are not registered are drawn. What is printed names the place of each field and
nothing else, so that it can be judged with fresh eyes; ``--reveal`` adds the verdict and its reason, for comparison.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any


def audited(root: Path) -> list[dict[str, Any]]:
    """The fields in question of one repository."""
    command = [sys.executable, "-m", "cachelint", "audit", "--format", "json", "--no-cache", "."]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 3):
        sys.exit(f"{root}: {run.stderr.strip()}")
    return [
        {"repo": root.name, "path": kind["path"], "type": kind["type"], "at": kind["line"], **field}
        for kind in json.loads(run.stdout)["types"]
        for field in kind["fields"]
        if field["read"] and not field["registered"]
    ]


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--hazards", type=int, default=150)
    parser.add_argument("--safe", type=int, default=150)
    parser.add_argument("--reveal", action="store_true")
    args = parser.parse_args()
    fields = [field for root in sorted(args.roots) for field in audited(root.resolve())]
    hazards = [field for field in fields if field["class"] != "SAFE"]
    safe = [field for field in fields if field["class"] == "SAFE"]
    rng = random.Random(args.seed)
    sample = rng.sample(hazards, min(args.hazards, len(hazards))) + rng.sample(safe, min(args.safe, len(safe)))
    sample.sort(key=lambda field: (field["repo"], field["path"], field["at"]))
    print(f"{len(hazards)} called RECOMPUTE or SAVE, {len(safe)} SAFE; {len(sample)} drawn", file=sys.stderr)
    for field in sample:
        told = f"\t{field['class']}\t{field['confidence']}\t{field['reason']}" if args.reveal else ""
        print(f"{field['repo']}/{field['path']}:{field['line']}\t{field['type']}\t{field['field']}{told}")


if __name__ == "__main__":
    main()
