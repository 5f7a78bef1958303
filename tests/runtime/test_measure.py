"""The measure command: arguments, targets, pairs, comparisons, owners, the fix in memory, the plot, the sentences."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cachelint.cli import run
from cachelint.runtime import measure_fix
from cachelint.runtime.arguments import Literal, SpecError, TensorSpec, dtype_named, literals_of, make, parse, sizes_of
from cachelint.runtime.measure import Plan, measure, same_bits
from cachelint.runtime.measure_plot import figure, svg, ticks
from cachelint.runtime.measure_text import conclusions, text, to_dict
from cachelint.runtime.target import Setup, TargetError
from cachelint.runtime.target_load import load

ROOT = Path(__file__).resolve().parents[2]
LEGACY = "fixtures/legacy/gdn/lora_projection.py:LoRAProjection"
MIGRATED = "cachelint/runtime/layers/gdn/lora_projection.py:LoRAProjection"
OWNERS = "LoRAProjection.forward:qkv,z,beta,alpha"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def code(tmp_path: Path) -> Any:
    """Write a module and give its path."""
    count = 0

    def written(source: str) -> str:
        nonlocal count
        count += 1
        path = tmp_path / f"module{count}.py"
        path.write_text("import torch\n" + source)
        return str(path)

    return written


def cli(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run(["measure", *argv])
    out, err = capsys.readouterr()
    return status, out, err


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_specifications() -> None:
    assert parse("4,5") == TensorSpec((4, 5))
    assert parse("()") == TensorSpec(())
    assert parse("rows,2048:bf16:nograd") == TensorSpec(("rows", 2048), torch.bfloat16, gradient=False)
    assert parse("8:int64:0..10") == TensorSpec((8,), torch.int64, 0, 10)
    assert parse("3:-1.5..2.5") == TensorSpec((3,), None, -1.5, 2.5)
    assert parse("3:ones") == TensorSpec((3,), fill=1.0)
    assert parse("=(1, 'x', None)") == Literal((1, "x", None))
    assert sizes_of(["rows=7", "n=0"]) == {"rows": 7, "n": 0}
    assert literals_of(["eps=1e-5", "name='x'"]) == {"eps": 1e-5, "name": "x"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4,,5", "'' is no size"),
        ("4.5", "is no size"),
        ("4:floaty", "is no dtype"),
        ("4:5..2", "is empty"),
        ("=open('x')", "no Python literal"),
        ("-3", "is no size"),
    ],
)
def test_bad_specifications_say_why(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        spec = parse(text)
    except SpecError:
        return
    assert isinstance(spec, TensorSpec | Literal)


@given(
    st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "bf16", "int64", "bool"]), st.integers(0, 99)
)
def test_what_is_made_has_the_shape_and_the_seed_decides_the_values(shape: list[int], dtype: str, seed: int) -> None:
    spec = parse((",".join(map(str, shape)) or "()") + f":{dtype}")
    (a,), (b,) = (make([spec], sizes={}, device="cpu", dtype=torch.float32, seed=seed) for _ in range(2))
    assert (list(a.shape), a.dtype) == (shape, dtype_named(dtype))
    assert torch.equal(a, b)
    assert a.requires_grad is a.dtype.is_floating_point
    (m,) = make([spec], sizes={}, device="meta", dtype=torch.float32, seed=seed)
    assert (m.shape, m.dtype, m.device.type) == (a.shape, a.dtype, "meta")


def test_named_sizes_and_ranges() -> None:
    (x,) = make([parse("n,3:int64:5..7")], sizes={"n": 50}, device="cpu", dtype=torch.float32, seed=0)
    assert x.shape == (50, 3)
    assert set(x.flatten().tolist()) == {5, 6}
    with pytest.raises(SpecError, match="--size n=NUMBER"):
        make([parse("n")], sizes={}, device="cpu", dtype=torch.float32, seed=0)


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_targets_that_can_not_be_used_say_why(code: Any) -> None:
    path = code("def f(x):\n    return x\nclass Needs:\n    def __init__(self, n): self.n = 1 // n\n")
    with pytest.raises(TargetError, match=r"there is no 'g'; it has Needs, f"):
        load(f"{path}:g")
    with pytest.raises(TargetError, match="there is no such file"):
        load("nowhere.py:f")
    with pytest.raises(TargetError, match="there is no module 'nowhere_at_all'"):
        load("nowhere_at_all.x:f")
    with pytest.raises(TargetError, match=r"importing it raised ZeroDivisionError at .*module2.py:2"):
        load(code("1 / 0\n"))
    with pytest.raises(TargetError, match="importing it raised SyntaxError"):
        load(code("def\n"))
    with pytest.raises(TargetError, match="importing it raised SystemExit"):
        load(code("raise SystemExit(0)\n"))
    with pytest.raises(TargetError, match="give its arguments with --input"):
        load(f"{path}:f").ready(Setup())
    with pytest.raises(TargetError, match=r"its constructor raised ZeroDivisionError at .*:5"):
        load(f"{path}:Needs").ready(Setup(specs=(parse("3"),), options={"n": 0}))


def test_two_files_of_the_same_name(tmp_path: Path) -> None:
    values = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(f"VALUE = {folder!r}\ndef f(x): return x\n")
        values.append(load(f"{tmp_path}/{folder}/same.py:f").module.VALUE)
    assert values == ["a", "b"]


def test_a_module_of_torch_is_constructed_in_the_runs_dtype() -> None:
    setup = Setup(specs=(parse("5,4"),), options={"in_features": 4, "out_features": 3}, dtype=torch.bfloat16)
    layer, (x,) = load("torch.nn:Linear").ready(setup)
    assert (layer.weight.dtype, x.dtype) == (torch.bfloat16, torch.bfloat16)
    again, _ = load("torch.nn:Linear").ready(setup)
    assert torch.equal(layer.weight, again.weight)


# ---- the projection, through the command line ------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "saved"), [(64_902, 1_603_339_264), (64_900, 1_603_289_600)])
def test_the_component(rows: int, saved: int, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", f"rows={rows}", "--compare-size", "rows=5"]
    common = ["--input", "rows,2048", "--dtype", "bf16", "--owners", OWNERS, "--format", "json"]
    status, out, _ = cli(LEGACY, MIGRATED, *sizes, *common, capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert [pair["reduction"] for pair in found["pairs"]] == [saved] * 12
    assert [pair["first"] for pair in found["pairs"]] == ["before", "after"] * 6
    assert found["equal_starts"] == 12
    assert (found["comparisons_equal"], len(found["comparisons"])) == (18, 18)
    assert {each["owner"] for each in found["peak_before"]["live"]} >= {"qkv", "z", "beta", "alpha", "adapters", "base"}
    assert found["peak_before"]["peak_at"]["at"]["op"] == "aten.add.Tensor"
    assert found["peak_after"]["peak_at"]["at"]["op"] == "aten.cat.default"
    assert [(each["name"], each["at_peak"]) for each in found["owners_before"]] == [
        (name, True) for name in ("qkv", "z", "beta", "alpha")
    ]
    assert found["conclusions"] == [
        f"Component evidence: the peak falls by {saved:,} bytes in 12 of 12 pairs. "
        "What a model gains that contains it was not measured."
    ]


def test_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["--input", "batch,time:int64:0..16384"] * 2
    sizes = ["--size", "batch=4", "--size", "time=512", "--compare-size", "time=16", "--compare-size", "batch=1"]
    models = ["fixtures/models/decoder.py:LegacyDecoder", "fixtures/models/decoder.py:MigratedDecoder"]
    more = ["--dtype", "bf16", "--owners", OWNERS, "--pairs", "4"]
    status, out, _ = cli(*models, *tokens, *sizes, *more, "--format", "json", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert found["scope"] == "model"
    assert [pair["reduction"] for pair in found["pairs"]] == [0] * 4
    peak = found["peak_before"]["peak_at"]["at"]
    line = Path(peak["path"]).read_text().splitlines()[peak["line"] - 1]
    assert "F.cross_entropy" in line
    assert len(found["owners_before"]) == 8  # four owners in each of two layers
    assert not any(each["at_peak"] for each in found["owners_before"] + found["owners_after"])
    assert found["comparisons_equal"] == len(found["comparisons"]) == 48
    (sentence,) = found["conclusions"]
    assert sentence.startswith("Whole model: the peak is the same in 4 of 4 pairs. The peak is at")
    assert f"decoder.py:{peak['line']}" in sentence
    assert sentence.endswith("The flagged owners were not alive there.")


# ---- smaller code, whose figures can be worked out by hand -----------------------------------------------------------

TWO = """
def before(x):
    a = x * 2
    b = a + 1
    return b * 3

