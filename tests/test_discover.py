"""Which files a run examines, and which project each belongs to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from unprivileged import open_folder, unprivileged

from cachelint import discover
from cachelint.config import Configs
from cachelint.discover import Discovery, Found
from cachelint.model import FileError


def _make(root: Path, *paths: str) -> None:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            target.mkdir(exist_ok=True)
        else:
            target.touch()


def _find(cwd: Path, *paths: str, **command_line: object) -> Found:
    return Discovery(str(cwd), Configs(str(cwd), command_line)).find(paths or ["."])


def _names(found: Found, cwd: Path) -> list[str]:
    return [os.path.relpath(path, cwd) for path in found.requested]


def test_python_files_and_notebooks_in_order(tmp_path: Path) -> None:
    _make(tmp_path, "b.py", "a/c.py", "a/n.ipynb", "a/t.pyi", "a/x.txt", "a/script", "x.py/inner.py")
    assert _names(_find(tmp_path), tmp_path) == ["a/c.py", "a/n.ipynb", "b.py", "x.py/inner.py"]
    assert _names(_find(tmp_path, "a/script", "a/t.pyi", "x.py"), tmp_path) == ["a/script", "a/t.pyi", "x.py/inner.py"]
    assert _names(_find(tmp_path, "a", "a/c.py", str(tmp_path / "a")), tmp_path) == ["a/c.py", "a/n.ipynb"]


def test_usual_folders_are_skipped_unless_named(tmp_path: Path) -> None:
    for folder in (".git", ".venv", "venv", "node_modules", "build", "dist", "__pycache__", ".tox", "x.egg-info"):
        _make(tmp_path, f"{folder}/a.py")
    _make(tmp_path, "lib/site-packages/p/a.py", "anyname/pyvenv.cfg", "anyname/lib/a.py", "ok.py")
    assert _names(_find(tmp_path), tmp_path) == ["ok.py"]
    assert _names(_find(tmp_path, "build", "lib/site-packages/p"), tmp_path) == [
        "build/a.py",
        "lib/site-packages/p/a.py",
    ]


def test_a_package_called_build_is_a_package(tmp_path: Path) -> None:
    _make(tmp_path, "p/build/__init__.py", "p/build/a.py", "build/lib/a.py")
    assert _names(_find(tmp_path), tmp_path) == ["p/build/__init__.py", "p/build/a.py"]


def test_gitignore_files_of_all_levels(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    _make(tmp_path, "a.py", "gen/a.py", "p/a.py", "p/keep.py", "p/gen_x.py", "p/q/keep.py", "p/q/a.py", "secret.py")
    (tmp_path / ".gitignore").write_text("gen/\ngen_*.py\n/p/a.py\n")
    (tmp_path / "p/q/.gitignore").write_text("*\n!keep.py\n")
    (tmp_path / ".git/info/exclude").write_text("secret.py\n")
    assert _names(_find(tmp_path), tmp_path) == ["a.py", "p/keep.py", "p/q/keep.py"]
    # From below, the ignore files above hold too.
    assert _names(_find(tmp_path / "p"), tmp_path) == ["p/keep.py", "p/q/keep.py"]
    assert _names(_find(tmp_path, "p/q"), tmp_path) == ["p/q/keep.py"]
    # What is named is examined, a folder with what its own ignore files leave.
    assert _names(_find(tmp_path, "p/a.py", "secret.py", "gen"), tmp_path) == ["gen/a.py", "p/a.py", "secret.py"]
    everything = _names(_find(tmp_path, **{"respect-gitignore": False}), tmp_path)
    assert everything == [
        "a.py",
        "gen/a.py",
        "p/a.py",
        "p/gen_x.py",
        "p/keep.py",
        "p/q/a.py",
        "p/q/keep.py",
        "secret.py",
    ]


def test_git_lists_the_same_files(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    _make(tmp_path, "a/b/c.py", "a/d.py", "a/b/e/f.py", "g/h.py", "g/i/j.py", "k.py", "a/keep/x.py")
    (tmp_path / ".gitignore").write_text("a/*\n!a/b\n!a/keep/\n**/e/\nk*\n")
    (tmp_path / "g/.gitignore").write_text("i/\n!k.py\n/h.py\n")
    done = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "-o", "--exclude-standard", "*.py"], capture_output=True, check=True
    )
    assert _names(_find(tmp_path), tmp_path) == sorted(done.stdout.decode().split())


def test_a_repository_inside_another_starts_anew(tmp_path: Path) -> None:
    _make(tmp_path, ".git/", "sub/.git", "sub/a.py", "a.py")
    (tmp_path / ".gitignore").write_text("a.py\n")
    assert _names(_find(tmp_path), tmp_path) == ["sub/a.py"]


def test_configured_patterns(tmp_path: Path) -> None:
    _make(tmp_path, "a.py", "docs/a.py", "p/docs/a.py", "p/gen/x.py", "p/gen/deep/x.py", "build/a.py")
    (tmp_path / "pyproject.toml").write_text('[tool.cachelint]\nextend-exclude = ["/docs", "p/gen/*.py"]\n')
    assert _names(_find(tmp_path), tmp_path) == ["a.py", "p/docs/a.py", "p/gen/deep/x.py"]
    (tmp_path / "pyproject.toml").write_text('[tool.cachelint]\nexclude = ["docs"]\n')
    assert _names(_find(tmp_path), tmp_path) == ["a.py", "build/a.py", "p/gen/deep/x.py", "p/gen/x.py"]
    # The nearest configuration holds, as a whole.
    (tmp_path / "p/cachelint.toml").write_text('exclude = ["gen"]\n')
    assert _names(_find(tmp_path), tmp_path) == ["a.py", "build/a.py", "p/docs/a.py"]


def test_force_exclude_holds_for_named_files(tmp_path: Path) -> None:
    _make(tmp_path, "docs/a.py", "venv/a.py", "a.py")
    files = ("docs/a.py", "venv/a.py", "a.py")
    assert len(_find(tmp_path, *files, exclude=["docs"]).requested) == 3
    options = {"extend-exclude": ["docs"], "force-exclude": True}
    assert _names(_find(tmp_path, *files, **options), tmp_path) == ["a.py"]


def test_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    _make(outside, "o.py", "d/x.py")
    tree = tmp_path / "tree"
    _make(tree, "a.py", "d/b.py", ".git/")
    (tree / "broken.py").symlink_to("nowhere.py")
    (tree / "loop1.py").symlink_to("loop2.py")
    (tree / "loop2.py").symlink_to("loop1.py")
    (tree / "same.py").symlink_to("d/b.py")
    (tree / "other.py").symlink_to("../outside/o.py")
    (tree / "d/up").symlink_to("..")
    (tree / "linked").symlink_to("../outside/d")
    (tree / ".#a.py").symlink_to("user@host.1")
    (tree / "folder.py").symlink_to("d")
    found = _find(tree)
    assert _names(found, tree) == ["a.py", "d/b.py", "other.py"]
    assert [(e.path, e.message.split(":")[0]) for e in found.errors] == [
        ("broken.py", "broken symbolic link"),
        ("loop1.py", "the symbolic link leads back to itself"),
        ("loop2.py", "the symbolic link leads back to itself"),
    ]
    assert _names(_find(tree, "same.py", "linked"), tree) == ["linked/x.py", "same.py"]
    assert [e.path for e in _find(tree, "broken.py", "loop1.py").errors] == ["broken.py", "loop1.py"]


def test_what_is_no_file_is_one_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    _make(tmp_path, "a.py")
    found = _find(tmp_path, ".", "none.py", "pipe.py", "a\0b.py")
    assert _names(found, tmp_path) == ["a.py"]
    assert sorted(error.path for error in found.errors) == ["'a\\x00b.py'", "none.py", "pipe.py"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_unreadable_folders_are_one_error() -> None:
    with open_folder() as folder:
        _make(folder, "shut/a.py", "open/b.py")
        (folder / "shut").chmod(0)
        with unprivileged():
            found = _find(folder)
        assert _names(found, folder) == ["open/b.py"]
        assert found.errors == (FileError("shut", 1, "permission denied: make it readable or exclude it"),)


def _root(cwd: Path, path: Path, given: Path | None = None) -> str:
    found = Discovery(str(cwd), Configs(str(cwd))).project_root(str(path), str(given) if given else None)
    return os.path.relpath(found, cwd)


def test_where_projects_begin(tmp_path: Path) -> None:
    for marker in discover.ROOT_MARKERS:
        _make(tmp_path, f"m_{marker}/{marker}", f"m_{marker}/p/q/a.py")
        assert _root(tmp_path, tmp_path / f"m_{marker}/p/q") == f"m_{marker}"
    _make(tmp_path, "work/a.py", "elsewhere/top/__init__.py", "elsewhere/top/sub/__init__.py", "elsewhere/loose/a.py")
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    assert _root(work, work / "x/y") == "."
    assert _root(work, elsewhere / "top/sub") == "../elsewhere"
    assert _root(work, elsewhere / "loose") == "../elsewhere/loose"
    assert _root(work, elsewhere / "loose", given=elsewhere) == "../elsewhere"


def test_build_files_inside_a_package_begin_no_project(tmp_path: Path) -> None:
    _make(
        tmp_path, "r/.git", "r/top/__init__.py", "r/top/sub/__init__.py", "r/top/sub/pyproject.toml", "r/top/sub/a.py"
    )
    assert _root(tmp_path, tmp_path / "r/top/sub") == "r"
    _make(tmp_path, "s/.git", "s/top/__init__.py", "s/top/setup.py", "s/top/sub/__init__.py", "s/top/sub/a.py")
    assert _root(tmp_path, tmp_path / "s/top/sub") == "s/top"


@pytest.mark.parametrize("cwd", [".", "p", ".."])
def test_one_file_sees_the_project_that_the_whole_run_sees(tmp_path: Path, cwd: str) -> None:
    tree = tmp_path / "tree"
    _make(
        tree,
        "pyproject.toml",
        "p/__init__.py",
        "p/a.py",
        "q/b.py",
        "tests/c.py",
        "tools/setup.py",
        "tools/d.py",
        "n.ipynb",
    )
    start = (tree / cwd).resolve()
    whole = _find(start, os.path.relpath(tree, start))
    for path, number in whole.requested.items():
        alone = _find(start, os.path.relpath(path, start))
        assert list(alone.requested) == [path]
        assert alone.scopes == (whole.scopes[number],)


def test_installed_packages_are_projects_of_their_own(tmp_path: Path) -> None:
    _make(tmp_path, "pyproject.toml", "a.py", "venv/lib/site-packages/p/__init__.py", "venv/lib/site-packages/p/a.py")
    _make(tmp_path, "venv/lib/site-packages/other.py", "venv/lib/site-packages/q/__init__.py")
    packages = tmp_path / "venv/lib/site-packages"
    for path in ("venv/lib/site-packages/p", "venv/lib/site-packages/p/a.py"):
        (scope,) = _find(tmp_path, path).scopes
        assert scope.root == str(packages)
        assert scope.files == (str(packages / "p/__init__.py"), str(packages / "p/a.py"))


def test_a_home_directory_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, "loose.py", "other.py", "p/__init__.py", "p/a.py", *(f"stuff/{n}.txt" for n in range(30)))
    monkeypatch.setattr(discover, "MOST_ENTRIES", 20)
    for paths in (["."], ["p/a.py", "loose.py"]):
        found = _find(tmp_path, *paths)
        files = {
            os.path.basename(path): [os.path.relpath(file, tmp_path) for file in found.scopes[number].files]
            for path, number in found.requested.items()
        }
        assert files["a.py"] == ["p/__init__.py", "p/a.py"]
        assert files["loose.py"] == ["loose.py", "other.py"]


def test_a_broken_configuration_elsewhere_is_nobodys_business(tmp_path: Path) -> None:
    _make(tmp_path, "pyproject.toml", "a.py", "b/c.py")
    (tmp_path / "b/cachelint.toml").write_text("nonsense = 1\n")
    assert _names(_find(tmp_path, "a.py"), tmp_path) == ["a.py"]


def test_texts_that_are_not_on_disk(tmp_path: Path) -> None:
    _make(tmp_path, "pyproject.toml", "a.py")
    found = Discovery(str(tmp_path), Configs(str(tmp_path))).find([], extra=[str(tmp_path / "new.py")])
    assert _names(found, tmp_path) == ["new.py"]
    assert found.scopes[0].files == (str(tmp_path / "a.py"), str(tmp_path / "new.py"))
