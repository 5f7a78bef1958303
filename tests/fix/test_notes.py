"""What check says of a fix is what fix does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cachelint.engine import examine
from cachelint.fix.notes import annotate
from cachelint.index.module import ModuleInfo
from cachelint.index.project import Project
from cachelint.model import Applicability
from cachelint.settings import Settings
from tests.fix import programs
from tests.fix.differential import HERE, fixed
from tests.fix.test_differential import Seeded
from tests.fix.test_pairs import PAIRS, REFUSED


def promised(text: str) -> set[tuple[str | None, str | None]]:
    """The fields whose findings check calls safely fixable."""
    project = Project("/", [HERE], lambda p: text if p == HERE else None)
    module = ModuleInfo(HERE, text, "program")
    project.add(module)
    file, findings = examine(module, "program.py", project, Settings(select=("ALL",)))
    return {
        (f.type, f.field)
        for f in annotate(file, findings)
        if f.code.startswith("CL1") and f.fix is not None and f.fix.applicability is Applicability.SAFE
    }


def kept(text: str) -> set[tuple[str | None, str | None]]:
    """The fields that fix deals with."""
    return {(f.type, f.field) for plan in fixed(text).applied for f in plan.findings}


@pytest.mark.parametrize("path", [*PAIRS, *REFUSED], ids=lambda p: p.stem)
def test_fixtures(path: Path) -> None:
    text = path.read_text()
    assert promised(text) == kept(text)


def test_generated_programs() -> None:
    for seed in range(40):
        text = programs.make(Seeded(seed)).text
        assert promised(text) == kept(text), text


def test_check_does_not_import_the_rewriter(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PAIRS[0].read_text())
    code = (
        "import sys; from cachelint import cli; cli.run(['check', '--no-cache', '-q', '.']); "
        "sys.exit('libcst' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "CL1" in done.stdout
