"""How often the rules about the contract and about lifetimes fire on public code: one row a folder, one column a rule.

    python benchmarks/findings.py FOLDER... [--select CL108,CL109,CL110,CL111,CL2,CL3] [--list] [--seed N --sample N]

Each folder is checked by itself, without configuration and without the cache. ``--list`` prints the places instead, and nothing
that tells the verdict's reason, so that they can be judged with fresh eyes; with ``--sample`` so many of them, drawn with the
seed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

SELECT = "CL108,CL109,CL110,CL111,CL2,CL3"


def checked(folder: Path, select: str) -> list[dict[str, Any]]:
    """The findings in one folder."""
    options = ["--isolated", "--no-cache", "--no-respect-gitignore", "--select", select, "--output-format", "json"]
    command = [sys.executable, "-m", "cachelint", "check", *options, folder.name]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{folder}: {done.stderr.strip()}")
    return list(json.loads(done.stdout)["findings"])


def main() -> None:
    """Print the table or the places."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--select", default=SELECT)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=20261130)
    args = parser.parse_args()
    found = {folder.resolve(): checked(folder.resolve(), args.select) for folder in args.folders}
    everything = [finding for findings in found.values() for finding in findings]
    if args.list:
        drawn = everything
        if args.sample is not None and args.sample < len(everything):
            drawn = random.Random(args.seed).sample(everything, args.sample)
        for f in drawn:
            names = f" {', '.join(f['names'])}" if f.get("names") else ""
            print(f"{f['code']} {f['path']}:{f['line']} {f['type']}{names}")
        return
    codes = sorted({f["code"] for f in everything})
    print("| package | " + " | ".join(codes) + " | all |")
    print("|:--|" + "--:|" * (len(codes) + 1))
    for folder, findings in found.items():
        count = Counter(f["code"] for f in findings)
        if findings:
            name = folder.name.rpartition("+")[2]
            print(f"| {name} | " + " | ".join(str(count[c] or "") for c in codes) + f" | {len(findings)} |")
    total = Counter(f["code"] for f in everything)
    print("| all | " + " | ".join(str(total[c]) for c in codes) + f" | {len(everything)} |")
    silent = [folder.name.rpartition("+")[2] for folder, findings in found.items() if not findings]
    print(f"\nNo finding in {len(silent)} of {len(found)}: {', '.join(silent) or 'none'}.")


if __name__ == "__main__":
    main()
