"""What a wheel has beside the text of its modules: the tables in one piece, and compiled modules.

Those that a run spends its time in are compiled where a C compiler is at hand; a wheel without them works the same.

The modules are ordinary Python: mypyc translates them, Python prefers what is compiled to the text beside it, and the
text stays in the wheel. ``CACHELINT_COMPILE=0`` leaves it at that, ``CACHELINT_COMPILE=1`` makes a failure to compile
one of the build. An editable install is never compiled: its modules are there to be changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = {
    "": "classify facts",
    "checks": "extents lifetimes support",
    "collect": "held log types uses",
    "index": "chunks lower module project walk",
    "infer": (
        "analysis annotations attributes callers calls classes conditions core effects expressions kernels launches "
        "library machine names objects optable places scopes specials symbols values"
    ),
}
"""The modules by package."""

SWITCH = "CACHELINT_COMPILE"


class Hook(BuildHookInterface[Any]):
    """The hook that hatchling finds in this file."""

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling."""
        return ["mypy[mypyc]>=1.15", "setuptools>=77"] if possible() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put the results into the wheel."""
        if version == "editable" or self.target_name != "wheel":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="cachelint-build-"))
        build_data["force_include"].update(_tables(Path(self.root, "rules"), self._folder))
        if not possible():
            return
        try:
            with contextlib.chdir(self.root):
                made = _compile(self._folder)
        except (Exception, SystemExit) as error:  # mypyc leaves by the latter
            if os.environ.get(SWITCH) == "1":
                raise
            self.app.display_warning(f"torch-cachelint is not compiled, and slower for it: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(made)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was only needed until the wheel was written."""
        shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def _tables(rules: Path, folder: Path) -> dict[str, str]:
    """The tables of each folder of ``rules/`` as one file of JSON, and its place in the wheel."""
    made = {}
    for tables in (path for path in rules.iterdir() if path.is_dir()):
        packed = folder / f"{tables.name}.json"
        found = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(tables.glob("*.toml"))}
        packed.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
        made[str(packed)] = f"cachelint/_rules/{packed.name}"
    return made


def possible() -> bool:
    """Whether there is what compiling takes: CPython, its headers and a C compiler."""
    if os.environ.get(SWITCH) == "0" or sys.implementation.name != "cpython":
        return False
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    found = sys.platform == "win32" or shutil.which(compiler) or shutil.which("cc")
    return bool(found) and Path(sysconfig.get_path("include"), "Python.h").exists()


def _compile(folder: Path) -> dict[str, str]:
    """Where each compiled library lies, and its place in the wheel. Raises whatever mypyc and the compiler do."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    paths = [
        str(Path("cachelint", package, f"{name}.py")) for package in COMPILED for name in COMPILED[package].split()
    ]
    # What the modules import is not installed where a wheel is built, and says nothing about them.
    flags = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", f"--cache-dir={folder / 'cache'}"]
    extensions = mypycify(
        [*flags, *paths], opt_level="1", debug_level="0", multi_file=True, target_dir=str(folder / "c")
    )
    command = Distribution({"name": "cachelint", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")  # type: ignore[attr-defined]
    command.ensure_finalized()
    with _side_by_side():
        command.run()
    made = Path(folder / "lib")
    return {str(path): path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}


@contextlib.contextmanager
def _side_by_side() -> Any:
    """Compile the files of one extension at once: distutils takes them one after the other."""
    from distutils.ccompiler import CCompiler  # setuptools brings it

    one_by_one = CCompiler.compile

    def compile(self: Any, sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [
                made for part in pool.map(lambda s: one_by_one(self, [s], *args, **kwargs), sources) for made in part
            ]

    CCompiler.compile = compile  # type: ignore[method-assign]
    try:
        yield
    finally:
        CCompiler.compile = one_by_one  # type: ignore[method-assign]
