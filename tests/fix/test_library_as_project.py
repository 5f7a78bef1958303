"""A project that is PyTorch itself: its own ``torch`` is the library, and a fix may name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachelint.cli import run
from tests.fix.test_pairs import DATA

TEXT = (DATA / "fix" / "only_a_name.py").read_text().replace("from torch.autograd import Function\n", "{imports}\n")
FIXED = "ctx.mask = None if isinstance(mask, {tensor}) else mask"
LIBRARY, CLASS = (
    "import torch\nfrom torch.autograd import Function",
    "from torch import Tensor\nfrom torch.autograd import Function",
)


def fix(folder: Path, imports: str, package: str, tensor: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text after a fix, as a module of a package that has a ``Tensor`` of its own."""
    (folder / package / "nn").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    (folder / package / "__init__.py").write_text(tensor)
    (folder / package / "nn" / "__init__.py").write_text("")
    module = folder / package / "nn" / "functions.py"
    module.write_text(TEXT.replace("{imports}", imports))
    monkeypatch.chdir(folder)
    run(["fix", "--no-cache", "."])
    return module.read_text()


@pytest.mark.parametrize("tensor", ["class Tensor: ...\n", "from torch._tensor import Tensor\n", ""])
def test_the_library_s_own_functions_are_fixed(tensor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = fix(tmp_path, LIBRARY, "torch", tensor, monkeypatch)
    assert FIXED.format(tensor="torch.Tensor") in text
    assert text.count("import torch\n") == 1


def test_its_class_by_its_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = fix(tmp_path, CLASS, "torch", "class Tensor: ...\n", monkeypatch)
    assert FIXED.format(tensor="Tensor") in text
    assert "import torch\n" not in text


def test_another_package_s_class_is_not_the_library_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = "from mine import Tensor\nfrom torch.autograd import Function"
    text = fix(tmp_path, imports, "mine", "class Tensor: ...\n", monkeypatch)
    assert FIXED.format(tensor="torch.Tensor") in text
    assert "import torch\n" in text
