"""Compare what passed before and after a fix: one line for each report behind the first.

    python -m pytest --junitxml=before.xml ...    # in the copy as it was
    python -m pytest --junitxml=after.xml ...     # the same tests in the fixed copy
    python benchmarks/fix_packages_tests.py before.xml after.xml...

A line has the counts of both runs; each test that came out otherwise follows on a line of its own. The exit status is 1
where a test that passed no longer does. ``fix_packages_tests.md`` has the results.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence

Outcomes = dict[tuple[str, str], str]


def read(path: str) -> Outcomes:
    """The outcome of each test of a JUnit report."""
    found: Outcomes = {}
    for case in ElementTree.parse(path).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[case.get("classname") or "", case.get("name") or ""] = outcome
    return found


def compare(before: Outcomes, after: Outcomes) -> list[str]:
    """The tests that came out otherwise."""
    return [
        f"{'::'.join(key)}: {before.get(key, 'absent')}, then {after.get(key, 'absent')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def main(paths: Sequence[str]) -> int:
    """Print the comparison of every report with the first."""
    first = read(paths[0])
    broken = False
    for path in paths[1:]:
        after = read(path)
        lost = [key for key, outcome in first.items() if outcome == "passed" and after.get(key) != "passed"]
        broken |= bool(lost)
        counts = [", ".join(f"{n} {what}" for what, n in sorted(Counter(o.values()).items())) for o in (first, after)]
        print(f"{paths[0]}: {counts[0]}; {path}: {counts[1]}; {len(lost)} no longer pass")
        for line in compare(first, after):
            print(f"  {line}")
    return int(broken)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
