"""What is shipped: the wheel's content and names, and that it works away from the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cachelint import __version__, catalogue

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

needs_backend = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="the build backend (hatchling) is not installed"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, built in process by its own backend: the plain one, see ``test_compiled.py``."""
    out = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(out)!r}))"
    env = {**os.environ, "CACHELINT_COMPILE": "0"}
    run = subprocess.run([sys.executable, "-c", build], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return zipfile.ZipFile(out / run.stdout.split()[-1])


def test_the_distribution_is_not_called_like_the_unrelated_project() -> None:
    assert PROJECT["name"] == "torch-cachelint"
    assert PROJECT["scripts"] == {"cachelint": "cachelint.__main__:main"}
    assert PROJECT["version"] == __version__


def test_extras() -> None:
    assert {"runtime", "triton", "plot", "lsp", "test", "dev"} <= set(PROJECT["optional-dependencies"])
    base = " ".join(PROJECT["dependencies"])
    assert "torch" not in base, "the linter itself needs no torch"


@needs_backend
def test_the_wheel_holds_the_package_and_the_catalogue(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cachelint").rglob("*.py")}
    assert shipped <= names
    rules = {path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules").rglob("*") if path.is_file()}
    assert {f"cachelint/_rules/{path}" for path in rules} <= names
    assert {"cachelint/_rules/dialects.json", "cachelint/_rules/operators.json"} <= names
    assert "cachelint/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"cachelint", f"torch_cachelint-{__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert str(wheel.filename).endswith("-py3-none-any.whl")


@needs_backend
def test_the_wheel_works_away_from_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    wheel.extractall(site)
    empty.mkdir()
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def cachelint(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cachelint", *arguments], cwd=empty, env=env, capture_output=True, text=True
        )

    where = subprocess.run(
        [sys.executable, "-c", "import cachelint; print(cachelint.__file__)"],
        cwd=empty,
        env=env,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(site)), where.stdout + where.stderr
    listing = cachelint("rule", "--all")
    assert (listing.returncode, listing.stderr) == (0, "")
    for code in catalogue.names():
        assert code in listing.stdout
    audit = cachelint("audit", "--no-cache")
    assert (audit.returncode, audit.stderr) == (0, "")
    assert audit.stdout.startswith("0 types")
