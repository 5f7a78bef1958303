"""Layers before and after, form by form."""

from __future__ import annotations

import ast
import os
from textwrap import dedent

import pytest

from cachelint.fix.apply import Fixed, fix_text
from cachelint.index.project import Project
from cachelint.model import Applicability
from cachelint.settings import ContractSpec, Settings
from cachelint.source import decode

NODE = "import torch\n\nfrom cachelint.runtime import Node\n\n\n"
SAVER = "import torch\n\nfrom cachelint.runtime import Node, SaverAware\n\n\n"


def fixed(text: str, *, unsafe: bool = False, contract: ContractSpec | None = None, **others: str) -> Fixed:
    """The outcome of fixing a text; ``others`` are further files of the project, by the name of the module."""
    here = os.path.abspath("layers.py")
    texts = {here: text, **{os.path.abspath(f"{name}.py"): code for name, code in others.items()}}
    project = Project(
        os.path.dirname(here), list(texts), texts.get, lambda p: texts[p].encode() if p in texts else None
    )
    settings = Settings(select=("ALL",), contract=contract or ContractSpec())
    return fix_text(decode(text.encode(), "layers.py", here), project, settings, unsafe=unsafe)


def code(text: str) -> str:
    return dedent(text).lstrip("\n")


def becomes(before: str, after: str, **options: object) -> Fixed:
    outcome = fixed(before, **options)  # type: ignore[arg-type]
    assert outcome.text == after
    assert outcome.refused == ()
    ast.parse(outcome.text)
    again = fixed(outcome.text, **options)  # type: ignore[arg-type]
    assert again.text == outcome.text
    return outcome


# ---- live inputs


def test_a_live_input_is_read() -> None:
    becomes(
        NODE
        + code(
            """
            class Square(Node):
                def __init__(self):
                    self.x = None  # for backward

                # The square.
                def forward(self, x):
                    self.x = x
                    return x * x

                def backward(self, grad, x):
                    return (2 * self.x * grad,)  # twice
            """
        ),
        NODE
        + code(
            """
            class Square(Node):
                # The square.
                def forward(self, x):
                    return x * x

                def backward(self, grad, x):
                    return (2 * x * grad,)  # twice
            """
        ),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = self.x if self.x is not None else x\nreturn (2 * x * grad,)", "return (2 * x * grad,)"),
        ("x = x if x is not None else self.x\nreturn (2 * x * grad,)", "return (2 * x * grad,)"),
        ("if self.x is not None:\n    x = self.x\nreturn (2 * x * grad,)", "return (2 * x * grad,)"),
        ("if x is None:\n    x = self.x\nreturn (2 * x * grad,)", "return (2 * x * grad,)"),
        ("y = self.x if x is None else x\nreturn (2 * y * grad,)", "y = x\nreturn (2 * y * grad,)"),
        (
            "if self.x is None:\n    raise RuntimeError\nelse:\n    grad = 2 * grad\nreturn (self.x * grad,)",
            "grad = 2 * grad\nreturn (x * grad,)",
        ),
    ],
)
def test_choices_between_cache_and_input_are_decided(before: str, after: str) -> None:
    def layer(forward: str, backward: str, signature: str) -> str:
        lines = "\n".join(f"        {line}" for line in backward.splitlines())
        return (
            f"{NODE}class Square(Node):\n    def forward(self, x: torch.Tensor):\n{forward}        return x * x\n\n"
            f"    def backward(self, grad, {signature}):\n{lines}\n"
        )

    becomes(layer("        self.x = x\n", before, "x: torch.Tensor | None = None"), layer("", after, "x: torch.Tensor"))


def test_inputs_are_matched_through_helpers_and_by_place() -> None:
    becomes(
        NODE
        + code(
            """
            class Scale(Node):
                def forward(self, x, factor):
                    self._keep(factor, x)
                    return x * factor

                def _keep(self, second, first):
                    self.first = first
                    self.second = second

                def backward(self, grad, a, b):
                    return grad * self.second, grad * self.first
            """
        ),
        NODE
        + code(
            """
            class Scale(Node):
                def forward(self, x, factor):
                    self._keep(factor, x)
                    return x * factor

                def _keep(self, second, first):
                    pass

                def backward(self, grad, a, b):
                    return grad * b, grad * a
            """
        ),
    )


