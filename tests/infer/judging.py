"""Judge small modules held in memory: what the tests of the inference have in common."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from cachelint.engine import analyze
from cachelint.index.project import Project
from cachelint.model import FieldReport
from cachelint.settings import Settings

PRELUDE = "import functools\nimport math\nimport weakref\nimport torch\nimport triton\nfrom torch import nn, Tensor\n"


def judged(
    source: str, others: Mapping[str, str] | None = None, type_name: str = "", path: str = "m.py"
) -> dict[str, FieldReport]:
    """The field reports of ``m.py`` with ``source`` in it, by field; ``others`` are further files by name.

    Without ``type_name`` the fields of every type come together. ``path`` names another file to judge.
    """
    texts = {"/p/m.py": PRELUDE + textwrap.dedent(source)}
    texts |= {f"/p/{name}": PRELUDE + textwrap.dedent(text) for name, text in (others or {}).items()}
    raw = {path: text.encode() for path, text in texts.items()}
    project = Project("/p", sorted(texts), texts.get, raw.get)
    result = analyze(f"/p/{path}", project, Settings())
    assert not result.errors, result.errors
    return {
        field.field: field
        for report in result.types
        if not type_name or report.type == type_name
        for field in report.fields
    }


def classes(
    source: str, others: Mapping[str, str] | None = None, type_name: str = "", path: str = "m.py"
) -> dict[str, str]:
    """The classes of the fields that are kept as attributes and read in backward."""
    return {
        name: str(field.cls.value)
        for name, field in judged(source, others, type_name, path).items()
        if field.read and not field.registered
    }


def function(forward: str, reads: str, signature: str = "x", module: str = "", backward: str = "grad") -> str:
    """A module with one autograd function: ``forward`` is its body, ``reads`` what backward reads of ctx."""
    used = ", ".join(f"ctx.{name}" for name in reads.split())
    return (
        f"{textwrap.dedent(module)}\n"
        "class F(torch.autograd.Function):\n"
        "    @staticmethod\n"
        f"    def forward(ctx, {signature}):\n"
        f"{textwrap.indent(textwrap.dedent(forward).strip(), ' ' * 8)}\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad):\n"
        f"        use({used})\n"
        f"        return {backward}\n"
    )
