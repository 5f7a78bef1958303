"""Helpers that read what is saved, in this file or another: they are handed it, and mean what they meant to others."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cachelint.config import Configs
from cachelint.fix import api
from cachelint.fix.api import Summary, fix_findings
from cachelint.runner import Options, run
from cachelint.source import Source, WriteRefused
from tests.fix.differential import same

RESTORE = '''"""Tensors and objects that hold tensors."""


def unpack(objects, tensors):
    found = []
    for item in objects:
        found.append(tensors[0])
        tensors = tensors[1:]
    return found, tensors


def restore(ctx, with_rest=False):
    """What forward saved."""
    if not hasattr(ctx, "objects") or ctx.objects is None:
        raise AttributeError("nothing to restore")
    found, rest = unpack(ctx.objects, ctx.saved_tensors)
    ctx.objects = None
    return (found, rest) if with_rest else found
'''

FUNCTIONS = """import torch

from restore import restore


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, mask: torch.Tensor):
        tensors = [x]
        ctx.objects = [None]
        ctx.save_for_backward(*tensors)
        ctx.mask = mask
        return x * x * mask

    @staticmethod
    def backward(ctx, grad):
        (x,) = restore(ctx)
        return 2 * x * ctx.mask * grad, None


class Stepped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, steps: int):
        powers = [x]
        for _ in range(steps):
            powers.append(powers[-1] * x)
        shifts = [x + float(n) for n in range(steps)]
        ctx.objects = [None]
        ctx.steps = steps
        ctx.save_for_backward(x)
        if steps > 1:
            ctx.powers = powers
            ctx.shifts = shifts
        return powers[-1]

    @staticmethod
    def backward(ctx, grad):
        (x,) = restore(ctx)
        total = grad * (ctx.steps + 1)
        if ctx.steps > 1:
            for power, shift in zip(ctx.powers, ctx.shifts):
                total = total + 0 * power * shift
            return total * ctx.powers[ctx.steps - 1], None
        return total * x**ctx.steps, None


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.objects = [None]
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,), rest = restore(ctx, True)
        assert len(rest) == 0
        return grad * x.cos()
"""

OTHERS = """from functions import Plain
from restore import restore
import torch


class Another(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, weight: torch.Tensor):
        ctx.objects = [None]
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        restore(ctx)
        return grad * ctx.weight, None
