"""The proofs of docs/found-in-the-wild.md run, and each fault has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "found-in-the-wild.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


def proof(section: str) -> str:
    return "".join(re.findall(r"^```python proof\n(.*?)^```", section, re.MULTILINE | re.DOTALL))


def test_there_are_twelve_and_each_names_place_command_reason_proof_and_fix() -> None:
    assert len(SECTIONS) == 12
    for section in SECTIONS:
        assert re.match(r"\d+\. .+ \(CL\d{3}\)\n", section)
        assert all(f"**{word}" in section for word in ("Place", "Found by", "Why it matters", "Proof", "Fix")), section[
            :60
        ]


@pytest.mark.parametrize("section", SECTIONS, ids=[section.split(".")[0] for section in SECTIONS])
def test_proof_runs(section: str) -> None:
    pytest.importorskip("torch")
    source = proof(section)
    assert "assert " in source
    exec(compile(source, "<proof>", "exec"), {"__name__": "proof"})