def test_a_field_that_others_read_is_registered() -> None:
    before = NODE + code(
        """
        class Square(Node):
            def forward(self, x):
                self.x = x
                return x * x

            def backward(self, grad, x):
                return (2 * self.x * grad,)
        """
    )
    outcome = fixed(before, other="from layers import Square\n\n\ndef peek(square: Square):\n    return square.x\n")
    assert "        self.x = x\n        self.save_for_backward(self.x)\n" in outcome.text
    assert "(2 * self.x * grad,)" in outcome.text
    assert any("other.py:5 reads it" in note for plan in outcome.applied for note in plan.notes)


def test_a_caller_without_the_input_keeps_the_field() -> None:
    before = NODE + code(
        """
        class Square(Node):
            def forward(self, x):
                self.x = x
                return x * x

            def backward(self, grad, x=None):
                if x is None:
                    x = self.x
                return (2 * x * grad,)
        """
    )
    caller = "from layers import Square\n\n\ndef run(square: Square, grad):\n    return square.backward(grad)\n"
    kept = fixed(before, other=caller)
    assert "self.save_for_backward(self.x)" in kept.text
    assert "x=None" in kept.text
    gone = fixed(before, other=caller.replace("(grad)", "(grad, 1)"))
    assert "self.x" not in gone.text
    assert "def backward(self, grad, x):" in gone.text


def test_what_backward_does_not_receive_is_registered() -> None:
    becomes(
        NODE
        + code(
            """
            class Square(Node):
                def forward(self, x):
                    self.x = x
                    return x * x

                def backward(self, grad):
                    return (2 * self.x * grad,)
            """
        ),
        SAVER
        + code(
            """
            class Square(SaverAware, Node):
                def forward(self, x):
                    self.x = x
                    self.save_for_backward(self.x)
                    return x * x

                def backward(self, grad):
                    return (2 * self.x * grad,)
            """
        ),
    )


# ---- derived values


def test_one_line_is_repeated() -> None:
    becomes(
        NODE
        + code(
            """
            class Norm(Node):
                def __init__(self, eps=1e-6):
                    self.eps = eps

                def forward(self, x):
                    self.r = torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)
                    return x * self.r

                def backward(self, grad, x):
                    r = self.r
                    return (grad * r - x * (grad * x).mean(-1, keepdim=True) * r**3,)
            """
        ),
        NODE
        + code(
            """
            class Norm(Node):
                def __init__(self, eps=1e-6):
                    self.eps = eps

                def forward(self, x):
                    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)
                    return x * r

                def backward(self, grad, x):
                    saved_r = torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)
                    r = saved_r
                    return (grad * r - x * (grad * x).mean(-1, keepdim=True) * r**3,)
            """
        ),
    )


def test_more_than_a_line_becomes_a_helper_of_both() -> None:
    becomes(
        NODE
        + code(
            """
            class Gate(Node):
                def forward(self, x: torch.Tensor) -> torch.Tensor:
                    half = x * 0.5
                    self.gate = torch.sigmoid(half)
                    self.slope = self.gate * (1 - self.gate)
                    return half * self.gate

                def backward(self, grad: torch.Tensor, x: torch.Tensor):
                    return (grad * (self.gate + x * self.slope),)

                def name(self):
                    return "gate"
            """
        ),
        NODE
        + code(
            '''
            class Gate(Node):
                def forward(self, x: torch.Tensor) -> torch.Tensor:
                    gate, _, half = self._recompute(x)
                    return half * gate

                def backward(self, grad: torch.Tensor, x: torch.Tensor):
                    gate, slope, _ = self._recompute(x)
                    return (grad * (gate + x * slope),)

                def _recompute(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
                    """gate, slope and half, which forward and backward derive from the live inputs."""
                    half = x * 0.5
                    gate = torch.sigmoid(half)
                    slope = gate * (1 - gate)
                    return gate, slope, half

                def name(self):
                    return "gate"
            '''
        ),
    )


@pytest.mark.parametrize(
    "slice_",
    [
        "torch.rand_like(x)",
        "x * self.weight.value",
        "self.child.forward(x)",
        "x @ x.mT",
        "x * self.counter",
        "x * GLOBAL.pop()",
    ],
)
def test_random_impure_and_dear_slices_stay_where_they_are(slice_: str) -> None:
    before = code(
        f"""
        import torch

        from cachelint.runtime import Node, Parameter

        GLOBAL = [1]


        class Layer(Node):
            def __init__(self, child):
                self.child = child
                self.weight = Parameter(torch.ones(3))
                self.counter = 0

            def forward(self, x: torch.Tensor):
                self.counter += 1
                self.kept = {slice_}
                return x * self.kept

            def backward(self, grad, x):
                return (grad * self.kept,)
        """
    )
    outcome = fixed(before)
    assert f"        self.kept = {slice_}\n" in outcome.text
    assert outcome.text.count(slice_) == 1
    assert "self.save_for_backward(self.kept)" in outcome.text