"""

TWO_FILES = {"restore.py": RESTORE, "functions.py": FUNCTIONS, "others.py": OTHERS}
ONE_FILE = {
    "functions.py": RESTORE + FUNCTIONS.replace("import torch\n\nfrom restore import restore\n", "import torch\n")
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def fixed(folder: Path, **options: Any) -> Summary:
    report = run(["."], Configs(str(folder)), Options(use_cache=False), cwd=str(folder))
    found = [f for f in report.findings if f.code.startswith("CL10")]
    return fix_findings(found, Configs(str(folder)), str(folder), **options)


def loaded(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for module in ("restore", "functions", "others"):
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(sys, "dont_write_bytecode", True)
        return importlib.import_module(name)


def numbers(module: ModuleType, wrap: str = "") -> list[Tensor | None]:
    """Outputs and gradients of every function, with what else may look at saved tensors around it."""
    found: list[Tensor | None] = []
    calls = [("Masked", (torch.tensor([1.0, 0.0, 2.0]),)), ("Stepped", (1,)), ("Stepped", (3,)), ("Plain", ())]
    for name, rest in calls:
        x = torch.tensor([0.5, 1.5, -2.0]).requires_grad_()
        apply = getattr(module, name).apply
        if wrap == "hooks":
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
                output = apply(x, *rest)
        elif wrap == "checkpoint":
            output = checkpoint(lambda value: apply(value.exp(), *rest), x, use_reentrant=False)  # noqa: B023
        else:
            output = apply(x, *rest)
        found += [output.detach(), *torch.autograd.grad(output, [x], torch.tensor([1.0, 2.0, 3.0]))]
    return found


@pytest.mark.parametrize("wrap", ["", "hooks", "checkpoint"])
@pytest.mark.parametrize("files", [TWO_FILES, ONE_FILE], ids=["two files", "one file"])
def test_the_numbers_stay(files: dict[str, str], wrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, files)
    before = numbers(loaded(tmp_path, "functions", monkeypatch), wrap)
    summary = fixed(tmp_path)
    assert [r.reason for r in summary.refused] == []
    assert {f.field for plan in summary.applied for f in plan.findings} >= {"mask", "powers", "shifts"}
    after = numbers(loaded(tmp_path, "functions", monkeypatch), wrap)
    assert len(before) == len(after)
    assert all(map(same, before, after))
    assert fixed(tmp_path).changed == []


@pytest.mark.parametrize("write", [True, False])
def test_a_helper_gets_one_parameter_for_all(write: bool, tmp_path: Path) -> None:
    written(tmp_path, TWO_FILES)
    summary = fixed(tmp_path, write=write)
    changed = {one.source.path: one.fixed.text for one in summary.changed}
    assert sorted(changed) == ["functions.py", "others.py", "restore.py"]
    assert len([one for one in summary.files if one.source.path == "restore.py"]) == 1
    wanted = RESTORE.replace("with_rest=False):", "with_rest=False, saved_tensors=None):").replace(
        "    found, rest = unpack(ctx.objects, ctx.saved_tensors)\n",
        "    if saved_tensors is None:\n        saved_tensors = ctx.saved_tensors\n"
        "    found, rest = unpack(ctx.objects, saved_tensors)\n",
    )
    assert changed["restore.py"] == wanted
    assert "restore(ctx, True)" in changed["functions.py"]  # a class with nothing to fix is left alone
    for name, text in TWO_FILES.items():
        assert (tmp_path / name).read_text() == (changed[name] if write else text)


def test_a_read_that_may_not_happen_stays_where_it_is(tmp_path: Path) -> None:
    odd = RESTORE.replace("ctx.saved_tensors)", "ctx.saved_tensors if ctx.objects else ())")
    written(tmp_path, TWO_FILES | {"restore.py": odd})
    text = {one.source.path: one.fixed.text for one in fixed(tmp_path).changed}["restore.py"]
    assert "(ctx.saved_tensors if saved_tensors is None else saved_tensors) if ctx.objects else ()" in text
    assert fixed(tmp_path).changed == []


REFUSED = {
    "the helper reads the field": (
        {"restore.py": RESTORE.replace("    found, rest", "    ctx.mask, ctx.powers, ctx.shifts\n    found, rest")},
        "in another file",
    ),
    "the helper saves as well": (
        {"restore.py": RESTORE.replace("    ctx.objects = None", "    ctx.save_for_backward()")},
        "in another file",
    ),
    "the helper gives ctx away": (
        {"restore.py": RESTORE.replace("    ctx.objects = None", "    print(vars(ctx))")},
        "ctx escapes",
    ),
    "any arguments": (
        {"restore.py": RESTORE.replace("with_rest=False)", "with_rest=False, **more)")},
        "read in a helper",
    ),
    "defined twice": (
        {"restore.py": RESTORE.replace("def restore", "def restore(ctx):\n    return 1\n\n\ndef restore", 1)},
        "read in a helper",
    ),
    "a fallback": (
        {
            "functions.py": FUNCTIONS.replace(
                "from restore import restore\n",
                "try:\n    from restore import restore\nexcept ImportError:\n    from elsewhere import restore\n",
            )
        },
        "read in a helper",
    ),
    "patched": ({"test_it.py": "import restore\nrestore.restore = lambda ctx: []\n"}, "read in a helper"),
    "patched by name": ({"test_it.py": "def test(patch):\n    patch('restore.restore', len)\n"}, "read in a helper"),
    "a faster one in its place": (
        {"restore.py": RESTORE + "\n\ntry:\n    from faster import restore\nexcept ImportError:\n    pass\n"},
        "read in a helper",
    ),
    "bound again among others": ({"restore.py": RESTORE + "\n\nrestore, other = restore, 1\n"}, "read in a helper"),
    "bound again by a loop": (
        {"restore.py": RESTORE + "\n\nfor restore in [restore]:\n    pass\n"},
        "read in a helper",
    ),
    "bound again, with a type": ({"restore.py": RESTORE + "\n\nrestore: object = len\n"}, "read in a helper"),
    "bound again where it is used": (
        {"functions.py": FUNCTIONS + "\n\ndef change():\n    global restore\n    restore, _ = len, 1\n"},
        "read in a helper",
    ),
    "called with any arguments": (
        {"functions.py": FUNCTIONS.replace("(x,) = restore(ctx)", "(x,) = restore(ctx, *())")},
        "read in a helper",
    ),
    "called in a nested function": (
        {"functions.py": FUNCTIONS.replace("(x,) = restore(ctx)", "(x,) = (lambda: restore(ctx))()")},
        "read in a helper",
    ),
}


@pytest.mark.parametrize(
    "read",
    ['getattr(ctx, "saved_tensors")', 'getattr(ctx, "saved_tensors", ())', 'ctx.__getattribute__("saved_tensors")'],
)
def test_what_is_saved_is_not_moved_where_it_is_read_by_a_name(read: str, tmp_path: Path) -> None:
    helper = f"def restore(ctx):\n    (x,) = {read}\n    return (x,)\n"
    files = {"functions.py": FUNCTIONS, "restore.py": helper}
    written(tmp_path, files)
    summary = fixed(tmp_path)
    assert summary.changed == []
    assert all(r.reason.strip() and "\n" not in r.reason for r in summary.refused)
    assert {name: (tmp_path / name).read_text() for name in files} == files


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_mean_something_else_is_left_alone(case: str, tmp_path: Path) -> None:
    changes, kind = REFUSED[case]
    files = {name: text for name, text in TWO_FILES.items() if name != "others.py"} | changes
    written(tmp_path, files)
    summary = fixed(tmp_path)
    assert summary.changed == []
    assert {r.kind for r in summary.refused} == {kind}
    assert all(r.reason.strip() and "\n" not in r.reason for r in summary.refused)


def test_only_files_that_were_named_are_changed(tmp_path: Path) -> None:
    written(tmp_path, TWO_FILES)
    summary = fixed(tmp_path, within=["functions.py", "others.py"])
    assert summary.changed == []
    assert {r.kind for r in summary.refused} == {"in another file"}
    assert all("restore.py" in r.reason for r in summary.refused)
    assert fixed(tmp_path, within=["functions.py", "restore.py"]).changed


def test_a_buffer_in_an_editor_is_never_fixed_by_half(tmp_path: Path) -> None:
    written(tmp_path, TWO_FILES)
    path = os.path.join(str(tmp_path), "functions.py")
    summary = fixed(tmp_path, overlay={path: FUNCTIONS.encode()}, write=False)
    assert summary.changed == []


def test_nothing_changes_where_the_helper_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TWO_FILES)
    real = api.write_back

    def refusing(source: Source, text: str) -> bool:
        if source.path == "restore.py":
            raise WriteRefused(source.path, "is write-protected")
        return real(source, text)

    monkeypatch.setattr(api, "write_back", refusing)
    summary = fixed(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in TWO_FILES} == TWO_FILES
    assert summary.changed == []
    assert all("write-protected" in error.message for error in summary.errors)
    assert {error.path for error in summary.errors} == {"restore.py", "functions.py", "others.py"}
