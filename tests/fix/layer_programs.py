"""Random layers with random caching habits, as source text, for tests that run them before and after their fix."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

HEAD = '''"""A generated layer."""

import torch
from torch import Tensor

from cachelint.runtime import Node, Parameter


class Layer(Node):
    """A generated layer."""

    def __init__(self, flag: bool = True):
        self.flag = flag
        self.scale = 1.25
        self.weight = Parameter(torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3))
'''

SIGNATURES = {
    "live": "grad: Tensor, x: Tensor",
    "none": "grad: Tensor",
    "optional": "grad: Tensor, x: Tensor | None = None",
}


@dataclass
class Parts:
    """The pieces of one layer."""

    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)

    def text(self, signature: str) -> str:
        """The layer as a module."""
        lines = [HEAD.rstrip("\n"), *(f"        {line}" for line in self.init), ""]
        lines += ["    def forward(self, x: Tensor) -> Tensor:", *(f"        {line}" for line in self.forward)]
        lines += [f"        return {' + '.join(self.out)}", ""]
        lines += [f"    def backward(self, {SIGNATURES[signature]}):", *(f"        {line}" for line in self.backward)]
        lines += [f"        return (grad * ({' + '.join(self.terms)}),)"]
        for helper in self.helpers:
            lines += ["", *(f"    {line}" for line in helper.splitlines())]
        return "\n".join(lines) + "\n"


CHEAP = (
    "torch.exp(x)",
    "x * self.scale",
    "x.sigmoid() + x",
    "(x - x.mean(-1, keepdim=True)) ** 2",
    "x.reshape(-1).reshape(3, 3)",
)
DEAR = ("x @ self.weight.value", "torch.softmax(x, -1)", "x * self.weight.value", "torch.rand_like(x)")


@st.composite
def layers(draw: st.DrawFn) -> str:
    """The text of one layer."""
    parts = Parts(out=["x * 2"])
    signature = draw(st.sampled_from(sorted(SIGNATURES)))
    count = draw(st.integers(1, 4))
    plain: list[str] = []
    for number in range(count):
        name = f"f{number}"
        kind = draw(
            st.sampled_from(
                [
                    "alias",
                    "kept",
                    "cheap",
                    "chain",
                    "other",
                    "dear",
                    "branch",
                    "list",
                    "loop",
                    "dict",
                    "writer",
                    "dead",
                    "mode",
                    "tuple",
                    "augmented",
                    "inplace",
                    "early",
                    "property",
                    "reset",
                    "pull",
                    "with",
                ]
            )
        )
        read = f"self.{name}"
        if draw(st.booleans()) and kind not in ("list", "loop", "dict"):
            parts.init.append(f"self.{name} = None")
        elif kind not in ("list", "loop", "dict"):
            parts.init.append(f"self.{name}: Tensor | None = None")
        if kind == "alias":
            parts.forward.append(f"self.{name} = x")
        elif kind == "kept":
            parts.forward.append(f"self._keep_{name}(x)")
            parts.helpers.append(f"def _keep_{name}(self, value: Tensor) -> None:\n    self.{name} = value")
        elif kind == "cheap":
            parts.forward.append(f"self.{name} = {draw(st.sampled_from(CHEAP))}")
        elif kind == "chain":
            parts.forward += [
                f"t{number} = {draw(st.sampled_from(CHEAP))}",
                f"self.{name} = torch.tanh(t{number}) * t{number}",
            ]
            if draw(st.booleans()):
                parts.out.append(f"t{number}")
        elif kind == "other" and plain:
            parts.forward.append(f"self.{name} = self.{draw(st.sampled_from(plain))} * 0.5  # from another")
        elif kind == "branch":
            first, second = draw(st.sampled_from(CHEAP)), draw(st.sampled_from(DEAR))
            parts.forward += ["if self.flag:", f"    self.{name} = {first}", "else:", f"    self.{name} = {second}"]
        elif kind == "list":
            parts.init.append(f"self.{name} = []")
            parts.forward.append(f"self.{name} = [x * 3, {draw(st.sampled_from(DEAR))}]")
            read = f"sum(self.{name})"
        elif kind == "loop":
            parts.init.append(f"self.{name} = []")
            parts.forward += [
                f"self.{name} = []",
                "for power in range(2):",
                f"    self.{name}.append(x @ self.weight.value * power)",
            ]
            read = f"(self.{name}[0] + self.{name}[1])"
        elif kind == "dict":
            parts.init.append(f"self.{name} = {{}}")
            parts.forward.append(f'self.{name} = {{"a": {draw(st.sampled_from(DEAR))}, "b": x + 1}}')
            read = f'(self.{name}["a"] - self.{name}["b"])'
        elif kind == "writer":
            parts.init.append(f"self.{name}b = None")
            parts.forward.append(f"self._make_{name}(x)")
            parts.helpers.append(
                f"def _make_{name}(self, x: Tensor) -> None:\n    inner = x * self.scale\n"
                f"    self.{name} = inner.cos()\n    self.{name}b = inner.sin()"
            )
            parts.out.append(f"self.{name} * 0.1")
            read = f"(self.{name} * self.{name}b)"
        elif kind == "tuple":
            parts.init.append(f"self.{name}b = None")
            parts.forward.append(f"self.{name}, self.{name}b = {draw(st.sampled_from(CHEAP))}, x")
            read = f"(self.{name} + self.{name}b)"
        elif kind == "augmented":
            parts.forward += [f"self.{name} = {draw(st.sampled_from(CHEAP))}", f"self.{name} = self.{name} + 1"]
            if draw(st.booleans()):
                parts.forward[-1] = f"self.{name} += 1"
        elif kind == "inplace":
            parts.forward += [
                f"u{number} = x * 2",
                f"self.{name} = {draw(st.sampled_from(['u', 'torch.exp(u', '(u']))}{number}",
            ]
            if "(" in parts.forward[-1]:
                parts.forward[-1] += ")"
            parts.forward.append(f"u{number}.add_(1)")
        elif kind == "early":
            parts.forward.append(f"self.{name} = {draw(st.sampled_from((*CHEAP, *DEAR, 'x')))}")
            parts.forward += ["if not self.flag:", "    return x * 2"]
        elif kind == "property":
            parts.forward.append(f"self.{name} = {draw(st.sampled_from((*CHEAP, 'x')))}")
            parts.helpers.append(f"@property\ndef shown_{name}(self):\n    return self.{name}")
        elif kind == "reset":
            parts.forward.append(f"self.{name} = {draw(st.sampled_from((*CHEAP, *DEAR, 'x')))}")
            parts.helpers.append(f"def reset_{name}(self) -> None:\n    self.{name} = None")
        elif kind == "pull":
            parts.forward.append(f"self.{name} = {draw(st.sampled_from((*CHEAP, *DEAR, 'x')))}")
            parts.helpers.append(f"def _pull_{name}(self, factor: float) -> Tensor:\n    return self.{name} * factor")
            read = f"self._pull_{name}(0.5)"
        elif kind == "with":
            parts.forward += [
                "with torch.no_grad():",
                f"    self.{name} = {draw(st.sampled_from((*CHEAP, *DEAR, 'x')))}",
            ]
        elif kind == "mode":
            parts.forward.append(f"self.{name} = x @ self.weight.value if self.training else x")
        else:
            parts.forward.append(f"self.{name} = {draw(st.sampled_from(DEAR))}")
        if kind in ("alias", "cheap", "chain", "dear", "other", "kept"):
            plain.append(name)
            if draw(st.integers(0, 3)) == 0:
                parts.out.append(f"self.{name}")
        if kind == "dead":
            continue
        habit = draw(st.sampled_from(["direct", "local", "guard", "stale", "fallback"]))
        if habit == "local":
            parts.backward.append(f"v{number} = {read}")
            read = f"v{number}"
        elif habit == "guard" and kind in ("alias", "cheap", "dear", "chain", "reset", "early"):
            parts.backward += [f"if self.{name} is None:", '    raise RuntimeError("backward before forward")']
        elif habit == "stale" and kind in ("alias", "kept") and signature != "none":
            parts.backward.append(f"x{number} = self.{name} if self.{name} is not None else x")
            read = f"x{number}"
        elif habit == "fallback" and kind in ("alias", "kept") and signature == "optional":
            parts.backward += ["if x is None:", f"    x = self.{name}"]
            read = "x"
        parts.terms.append(read)
    if draw(st.booleans()) or not parts.terms:
        parts.terms.append("self.scale")
    return parts.text(signature)