def test_an_input_changed_in_place_is_not_derived_from() -> None:
    before = NODE + code(
        """
        class Layer(Node):
            def forward(self, x):
                self.kept = torch.exp(x)
                x.add_(1)
                return x * self.kept

            def backward(self, grad, x):
                return (grad * self.kept,)
        """
    )
    assert "self.save_for_backward(self.kept)" in fixed(before).text


# ---- registering


def test_each_path_registers_what_it_makes() -> None:
    becomes(
        NODE
        + code(
            """
            class Layer(Node):
                def __init__(self):
                    self.weights = None

                def forward(self, x, fused=False):
                    self.weights = None
                    if fused:
                        return torch.softmax(x, -1)
                    for _ in range(2):
                        self.weights = torch.softmax(x, -1)
                    return self.weights @ x

                def backward(self, grad, x):
                    if self.weights is None:
                        return (grad,)
                    return (self.weights @ grad,)
            """
        ),
        SAVER
        + code(
            """
            class Layer(SaverAware, Node):
                def __init__(self):
                    self.weights = None

                def forward(self, x, fused=False):
                    self.weights = None
                    if fused:
                        return torch.softmax(x, -1)
                    for _ in range(2):
                        self.weights = torch.softmax(x, -1)
                    self.save_for_backward(self.weights)
                    return self.weights @ x

                def backward(self, grad, x):
                    if self.weights is None:
                        return (grad,)
                    return (self.weights @ grad,)
            """
        ),
    )


def test_containers_are_spread_when_they_are_complete() -> None:
    becomes(
        NODE
        + code(
            """
            class Layer(Node):
                def forward(self, x):
                    self.parts = []
                    self.by_name = {}
                    for name in "ab":
                        self.parts.append(x @ x)
                        self.by_name[name] = torch.softmax(x, -1)
                    return sum(self.parts)

                def backward(self, grad, x):
                    return (grad @ sum(self.parts) + self.by_name["a"],)
            """
        ),
        SAVER
        + code(
            """
            class Layer(SaverAware, Node):
                def forward(self, x):
                    self.parts = []
                    self.by_name = {}
                    for name in "ab":
                        self.parts.append(x @ x)
                        self.by_name[name] = torch.softmax(x, -1)
                    self.save_for_backward(*self.parts, *self.by_name.values())
                    return sum(self.parts)

                def backward(self, grad, x):
                    return (grad @ sum(self.parts) + self.by_name["a"],)
            """
        ),
    )


def test_a_configured_contract_is_imported_and_called() -> None:
    before = code(
        """
        import torch
        from os import path


        class Layer:
            def forward(self, x: torch.Tensor):
                self.y = torch.softmax(x, -1)
                return self.y

            def backward(self, grad):
                return self.y * grad
        """
    )
    outcome = becomes(
        before,
        code(
            """
            import torch
            from os import path
            from memory.contract import Keeps


            class Layer(Keeps):
                def forward(self, x: torch.Tensor):
                    self.y = torch.softmax(x, -1)
                    self.keep(self.y)
                    return self.y

                def backward(self, grad):
                    return self.y * grad
            """
        ),
        contract=ContractSpec("memory.contract", "Keeps", "keep"),
    )
    assert [plan.applicability for plan in outcome.applied] == [Applicability.SAFE]
    unsure = fixed(before)
    assert unsure.text == before
    assert "[tool.cachelint.contract]" in unsure.skipped[0].notes[0]
    assert "class Layer(SaverAware):" in fixed(before, unsafe=True).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from cachelint.runtime import Node", "from cachelint.runtime import Node, SaverAware"),
        (
            "from cachelint.runtime import (\n    Node,\n)",
            "from cachelint.runtime import (\n    Node,\n    SaverAware,\n)",
        ),
        (
            "from cachelint.runtime import (\n    Node,  # base\n)",
            "from cachelint.runtime import (\n    Node,  # base\n)\nfrom cachelint.runtime import SaverAware",
        ),
        ("from cachelint.runtime import Node as Node", "from cachelint.runtime import Node as Node, SaverAware"),
        ("from cachelint.runtime import Node, SaverAware", "from cachelint.runtime import Node, SaverAware"),
    ],
)
def test_the_import_is_added_once(old: str, new: str) -> None:
    body = code(
        """


        class Layer(Node):
            def forward(self, x):
                self.y = torch.softmax(x, -1)
                return self.y

            def backward(self, grad, x):
                return (self.y * grad,)


        class Other(Node):
            def forward(self, x):
                self.y = torch.softmax(x, -1)
                return self.y

            def backward(self, grad, x):
                return (self.y * grad,)
        """
    )
    text = fixed(f"import torch\n{old}\n\n\n{body}").text
    assert text.startswith(f"import torch\n{new}\n\n\nclass Layer(SaverAware, Node):")
    assert "class Other(SaverAware, Node):" in text