def after(x):
    a = x * 2
    b = a + 1
    del a
    return b * 3

def wrong(x):
    return (x * 2 + 1) * 3 + 1e-6

def example():
    return torch.ones(1000)

def once(x, state=[]):
    state.append(1)
    return x.sin() if len(state) % 2 else x.sin().cos()
"""


def plan(mode: str = "forward", **more: Any) -> Plan:
    setup = Setup(specs=(parse("1000"),))
    return Plan(setup, setup, mode, **more)


def test_figures_by_hand(code: Any) -> None:
    path = code(TWO)
    owners = (measure_fix.owners_named("before:a"), measure_fix.owners_named("after:a"))
    found = measure(load(f"{path}:before"), load(f"{path}:after"), plan(pairs=3), owners)
    block = 4096
    assert [pair.before.peak for pair in found.pairs] == [4 * block] * 3
    assert [pair.after.peak for pair in found.pairs] == [3 * block] * 3
    assert [pair.first for pair in found.pairs] == ["before", "after", "before"]
    assert [(each.name, each.at_peak) for each in found.owned_before] == [("a", True)]
    # What is returned has no name of its own, and none from the code that measures.
    assert sorted(live.owner for live in found.pairs[0].before.live) == ["", "a", "b", "input 0"]
    # The first of two equal peaks is the sum, whose operand a is: it must live there.
    assert [(each.name, each.at_peak, each.storage.died) for each in found.owned_after] == [("a", True, 2)]
    assert found.ok
    shown = list(text(found))
    assert "the peak falls by 4,096 bytes in 3 of 3 pairs; equal starts in 3 of 3; the order alternates" in shown
    assert any(line.startswith("  *") and "  a  " in line for line in shown)


@pytest.mark.parametrize("mode", ["forward", "gradient", "backward"])
def test_different_numbers_are_not_passed_over(code: Any, mode: str) -> None:
    path = code(TWO)
    found = measure(load(f"{path}:before"), load(f"{path}:wrong"), plan(mode, pairs=1))
    assert not found.ok
    assert any(not each.equal and each.what == "output 0" for each in found.comparisons)
    assert "do not give the same numbers" in " ".join(conclusions(found))


def test_different_starts_are_not_passed_over(code: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = code(TWO + "W = torch.ones(500)\ndef bigger(x):\n    return (x * W.repeat(2) * 2 + 1) * 3\n")
    found = measure(load(f"{path}:before"), load(f"{path}:bigger"), plan(pairs=2))
    assert (found.equal_starts, found.equal) == (0, len(found.comparisons))
    assert found.pairs[0].after.start - found.pairs[0].before.start == 2048  # W is found when it is first used
    assert list(conclusions(found)) == ["The starting allocations differ, so the peaks can't be compared."]
    argv = [f"{path}:before", f"{path}:bigger", "--input", "1000", "--device", "cpu", "--pairs", "1"]
    assert cli(*argv, capsys=capsys)[0] == 1


def test_one_version_alone_and_an_unsteady_one(code: Any) -> None:
    path = code(TWO)
    found = measure(load(f"{path}:before"), None, plan())
    assert len(found.pairs) == 1
    assert list(conclusions(found)) == ["One version was measured; there is nothing to compare it with."]
    unsteady = measure(load(f"{path}:once"), None, plan(), [measure_fix.owners_named("once:x")])
    assert unsteady.owned_before != () or "does not run the same operators" in unsteady.notes[0]


def test_bits() -> None:
    nan = torch.tensor([float("nan"), 1.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert not same_bits(torch.ones(2), torch.ones(2, 1))
    assert same_bits(None, None)
    assert not same_bits(None, torch.ones(1))
    assert same_bits(torch.tensor(2 + 1j), torch.tensor(2 + 1j))


# ---- the fix in memory -----------------------------------------------------------------------------------------------

FIXER = """
def fix(source, path):
    return source.replace("b = a + 1\\n    return", "b = a + 1\\n    del a\\n    return")

