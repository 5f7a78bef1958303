"""Which module an import means: one of the project, or one that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachelint.index.project import Project


def found(files: list[str], importer: str, name: str, level: int = 0) -> str | None:
    """The path that ``import name`` in ``importer`` leads to, without the root."""
    texts = {f"/p/{path}": "" for path in files}
    path = Project("/p", sorted(texts), texts.get).find_module(name, f"/p/{importer}", level)
    return None if path is None else path.removeprefix("/p/")


PACKAGE = ["lib/__init__.py", "lib/torch/__init__.py", "lib/torch/ops.py", "lib/random.py", "lib/nn/__init__.py"]


@pytest.mark.parametrize("importer", ["lib/torch/ops.py", "lib/nn/__init__.py", "lib/layers.py"])
@pytest.mark.parametrize("name", ["torch", "random", "torch.ops"])
def test_inside_a_package_a_library_is_the_library(importer: str, name: str) -> None:
    assert found([*PACKAGE, importer], importer, name) is None


def test_a_relative_import_is_the_package_s_own() -> None:
    assert found(PACKAGE, "lib/layers.py", "torch", 1) == "lib/torch/__init__.py"
    assert found(PACKAGE, "lib/nn/x.py", "random", 2) == "lib/random.py"


def test_the_library_s_own_project_has_it_at_its_root() -> None:
    files = ["torch/__init__.py", "torch/nn/__init__.py"]
    assert found(files, "torch/nn/modules.py", "torch") == "torch/__init__.py"


def test_a_root_that_is_a_package_goes_by_its_own_name() -> None:
    assert found(["__init__.py", "nn/__init__.py", "ops.py"], "nn/x.py", "p.ops") == "ops.py"
    assert found(["nn/__init__.py", "ops.py"], "nn/x.py", "p.ops") is None, "the root is a folder, no package"


def test_below_another_package_the_first_name_is_not_the_root_s(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    root = tmp_path / "torch"
    files = [str(root / "__init__.py"), str(root / "ops.py")]
    project = Project(str(root), files, dict.fromkeys(files, "").get)
    assert project.find_module("torch.ops", files[1]) is None, "the library, as everywhere inside a package"
    (tmp_path / "__init__.py").unlink()
    assert Project(str(root), files, dict.fromkeys(files, "").get).find_module("torch.ops", files[1]) == files[1]


def test_a_script_s_folder_comes_first() -> None:
    assert found(["tools/random.py"], "tools/run.py", "random") == "tools/random.py"


def test_other_names_are_looked_for_upwards() -> None:
    assert found([*PACKAGE, "lib/helpers.py"], "lib/nn/x.py", "helpers") == "lib/helpers.py"