def test_a_derived_layer_takes_part_through_its_base() -> None:
    text = fixed(
        NODE
        + code(
            """
            class Base(Node):
                def forward(self, x):
                    self.y = torch.softmax(x, -1)
                    return self.y

                def backward(self, grad, x):
                    return (self.y * grad,)


            class Derived(Base):
                def forward(self, x):
                    self.z = torch.softmax(x, 0)
                    return self.z

                def backward(self, grad, x):
                    return (self.z * grad,)
            """
        )
    ).text
    assert "class Base(SaverAware, Node):" in text
    assert "class Derived(Base):" in text
    assert "self.save_for_backward(self.z)" in text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("setattr(self, 'y', torch.softmax(x, -1))\n        return self.y", "self escapes"),
        ("self.y = [[torch.softmax(x, -1)]]\n        return x", "nested container"),
        ("self.y = [torch.softmax(x, -1), 3]\n        return x", "mixed container"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(body: str, kind: str) -> None:
    text = (
        f"{NODE}class Layer(Node):\n    def forward(self, x: torch.Tensor):\n        {body}\n\n"
        "    def backward(self, grad, x):\n        return (grad * self.y,)\n"
    )
    outcome = fixed(text)
    assert outcome.text == text
    assert {r.kind for r in outcome.refused if r.finding.code.startswith("CL10")} == {kind}


# ---- cross-step caches


def test_a_cross_step_cache_is_kept_by_persistent() -> None:
    becomes(
        NODE
        + code(
            """
            class Quantised(Node):
                def __init__(self, codes: torch.Tensor, scale: torch.Tensor):
                    self.codes = codes
                    self.scale = scale
                    self.weight = None

                def invalidate(self):
                    self.weight = None

                def forward(self, x: torch.Tensor):
                    if self.weight is None:
                        self.weight = self.codes * self.scale  # once
                    return x @ self.weight

                def backward(self, grad, x):
                    return (grad @ self.weight.mT,)
            """
        ),
        code(
            """
            import torch

            from cachelint.runtime import Node, Persistent


            class Quantised(Node):
                def __init__(self, codes: torch.Tensor, scale: torch.Tensor):
                    self.codes = codes
                    self.scale = scale
                    self.weight = Persistent(name="weight")

                def invalidate(self):
                    self.weight.invalidate()

                def forward(self, x: torch.Tensor):
                    if self.weight.get() is None:
                        self.weight.set(self.codes * self.scale)  # once
                    return x @ self.weight.get()

                def backward(self, grad, x):
                    return (grad @ self.weight.get().mT,)
            """
        ),
    )


def test_a_cross_step_cache_that_others_read_stays() -> None:
    before = NODE + code(
        """
        class Layer(Node):
            def __init__(self):
                self.state = None

            def forward(self, x: torch.Tensor):
                self.state = torch.tanh(x if self.state is None else x + self.state)
                return self.state

            def backward(self, grad, x):
                return (grad * (1 - self.state * self.state),)
        """
    )
    outcome = fixed(before, other="from layers import Layer\n\n\ndef state(layer: Layer):\n    return layer.state\n")
    assert [r.kind for r in outcome.refused if r.finding.code == "CL107"] == ["read from outside"]


def test_an_input_changed_through_a_kept_view_is_not_derived_from() -> None:
    """``+=`` on a field that is a view of the input writes into the input."""
    before = NODE + code(
        """
        class Layer(Node):
            def forward(self, x):
                self._angles(x)
                self.view = x.reshape(-1)
                self.view += 1
                return x * self.cos

            def backward(self, grad, x):
                return (grad * (self.cos + self.sin + self.view.sum()),)

            def _angles(self, x):
                self.cos = x.cos()
                self.sin = x.sin()
        """
    )
    text = fixed(before).text
    assert "self.save_for_backward(self.cos, self.sin)" in text
