"""The contract's rules and lifetimes: what each remedy makes of its finding."""

from __future__ import annotations

import pytest

from cachelint.model import Applicability
from cachelint.settings import ContractSpec
from tests.fix.test_layers import NODE, SAVER, becomes, code, fixed

CHILD = """class Softmax(SaverAware, Node):
    def forward(self, x):
        self.y = torch.softmax(x, -1)
        self.save_for_backward(self.y)
        return self.y

    def backward(self, grad, x):
        return (self.y * (grad - (grad * self.y).sum(-1, keepdim=True)),)


"""


def function(forward: str, backward: str = "return grad") -> str:
    """A torch Function whose forward has these lines."""
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    back = "\n".join(f"        {line}" for line in backward.splitlines())
    return (
        "import torch\n\n\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x: torch.Tensor):\n"
        f"{lines}\n\n    @staticmethod\n    def backward(ctx, grad):\n{back}\n"
    )


# ---- dead caches


def test_a_dead_cache_goes_with_what_fed_it() -> None:
    becomes(
        function("mean = x.mean()  # only for the field\nspread = x - mean\nctx.spread = spread\nreturn x * 2"),
        function("# only for the field\nreturn x * 2"),
    )


def test_what_fed_a_dead_cache_and_something_else_stays() -> None:
    becomes(
        function("shift = x - 1\nctx.kept = shift * 2\nreturn shift"),
        function("shift = x - 1\nreturn shift"),
    )


def test_an_effect_of_a_dead_cache_stays() -> None:
    after = fixed(NODE + _dead("self.child.forward(x)")).text
    assert "        self.child.forward(x)\n" in after
    assert "self.kept" not in after


def test_a_draw_of_a_dead_cache_stays() -> None:
    """The generator's state is an effect: later draws would differ."""
    after = fixed(NODE + _dead("torch.rand_like(x)")).text
    assert "        torch.rand_like(x)\n" in after


def _dead(value: str) -> str:
    return code(
        f"""
        class Layer(Node):
            def __init__(self, child):
                self.child = child
                self.kept = None

            def forward(self, x):
                self.kept = {value}
                return x * 2

            def backward(self, grad, x):
                return (grad * 2,)
        """
    )


# ---- the order of cache and live input


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = self.x if self.x is not None else x", "x = x if x is not None else self.x"),
        ("x = x if self.x is None else self.x", "x = x if x is not None else self.x"),
        ("x = self.x or x", "x = x if x is not None else self.x"),
        ("if self.x is not None:\n            x = self.x", "if x is None:\n            x = self.x"),
    ],
)
def test_the_live_input_comes_first_where_the_cache_stays(before: str, after: str) -> None:
    def layer(choice: str) -> str:
        return SAVER + code(
            """
            class Square(SaverAware, Node):
                def forward(self, x):
                    self.x = x
                    self.save_for_backward(x)
                    return x * x

                def backward(self, grad, x=None):
                    CHOICE
                    return (2 * x * grad,)
            """
        ).replace("CHOICE", choice)

    becomes(layer(before), layer(after))


def test_a_registered_input_that_backward_ignores_goes() -> None:
    becomes(
        SAVER
        + code(
            """
            class Square(SaverAware, Node):
                def forward(self, x):
                    self.x = x
                    self.y = torch.softmax(x, -1)
                    self.save_for_backward(x, self.y)
                    return x * self.y

                def backward(self, grad, x):
                    return (self.x * grad * self.y,)
            """
        ),
        SAVER
        + code(
            """
            class Square(SaverAware, Node):
                def forward(self, x):
                    self.y = torch.softmax(x, -1)
                    self.save_for_backward(self.y)
                    return x * self.y

                def backward(self, grad, x):
                    return (x * grad * self.y,)
            """
        ),
    )


# ---- composites


def test_a_child_made_in_forward_gets_the_saver_there() -> None:
    late = code(
        """
        class Late(Node):
            def __init__(self):
                self.child = None

            def forward(self, x):
                if self.child is None:
                    self.child = Softmax()
                return self.child.forward(x)

            def backward(self, grad, x):
                return self.child.backward(grad, x)
        """
    )
    made = "            self.child = Softmax()\n"
    becomes(
        SAVER + CHILD + late,
        SAVER
        + CHILD
        + late.replace("Late(Node)", "Late(SaverAware, Node)").replace(
            made, f"{made}            self.child.set_saver(self.saver)\n"
        ),
    )


def test_the_saver_fans_out_where_the_contract_does_not_wire_children() -> None:
    composite = code(
        """
        class Both(Node):
            def __init__(self):
                self.first = Softmax()
                self.rest = [Softmax(), Softmax()]

            def forward(self, x):
                for layer in self.rest:
                    x = layer.forward(x)
                return self.first.forward(x)

            def backward(self, grad, x):
                return self.first.backward(grad, x)
        """
    )
    becomes(
        SAVER + CHILD + composite,
        SAVER
        + CHILD
        + composite.replace("Both(Node)", "Both(SaverAware, Node)")
        + '\n    def set_saver(self, saver):\n        """Bind this layer and its children to a saver."""\n'
        "        super().set_saver(saver)\n        for child in self.rest:\n            child.set_saver(saver)\n"
        "        self.first.set_saver(saver)\n",
        contract=ContractSpec("cachelint.runtime", wires_children=False),
    )


