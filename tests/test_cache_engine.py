"""The cache under the real engine: whatever a verdict rests on elsewhere, a warm run says what a cold one says."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachelint import cache
from cachelint.config import Configs
from cachelint.runner import Options, Report, run

LAYER = """\
import torch
from {source} import stats

class {name}(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.s = stats(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s * ctx.scale, None
"""

CHILD = """\
from base import Base

class {name}(Base):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y
"""

HELPER = """\
import torch

def _keep(ctx, x):
    ctx.s = x.exp()
    ctx.dead = x.exp()

class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        _keep(ctx, x)
        return ctx.s * 2

    @staticmethod
    def backward(ctx, g):
        return g * _read(ctx)

def _read(ctx):
    return ctx.s
"""

SCALED = """\
import torch

class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None
"""

ALONE = """\
import torch

class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.mm(x, x)
        ctx.s = s
        return s * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.s
"""

BASES = (
    "import torch\nclass Base(torch.autograd.Function):\n    @staticmethod\n    def backward(ctx, g):\n"
    "        return g * ctx.y\n",
    "import torch\nclass Base(torch.autograd.Function):\n    pass\n",
    "from root import Root\nclass Base(Root):\n    pass\n",
    "from root import *\n",
)
ROOTS = (
    BASES[0].replace("Base", "Root"),
    BASES[1].replace("Base", "Root"),
    BASES[0].replace("Base", "Root") + "class Base(Root):\n    pass\n",
)
STATS = (
    "def stats(x):\n    return x.mean()\n",
    "def stats(x):\n    return x.shape[0]\n",
    "def stats(x):\n    return x @ x\n",
    "def stats(x):\n    return other(x)\nfrom pkg.other import stats as other\n",
)
CONTENTS: dict[str, tuple[str, ...]] = {
    "a": (
        LAYER.format(name="A", source="pkg"),
        LAYER.format(name="A", source="pkg.impl"),
        HELPER,
        CHILD.format(name="A"),
    ),
    "b": (LAYER.format(name="B", source="pkg"), LAYER.format(name="B", source="reexport"), CHILD.format(name="B")),
    "c": (CHILD.format(name="C"), "from a import A\nclass C(A):\n    pass\n"),
    "base": BASES,
    "root": ROOTS,
    "reexport": ("from pkg import stats\n", "from pkg.other import stats\n", "from pkg.impl import *\n"),
    "pkg/__init__": (
        "from pkg.impl import stats\n",
        "from .other import stats\n",
        "",
        "try:\n    from .gone import stats\nexcept ImportError:\n    from .impl import stats\n",
    ),
    "pkg/impl": STATS,
    "pkg/other": STATS[:3],
    "pkg/gone": STATS[:3],
    "use": (
        "from a import A\ndef f(x):\n    return A.apply(x, 0.5)\n",
        "import a\ndef f(x, t):\n    return a.A.apply(x, t.exp())\n",
        "from b import B\nB.apply(1, 2)\n",
        "def f(y):\n    return y.grad_fn.s\n",
        "from a import A\ndef f(y):\n    return y.grad_fn.scale, A, '_keep'\n",
        "",
    ),
    "more": (
        "import torch\nfrom a import A\nA.apply(torch.zeros(2), torch.ones(2))\n",
        "from a import A\ndef g(o):\n    return o.dead, A\n",
        "from a import _read\n",
        "x = 1\n",
    ),
}


def _run(folder: Path, use_cache: bool, *paths: str) -> Report:
    return run(paths, Configs(str(folder)), Options(jobs=1, use_cache=use_cache), cwd=str(folder))


@pytest.mark.parametrize(
    ("own", "text", "what"),
    [
        (HELPER, "from a import A\ndef g(o):\n    return o.dead, A\n", "a reader elsewhere keeps a field alive"),
        (ALONE, "from a import A\nclass B(A):\n    pass\n", "a fix would change a class that derives from it"),
        (ALONE, "def g(o):\n    return o.grad_fn.s\n", "a fix would move what is read off the graph"),
        (SCALED, "from a import A\ndef f(x):\n    return A.apply(x, 0.5)\n", "a caller passes a number"),
    ],
)
def test_what_another_file_says_of_a_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, text: str, what: str
) -> None:
    """Such a file may change, go and come back."""
    monkeypatch.setattr(cache, "tool_digest", lambda: "tool")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "a.py").write_text(own)
    other = tmp_path / "other.py"
    seen = []
    for content in (text, "x = 1\n", text, None, text):
        other.unlink(missing_ok=True)
        if content is not None:
            other.write_text(content)
        warm, cold = (_run(tmp_path, use_cache, "a.py") for use_cache in (True, False))
        assert (warm.types, warm.findings) == (cold.types, cold.findings), what
        seen.append((cold.types, cold.findings))
    assert seen[0] == seen[2] == seen[4]
    assert seen[1] == seen[3]
    assert seen[0] != seen[1], f"the example no longer shows that {what}"


class EngineCacheMachine(RuleBasedStateMachine):
    """Rewrites the modules of a small project at random."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.before = cache.tool_digest
        cache.tool_digest = lambda: "tool"  # type: ignore[assignment]
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "pyproject.toml").touch()
        (self.folder / "pkg").mkdir()
        for name, contents in CONTENTS.items():
            (self.folder / f"{name}.py").write_text(data.draw(st.sampled_from(contents)))
        self.paths: tuple[str, ...] = (".",)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
            cache.tool_digest = self.before

    @rule(name=st.sampled_from(sorted(CONTENTS)), data=st.data())
    def write(self, name: str, data: st.DataObject) -> None:
        (self.folder / f"{name}.py").write_text(data.draw(st.sampled_from(CONTENTS[name])))

    @rule(name=st.sampled_from(sorted(CONTENTS)))
    def delete(self, name: str) -> None:
        (self.folder / f"{name}.py").unlink(missing_ok=True)

    @rule(paths=st.sampled_from([(".",), ("a.py",), ("b.py", "c.py")]))
    def ask_for(self, paths: tuple[str, ...]) -> None:
        self.paths = tuple(path for path in paths if (self.folder / path).exists()) or (".",)

    @invariant()
    def warm_is_cold(self) -> None:
        if not hasattr(self, "folder") or not all((self.folder / path).exists() for path in self.paths):
            return
        warm, cold = _run(self.folder, True, *self.paths), _run(self.folder, False, *self.paths)
        assert warm.types == cold.types
        assert warm.findings == cold.findings
        assert warm.errors == cold.errors
        # One file alone is told the same as all together.
        whole = _run(self.folder, False, ".")
        assert cold.types == tuple(one for one in whole.types if one.path in cold.files)
        assert cold.findings == tuple(one for one in whole.findings if one.path in cold.files)


EngineCacheMachine.TestCase.settings = hypothesis_settings(max_examples=12, stateful_step_count=12, deadline=None)
TestEngineCacheMachine = EngineCacheMachine.TestCase
