"""What the tests of the checks share: findings of a source text, by code and by the words of the line they stand on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cachelint.config import Configs
from cachelint.runner import Options, run

Find = Callable[..., list[str]]


@pytest.fixture
def say(tmp_path: Path) -> Find:
    """``say(source, "CL210")``: the messages of the findings of the given codes."""

    def said(source: str, *codes: str) -> list[str]:
        (tmp_path / "example.py").write_text("import torch\n\n" + textwrap.dedent(source), encoding="utf-8")
        configs = Configs(str(tmp_path), {"select": list(codes)}, isolated=True)
        report = run([str(tmp_path / "example.py")], configs, Options(jobs=1, use_cache=False), cwd=str(tmp_path))
        assert not report.errors
        return [finding.message for finding in report.findings]

    return said


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """``find(source, "CL210", other={"b.py": …})``: the stripped lines that findings of the given codes begin on."""

    def found(source: str, *codes: str, other: dict[str, str] | None = None, **config: object) -> list[str]:
        text = "import torch\n\n" + textwrap.dedent(source)
        files = {"example.py": text} | {name: textwrap.dedent(body) for name, body in (other or {}).items()}
        for name, body in files.items():
            (tmp_path / name).write_text(body, encoding="utf-8")
        configs = Configs(str(tmp_path), {"select": list(codes), **config}, isolated=True)
        report = run([str(tmp_path / "example.py")], configs, Options(jobs=1, use_cache=False), cwd=str(tmp_path))
        assert not report.errors
        lines = text.splitlines()
        return [lines[finding.line - 1].strip() for finding in report.findings]

    return found


def function(forward: str, backward: str, name: str = "F", parameters: str = "x, w") -> str:
    """A Function with these bodies, one statement a line."""
    indent = " " * 8
    return (
        f"class {name}(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, {parameters}):\n"
        + textwrap.indent(textwrap.dedent(forward).strip(), indent)
        + "\n\n    @staticmethod\n    def backward(ctx, grad):\n"
        + textwrap.indent(textwrap.dedent(backward).strip(), indent)
        + "\n"
    )
