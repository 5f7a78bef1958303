"""Write ``docs/rules.md`` from the catalogue: ``python -m cachelint.docs`` in a checkout.

``--check`` writes nothing and exits 1 when the file on disk is not what the catalogue says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from cachelint.catalogue import PACKAGE, CatalogueError, Rule, load_all
from cachelint.report.markdown import cell, table
from cachelint.report.rulepage import FIX_WORDS, markdown

TARGET = PACKAGE.parent / "docs" / "rules.md"

FAMILIES = {
    "CL1": ("Cached fields", "What forward keeps for backward outside the save-for-backward contract."),
    "CL2": ("The contract", "Code that has the contract and uses it wrongly, or caches that need none."),
    "CL3": ("Lifetimes", "Local tensors that stay owned longer than they are used."),
}


def page(rules: Sequence[Rule]) -> Iterator[str]:
    """The whole page: a table a family, then every rule."""
    yield "# Rules\n\n<!-- Written by `python -m cachelint.docs` from rules/. Edit the rule, not this page. -->\n"
    for prefix, (title, sentence) in FAMILIES.items():
        family = [rule for rule in rules if rule.code.startswith(prefix)]
        if family:
            yield f"\n## {title}\n\n{sentence}\n\n"
            rows = [(_link(rule), rule.name, cell(rule.summary), FIX_WORDS[rule.fixable]) for rule in family]
            yield from table(("Code", "Name", "What it finds", "Fixable"), rows)
    for rule in rules:
        yield "\n" + markdown(rule, level=2)


def _link(rule: Rule) -> str:
    """GitHub's anchor of the rule's heading."""
    return f"[{rule.code}](#{rule.code.lower()}-{rule.name})"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or compare it."""
    try:
        text = "".join(page(load_all()))
    except CatalogueError as error:
        print(f"cachelint.docs: {error}", file=sys.stderr)
        return 2
    if "--check" in arguments:
        current = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        if not current:
            print(f"{TARGET}: not what the catalogue says: run `python -m cachelint.docs`", file=sys.stderr)
        return 0 if current else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