def nothing(source, path):
    return source

def breaks(source, path):
    return source + "\\n1 / 0\\n"
"""


def test_a_fix_is_measured_and_nothing_is_written(code: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path, fixer = code(TWO), code(FIXER)
    source = Path(path).read_text()
    argv = [f"{path}:before", "--input", "1000", "--mode", "forward", "--pairs", "2", "--format", "json"]
    status, out, _ = cli(*argv, "--fixer", f"{fixer}:fix", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert [pair["reduction"] for pair in found["pairs"]] == [4096] * 2
    assert found["after"].endswith("(fixed)")
    assert found["peak_after"]["live"][-1]["made"]["text"] in ("b = a + 1", "a = x * 2")
    assert Path(path).read_text() == source
    status, _, err = cli(*argv, "--fixer", f"{fixer}:nothing", capsys=capsys)
    assert (status, "the lifetime fix changes nothing" in err) == (2, True)
    status, _, err = cli(*argv, "--fixer", f"{fixer}:breaks", capsys=capsys)
    assert (status, "ZeroDivisionError" in err) == (2, True)


def test_the_fix_reaches_a_module_that_the_target_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "fixed_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("import torch\n" + TWO)
    (package / "outer.py").write_text(
        "from fixed_package.inner import before\n\nclass Model:\n    def __call__(self, x):\n        return before(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    target = load("fixed_package.outer:Model")
    value, _ = target.ready(Setup(specs=(parse("1000"),)))
    files = measure_fix.files_of(target, value)
    assert sorted(Path(file).name for file in files) == ["__init__.py", "inner.py", "outer.py"]
    kept = {name: sys.modules[name] for name in ("fixed_package.inner", "fixed_package.outer")}

    def fix(source: str, path: str) -> str:
        return source.replace("b = a + 1\n    return", "b = a + 1\n    del a\n    return")

    after = measure_fix.fixed(target, files, fix)
    assert {name: sys.modules[name] for name in kept} == kept
    found = measure(target, after, plan(pairs=2), [measure_fix.owners_named("before:a")], "model")
    assert [pair.reduction for pair in found.pairs] == [4096, 4096]
    assert "inner.py (fixed)" in str(found.pairs[0].after.line)


# ---- the plot, the command -------------------------------------------------------------------------------------------


def test_the_plot_is_a_picture_of_the_figures(code: Any) -> None:
    path = code(TWO)
    owners = [measure_fix.owners_named("before:a")]
    found = measure(load(f"{path}:before"), load(f"{path}:after"), plan(pairs=1), owners)
    tree = ET.fromstring(svg(found))
    space = "{http://www.w3.org/2000/svg}"
    words = " ".join(each.text or "" for each in tree.iter(f"{space}text"))
    assert "peak: mul.Tensor, module1.py:6" in words
    assert "peak 16,384 bytes" in words
    assert "peak 12,288 bytes" in words
    assert len(list(tree.iter(f"{space}circle"))) == 2
    bars = [each for each in tree.iter(f"{space}rect") if each.get("height") == "36"]
    assert len(bars) == len(found.pairs[0].before.live) + len(found.pairs[0].after.live)
    # Bars are in proportion to the bytes: the whole of the larger peak spans the panel.
    widths = [float(each.get("width") or 0) for each in bars]
    assert sum(widths[:4]) == pytest.approx(852, abs=0.1)
    assert sum(widths[4:]) == pytest.approx(852 * 3 / 4, abs=0.1)


def test_the_picture_has_the_live_sets_too(code: Any) -> None:
    pytest.importorskip("matplotlib")
    path = code(TWO)
    owners = [measure_fix.owners_named("before:a")]
    found = measure(load(f"{path}:before"), load(f"{path}:after"), plan(pairs=1), owners)
    curves, bars = figure(found).axes
    told = [text.get_text() for text in curves.texts]
    assert "peak: mul.Tensor, module1.py:6" in told
    assert len(told) == 2
    lengths = [round(bar.get_width() * 1024) for bar in bars.patches]
    assert lengths == [each.bytes for run in (found.pairs[0].before, found.pairs[0].after) for each in run.live]
    assert bars.get_xlabel() == "alive at the peak, KiB (flagged owners in orange)"


@given(st.floats(0.01, 1e6))
def test_ticks_are_few_round_and_within(largest: float) -> None:
    found = ticks(largest)
    assert 2 <= len(found) <= 9
    assert found[0] == 0
    assert found[-1] <= largest * (1 + 1e-9)


def test_one_storage_that_is_gone_at_the_peak(code: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = code("def early(x):\n    a = x * 2\n    b = a.sum()\n    del a\n    return b + x * 3 + (x * 4 - x * 5)\n")
    status, out, _ = cli(f"{path}:early", "--input", "64,64", "--mode", "forward", "--owners", "early:a", capsys=capsys)
    assert status == 0
    assert "its storage was not alive at the peak (16,384 bytes)" in out


def test_plots_are_written(code: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [f"{code(TWO)}:before", "--mode", "forward"]
    status, out, err = cli(*argv, "--plot", str(tmp_path / "p.svg"), capsys=capsys)
    assert (status, "plot:" in err, out.startswith("target: ")) == (0, True, True)
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    status, _, err = cli(*argv, "--plot", str(tmp_path / "p.gif"), capsys=capsys)
    assert (status, "a plot is a .svg or a .png" in err) == (2, True)
    status, _, err = cli(*argv, "--plot", str(tmp_path / "no/such/folder.svg"), capsys=capsys)
    assert (status, "can't be written" in err) == (2, True)
    pytest.importorskip("matplotlib")
    status, _, _ = cli(*argv, "--plot", str(tmp_path / "p.png"), capsys=capsys)
    assert (status, (tmp_path / "p.png").read_bytes()[:4]) == (0, b"\x89PNG")


def test_mistakes_are_one_line(code: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = code(TWO + "def bad(x):\n    return x @ torch.ones(3)\ndef index(x):\n    return x.argmax()\n")
    for argv, why in [
        ((f"{path}:before", f"{path}:after", "--fix"), "give a second version, or --fix"),
        ((f"{path}:bad", "--input", "5"), r"running it raised RuntimeError at"),
        ((f"{path}:before", "--input", "5,q"), "--size q=NUMBER"),
        ((f"{path}:before", "--device", "warp"), "can't be used"),
        ((f"{path}:before", "--owners", "nonsense"), "give owners as"),
        ((f"{path}:index", "--input", "5"), "--mode forward"),
        ((f"{path}:before", "--init", "3"), "give it as name=value"),
    ]:
        status, out, err = cli(*argv, capsys=capsys)
        assert (status, out) == (2, ""), argv
        assert why in err
        assert len(err.strip().splitlines()) == 1


def test_json_has_the_timeline_if_asked(code: Any) -> None:
    found = measure(load(f"{code(TWO)}:before"), None, plan())
    assert "timeline" not in to_dict(found)["peak_before"]
    timeline = to_dict(found, timeline=True)["peak_before"]["timeline"]
    assert [event["at"]["op"] for event in timeline] == ["aten.mul.Tensor", "aten.add.Tensor", "aten.mul.Tensor"]
    assert json.loads(json.dumps(timeline)) == timeline


def test_the_command_line_imports_no_torch_for_help() -> None:
    script = "import sys; from cachelint.cli import run; run(['measure', '--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_counters_stand_beside(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [LEGACY, MIGRATED, "--input", "rows,2048", "--size", "rows=64902", "--compare-size", "rows=64"]
    status, out, _ = cli(*argv, "--dtype", "bf16", "--device", "cuda", "--format", "json", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    for pair in found["pairs"]:
        before, after = pair["before"]["cuda"][0], pair["after"]["cuda"][0]
        assert before["allocated_start"] == after["allocated_start"]
        assert before["allocated_peak"] - after["allocated_peak"] == pytest.approx(pair["reduction"], rel=0.01)
