"""Autocast: whether backward computes in the dtypes of forward, and the operators for which that matters.

Under autocast an operator chooses its dtype by the mode that is on where it runs. A value that backward derives again is
the same value only where the mode is the same: ``custom_fwd`` with ``custom_bwd`` sees to that, anything else does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from cachelint.index.module import FunctionNode, ModuleInfo
from cachelint.index.walk import code_of, last_name

_MODE = re.compile(r"autocast|custom_(?:fwd|bwd)|(?<![a-z])amp(?![a-z])")
_MENTIONED = re.compile(r"\bautocast\b|\bcustom_fwd\b|\bis_autocast_enabled\b")

# The cheap ones of the lists "ops that autocast to float32" and "to the widest input type" (torch.amp, for all devices),
# and those that PyTorch makes of these (``square`` is ``pow``).
_CHOOSES = frozenset(
    """
    pow rsqrt reciprocal exp expm1 log log10 log2 log1p acos asin cosh sinh tan erfinv sum prod cumsum cumprod norm
    renorm softplus softmax log_softmax softmin trace quantile nanquantile dist cosine_similarity normalize addcdiv
    addcmul atan2 cross dot vdot cat stack
    square arccos arcsin arctan2 logsumexp vector_norm matrix_norm l1_loss smooth_l1_loss huber_loss mse_loss kl_div
    nll_loss soft_margin_loss binary_cross_entropy_with_logits index_put scatter_add
    """.split()
)


def chooses(name: str) -> bool:
    """Whether an operator, by the last part of its name, computes in a dtype that autocast chooses."""
    return name in _CHOOSES


def modes_differ(
    forward: Iterable[FunctionNode], backward: Iterable[FunctionNode], module: ModuleInfo | None = None
) -> bool:
    """Whether backward may run in another mode than forward: their decorators say so, or they say nothing.

    Whoever applies a Function may do so under autocast, and PyTorch's engine runs its backward outside. Where a program
    calls backward itself, give the ``module``: then saying nothing counts only in one that knows of autocast.
    """
    ahead = {_decorators(node) for node in forward}
    behind = {_decorators(node) for node in backward}
    if len(ahead | behind) != 1:
        return True
    return not ahead.pop() and (module is None or _MENTIONED.search(module.text) is not None)


def _decorators(node: FunctionNode) -> tuple[str, ...]:
    """The decorators that set the mode, as they would be written for backward."""
    return tuple(_for_backward(d) for d in node.decorator_list if _MODE.search(code_of(d)))


def _for_backward(decorator: ast.expr) -> str:
    if not isinstance(decorator, ast.Call):
        return re.sub(r"fwd|forward", "bwd", code_of(decorator)).replace("backward", "bwd")
    name = re.sub(r"fwd|forward", "bwd", code_of(decorator.func)).replace("backward", "bwd")
    bwd = "bwd" in last_name(decorator.func) or "bwd" in name
    given = [code_of(a) for a in decorator.args]
    given += [f"{k.arg}={code_of(k.value)}" for k in decorator.keywords if not (bwd and k.arg == "cast_inputs")]
    return f"{name}({', '.join(given)})" if given else name