def test_a_caller_passes_the_live_input() -> None:
    child = code(
        """
        class Square(SaverAware, Node):
            def forward(self, x):
                self.x = x
                self.save_for_backward(x)
                return x * x

            def backward(self, grad, x=None):
                x = x if x is not None else self.x
                return (2 * x * grad,)


        """
    )
    owner = code(
        """
        class Quad(Node):
            def __init__(self):
                self.square = Square()

            def forward(self, x):
                return self.square.forward(x) * 4

            def backward(self, grad, x):
                return self.square.backward(grad * 4)
        """
    )
    outcome = fixed(SAVER + child + "\n\n" + owner, unsafe=True)
    assert "return self.square.backward(grad * 4, x)" in outcome.text
    assert {plan.applicability for plan in outcome.applied} == {Applicability.UNSAFE}
    operand = fixed(SAVER + child + "\n\n" + owner.replace("forward(x) * 4", "forward(x + 1) * 4"), unsafe=True)
    assert [r.kind for r in operand.refused] == ["operand not at hand"]


# ---- forward in backward


def test_a_forward_that_seeds_nothing_goes() -> None:
    def layer(line: str) -> str:
        return NODE + code(
            f"""
            class Square(Node):
                def forward(self, x):
                    return x * x

                def backward(self, grad, x):
                    {line}
                    return (2 * x * grad,)
            """
        )

    outcome = becomes(layer("self.forward(x)"), layer("REMOVED").replace("        REMOVED\n", ""))
    assert [plan.applicability for plan in outcome.applied] == [Applicability.SAFE]


def test_a_forward_that_seeds_a_cache_goes_only_when_asked() -> None:
    text = (
        SAVER
        + CHILD.replace("        return (self.y *", "        self.forward(x)\n        return (self.y *").rstrip()
        + "\n"
    )
    assert fixed(text).text == text
    outcome = fixed(text, unsafe=True)
    assert "        self.forward(x)\n" not in outcome.text
    assert "second forward" in outcome.applied[0].notes[0]


def test_a_forward_that_draws_again_stays() -> None:
    text = SAVER + code(
        """
        class Noise(SaverAware, Node):
            def forward(self, x):
                self.y = torch.rand_like(x)
                self.save_for_backward(self.y)
                return x * self.y

            def backward(self, grad, x):
                self.forward(x)
                return (self.y * grad,)
        """
    )
    outcome = fixed(text, unsafe=True)
    assert outcome.text == text
    assert [r.kind for r in outcome.refused] == ["random"]


# ---- counts


def test_a_surplus_is_not_saved() -> None:
    def text(saved: str) -> str:
        return function(
            f"y = x.sin()\nctx.save_for_backward({saved})\nreturn y", "(x,) = ctx.saved_tensors\nreturn grad * x.cos()"
        )

    assert fixed(text("x, y")).text == text("x, y")
    assert fixed(text("x, y"), unsafe=True).text == text("x")


def test_what_is_missing_is_saved() -> None:
    def text(saved: str) -> str:
        return function(
            f"y = x.sin()\nctx.save_for_backward({saved})\nreturn y",
            "x, y = ctx.saved_tensors\nreturn grad * x.cos() * y",
        )

    assert fixed(text("x"), unsafe=True).text == text("x, y")


# ---- lifetimes


def test_owners_are_released_after_the_join() -> None:
    becomes(
        function("a = x @ x\nb = x @ x.T\njoined = torch.cat([a, b])\nreturn joined + x.repeat(2, 1)"),
        function("a = x @ x\nb = x @ x.T\njoined = torch.cat([a, b])\ndel a, b\nreturn joined + x.repeat(2, 1)"),
    )


def test_a_temporary_is_released_after_its_last_use() -> None:
    becomes(
        function("hidden = x @ x\nactive = torch.relu(hidden)  # gate\nreturn active @ x"),
        function("hidden = x @ x\nactive = torch.relu(hidden)  # gate\ndel hidden\nreturn active @ x"),
    )


@pytest.mark.parametrize(
    "tail",
    [
        "again = lambda: hidden\nreturn active @ x",
        "print(locals())\nreturn active @ x",
        "global hidden\nreturn active @ x",
    ],
)
def test_names_that_are_needed_are_not_deleted(tail: str) -> None:
    head, _, rest = tail.partition("global hidden\n")
    first = "global hidden\n" if rest else ""
    text = function(f"{first}hidden = x @ x\nactive = torch.relu(hidden)\n{rest or head}")
    assert "del hidden" not in fixed(text).text


def test_a_name_is_deleted_only_after_the_branch_that_still_reads_it() -> None:
    text = function(
        "hidden = x @ x\nactive = torch.relu(hidden)\nif x.sum() > 0:\n    active = active + hidden\nreturn active @ x"
    )
    assert "del hidden" not in fixed(text).text.partition("active + hidden")[0]
