"""The cache never changes what a run says: edits anywhere, damage, and concurrent runs included."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from stub_engine import ENGINE

from cachelint import cache, facts
from cachelint.cache import Cache, Pack, Record, carried
from cachelint.config import Configs
from cachelint.runner import Options, Report, run

LAYER = "import helper\nclass {0}(Function):\n    def forward(ctx, x): ...\n    def backward(ctx, g): ...\n"


@pytest.fixture(autouse=True)
def _same_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's edit of the package may disturb these tests."""
    monkeypatch.setattr(cache, "tool_digest", lambda: "tool")
    monkeypatch.delenv("CACHELINT_CACHE_DIR", raising=False)


def _project(folder: Path, **files: str) -> Path:
    (folder / "pyproject.toml").touch()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def _run(folder: Path, *paths: str, use_cache: bool = True, **command_line: Any) -> Report:
    options = Options(jobs=1, use_cache=use_cache)
    return run(paths or ["."], Configs(str(folder), command_line), options, cwd=str(folder), engine=ENGINE)


def _messages(report: Report) -> dict[str, str]:
    return {finding.path: finding.message for finding in report.findings}


def test_a_second_run_examines_nothing(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), b="x = 1\n", c="def f(:\n")
    first, second = _run(tmp_path), _run(tmp_path)
    assert (first.cached, second.cached) == (0, 3)
    assert second.findings == first.findings != ()
    assert second.types == first.types != ()
    assert second.errors == first.errors != ()


def test_an_edited_helper_in_another_module_changes_the_warm_verdict(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), b=LAYER.format("B").replace("import helper\n", ""), helper="LIMIT = 1\n")
    assert "limit 1" in _messages(_run(tmp_path))["a.py"]
    (tmp_path / "helper.py").write_text("LIMIT = 2\n")
    warm = _run(tmp_path)
    assert "limit 2" in _messages(warm)["a.py"]
    assert warm.cached == 1  # b does not use the helper


def test_a_helper_that_appears_or_goes_changes_it_too(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    assert "limit none" in _messages(_run(tmp_path))["a.py"]
    (tmp_path / "helper.py").write_text("LIMIT = 3\n")
    assert "limit 3" in _messages(_run(tmp_path))["a.py"]
    (tmp_path / "helper.py").unlink()
    assert "limit none" in _messages(_run(tmp_path))["a.py"]


def test_a_new_caller_changes_it(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), b=LAYER.format("B"), use="")
    assert "called in []" in _messages(_run(tmp_path))["a.py"]
    (tmp_path / "use.py").write_text("A.apply(1)\n")
    warm = _run(tmp_path)
    assert "called in ['use.py']" in _messages(warm)["a.py"]
    assert warm.cached == 1
    (tmp_path / "more.py").write_text("A.apply(1)\n")
    assert "called in ['more.py', 'use.py']" in _messages(_run(tmp_path))["a.py"]
    (tmp_path / "use.py").write_text("")
    assert "called in ['more.py']" in _messages(_run(tmp_path))["a.py"]


def test_one_file_and_the_whole_share_what_they_know(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"), b=LAYER.format("B"), use="A.apply(1)\n")
    alone = _run(tmp_path, "a.py")
    assert "called in ['use.py']" in _messages(alone)["a.py"]
    whole = _run(tmp_path)
    assert whole.cached == 1
    assert _messages(whole)["a.py"] == _messages(alone)["a.py"]
    assert _run(tmp_path, "b.py", "use.py").cached == 2


def test_selection_needs_no_new_verdict_and_settings_do(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    assert [one.code for one in _run(tmp_path).findings] == ["CL103"]
    chosen = _run(tmp_path, select=["CL215"])
    assert ([one.code for one in chosen.findings], chosen.cached) == (["CL215"], 1)
    assert _run(tmp_path, **{"per-file-ignores": {"a.py": ["ALL"]}}).findings == ()
    other = _run(tmp_path, **{"unknown-storage": "host"})
    assert ("host" in _messages(other)["a.py"], other.cached) == (True, 0)


def test_the_package_itself_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    _run(tmp_path)
    monkeypatch.setattr(cache, "tool_digest", lambda: "edited")
    assert _run(tmp_path).cached == 0


def test_the_digest_of_the_package_follows_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    package = tmp_path / "cachelint"
    shutil.copytree(Path(cache.__file__).parent, package, ignore=shutil.ignore_patterns("runtime", "__pycache__"))
    monkeypatch.setattr(cache, "__file__", str(package / "cache.py"))
    first = cache.tool_digest()
    assert cache.tool_digest() == first
    os.utime(package / "model.py", ns=(1, 1))
    assert cache.tool_digest() != first


@pytest.mark.parametrize("damage", [b"", b"{}", b"cachelint pack 1 0\n{}", None])
def test_a_damaged_pack_is_as_good_as_none(tmp_path: Path, damage: bytes | None) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    first = _run(tmp_path)
    (pack,) = (tmp_path / cache.FOLDER_NAME).glob("*.pack")
    raw = pack.read_bytes()
    pack.write_bytes(raw[:-1] + b"?" if damage is None else damage)
    again = _run(tmp_path)
    assert (again.findings, again.cached) == (first.findings, 0)
    assert _run(tmp_path).cached == 1


def test_the_folder_hides_itself_and_is_removed(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    _run(tmp_path)
    folder = tmp_path / cache.FOLDER_NAME
    assert (folder / ".gitignore").read_text().endswith("*\n")
    assert cache.clean(str(folder)) == 3  # the pack, .gitignore and CACHEDIR.TAG
    assert not folder.exists()
    assert cache.clean(str(folder)) == 0
    (tmp_path / "mine").mkdir()
    assert cache.clean(str(tmp_path / "mine")) == 0
    assert (tmp_path / "mine").exists()


def test_a_folder_with_other_things_in_it_keeps_them(tmp_path: Path) -> None:
    """`cache-dir = "."` must neither hide the project from git nor make `clean` remove it."""
    (tmp_path / "work.py").touch()
    (tmp_path / "other.pack").touch()
    (tmp_path / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n# somebody else's\n")
    store = Cache(str(tmp_path))
    assert store.save("0" * 32, Pack())
    assert not (tmp_path / ".gitignore").exists()
    assert cache.clean(str(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CACHEDIR.TAG", "other.pack", "work.py"]


def test_what_a_killed_run_left_goes_too(tmp_path: Path) -> None:
    left = tmp_path / f".{'0' * 32}.pack.abcd1234.tmp"
    left.touch()
    assert cache.clean(str(tmp_path)) == 1
    assert not tmp_path.exists()


def test_no_cache_means_none(tmp_path: Path) -> None:
    _project(tmp_path, a=LAYER.format("A"))
    _run(tmp_path, use_cache=False)
    assert not (tmp_path / cache.FOLDER_NAME).exists()


def test_where_the_cache_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    root = str(tmp_path)
    inside = [str(tmp_path / "a.py")]
    assert cache.locate(root, inside, None) == str(tmp_path / cache.FOLDER_NAME)
    assert cache.locate(root, ["/elsewhere/a.py"], None) == str(tmp_path / "user/cachelint")
    assert cache.locate(root, inside, str(tmp_path / "x/y")) == str(tmp_path / "x/y")
    (tmp_path / "file").touch()
    assert cache.locate(root, inside, str(tmp_path / "file")) == str(tmp_path / "user/cachelint")
    monkeypatch.setenv("CACHELINT_CACHE_DIR", str(tmp_path / "env"))
    assert cache.locate(root, inside, str(tmp_path / "x/y")) == str(tmp_path / "env")


def test_old_packs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_PACKS", 3)
    store = Cache(str(tmp_path))
    for number in range(5):
        assert store.save(f"{number:032x}", Pack())
        os.utime(tmp_path / f"{number:032x}.pack", (number, number))
    store.save(f"{9:032x}", Pack())
    assert sorted(int(path.stem, 16) for path in tmp_path.glob("*.pack")) == [3, 4, 9]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Cache(str(tmp_path / "file/cache"))
    assert not store.save("k", Pack())
    assert store.load("k") == Pack()


def test_packs_come_back(tmp_path: Path) -> None:
    store = Cache(str(tmp_path))
    record = Record("/p/a.py", "d", (("/p/b.py", "e"),), ("c",), ("A", "é"), b'{"findings":[]}', b"[1]")
    pack = Pack(
        {"/p/a.py": "d", "/p/b.py": "e", "/p/\udc80.py": "f"},
        {"/p/b.py"},
        {"/p/b.py": frozenset({"define B"})},
        {"/p/a.py": record},
    )
    store.save("k", pack)
    assert store.load("k") == pack


def test_what_is_carried_over() -> None:
    outside = ("/out.py", cache.digest_of(b"o"))
    record = Record("/p/a.py", "d", (("/p/b.py", "e"), outside), ("c",), ("apply A", "word field"))
    files = {"/p/a.py": "d", "/p/b.py": "e", "/p/x.py": "1"}
    stated = {"/p/x.py": frozenset({"define X"}), "/p/y.py": frozenset({"apply A"})}
    files["/p/y.py"] = "y"
    pack = Pack(files, {"/p/x.py"}, stated, {"/p/a.py": record})

    def kept(now: dict[str, str], **raw: bytes) -> bool:
        contents = {"/out.py": b"o"} | {f"/p/{name}.py": content for name, content in raw.items()}
        return "/p/a.py" in carried(pack, now, contents.get).records

    assert kept(files)
    assert not kept({**files, "/p/a.py": "D"})
    assert not kept({**files, "/p/b.py": "E"})
    assert not kept({**files, "/p/c.py": "new"}, c=b"")
    assert not kept({**files, "/q/c.py": "new"}, c=b"")
    assert kept({**files, "/p/cc.py": "new"}, cc=b"")
    assert not kept({**files, "/p/c/__init__.py": "new"})
    assert kept({**files, "/p/n.py": "new"}, n=b"B.apply(A), xA.apply")
    assert not kept({**files, "/p/n.py": "new"}, n=b"f = A.apply")
    assert not kept({**files, "/p/x.py": "2"}, x=b"A.apply(1)")
    assert kept({**files, "/p/x.py": "2"}, x=b"")
    assert not kept({**files, "/p/x.py": "2"}, x=b"y.grad_fn.field")
    assert not kept({**files, "/p/y.py": "2"}, y=b"")
    assert not kept({path: digest for path, digest in files.items() if path != "/p/y.py"})
    assert not kept({path: digest for path, digest in files.items() if path != "/p/b.py"})
    assert kept({path: digest for path, digest in files.items() if path != "/p/x.py"})
    assert not kept({**files, "/p/q/__init__.py": "new"})
    assert carried(pack, {**files, "/p/x.py": "2"}, lambda path: b"").empty == set()
    gone = carried(pack, files, lambda path: None)
    assert gone.records == {}


def test_what_files_state_and_verdicts_ask() -> None:
    raw = b"class A(base.B, metaclass=M):\n  class C: ...\nclass D(\n    E,\n): ...\nrun = a.A . apply\nx = 1\n"
    assert facts.stated(raw) == {
        "define A", "define C", "define D", "derive base", "derive B", "derive metaclass", "derive M", "derive E",
        "apply A",
    }  # fmt: skip
    assert facts.stated(b"x = 1\n") == frozenset()
    assert facts.words(b"x.y = 'z'\n") == {"word x", "word y", "word z"}
    asked = facts.asked(b"class A(B):\n def forward(): ...\n def _help(): ...\n", ["Z"], ["y"])
    assert asked == {"define A", "derive A", "apply A", "define B", "define Z", "word y", "word _help"}


def _many(folder: str, number: int) -> None:
    cache.tool_digest = lambda: "tool"  # type: ignore[assignment]
    for turn in range(6):
        (Path(folder) / "helper.py").write_text(f"LIMIT = {turn % 2}\n")
        _run(Path(folder))


def test_concurrent_runs_share_a_cache(tmp_path: Path) -> None:
    _project(tmp_path, helper="LIMIT = 0\n", **{f"m{n}": LAYER.format(f"A{n}") for n in range(20)})
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_many, args=(str(tmp_path), number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    (tmp_path / "helper.py").write_text("LIMIT = 7\n")
    assert {"limit 7" in message for message in _messages(_run(tmp_path)).values()} == {True}
    assert _run(tmp_path).cached == 21
    names = {path.name for path in (tmp_path / cache.FOLDER_NAME).iterdir()}
    assert not [name for name in names if name.endswith(".tmp")]


NAMES = ("a", "b", "c", "helper", "use", "p/a", "p/helper", "p/__init__")
CONTENTS = (
    "", "x = 1\n", "LIMIT = 1\n", "LIMIT = 2\n", "A.apply(1)\nB.apply(2)\n", "from a import A\nA.apply(0)\n",
    "def f(:\n", LAYER.format("A"), LAYER.format("B"),
    LAYER.format("A") + LAYER.format("B").replace("import helper", ""),
    LAYER.format("A").replace("...\n", "...  # noqa: CL103\n", 1), "class B(A):\n    def backward(self, g): ...\n",
    "class A:  # noqa: CL103\n    def backward(self): ...\n", "s = '\xe9'  # backward\n", "x = 1  # noqa: CL101\n",
)  # fmt: skip


class CacheMachine(RuleBasedStateMachine):
    """Edits a project at random; after every step a warm run says what a cold one says."""

    @initialize()
    def begin(self) -> None:
        self.before = cache.tool_digest
        cache.tool_digest = lambda: "tool"  # type: ignore[assignment]
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "pyproject.toml").touch()
        (self.folder / "p").mkdir()
        self.paths = ["."]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
            cache.tool_digest = self.before

    @rule(name=st.sampled_from(NAMES), text=st.sampled_from(CONTENTS))
    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.py").write_bytes(text.encode("latin-1" if "\xe9" in text else "utf-8"))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        (self.folder / f"{name}.py").unlink(missing_ok=True)

    @rule(old=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, old: str, new: str) -> None:
        if (self.folder / f"{old}.py").exists():
            os.replace(self.folder / f"{old}.py", self.folder / f"{new}.py")

    @rule(paths=st.lists(st.sampled_from([".", "a.py", "p", "b.py"]), min_size=1, max_size=2))
    def ask_for(self, paths: list[str]) -> None:
        self.paths = paths

    @rule(at=st.integers(0, 10_000), data=st.data())
    def damage(self, at: int, data: st.DataObject) -> None:
        packs = sorted((self.folder / cache.FOLDER_NAME).glob("*.pack"))
        if packs:
            pack = data.draw(st.sampled_from(packs))
            raw = bytearray(pack.read_bytes())
            if raw:
                raw[at % len(raw)] ^= 1 + at % 255
            pack.write_bytes(bytes(raw))

    @invariant()
    def warm_is_cold(self) -> None:
        if not hasattr(self, "folder"):
            return
        warm = _run(self.folder, *self.paths)
        cold = _run(self.folder, *self.paths, use_cache=False)
        assert warm.files == cold.files
        assert warm.findings == cold.findings
        assert warm.suppressed == cold.suppressed
        assert warm.errors == cold.errors
        assert warm.types == cold.types


CacheMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCacheMachine = CacheMachine.TestCase
