"""How large what an expression makes is beside the other tensors of a function, and how much is alive while it runs.

Three sizes are enough: a tensor as large as an activation, something clearly smaller (a row statistic, a mask, a
scalar), and what nothing shows. They are read off the syntax of one function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from cachelint.index.module import FunctionNode
from cachelint.index.walk import children, code_of, last_name, walk
from cachelint.infer.optable import operators

SMALL: Final = 0
UNSURE: Final = 1
FULL: Final = 2

JOINS: Final = frozenset(("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"))
_PRODUCTS: Final = frozenset(
    "matmul mm bmm addmm baddbmm linear einsum scaled_mm _scaled_mm _grouped_mm conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d tensordot outer cdist chain_matmul".split()
)
_REDUCTIONS: Final = frozenset(
    "sum mean var std prod amax amin argmax argmin norm vector_norm logsumexp all any count_nonzero nanmean nansum "
    "median bincount vdot dot trace det item tolist numel size dim max_memory_allocated var_mean std_mean aminmax".split()
)
_VIEWS: Final = frozenset(
    "view reshape t transpose permute squeeze unsqueeze expand expand_as view_as reshape_as flatten unflatten narrow "
    "chunk split tensor_split unbind detach movedim swapaxes swapdims rearrange requires_grad_ diagonal select".split()
)
_CASTS: Final = frozenset(
    "to float half bfloat16 double type type_as astype contiguous ascontiguousarray cuda cpu asarray as_tensor".split()
)
"""Results that may be the argument itself: nobody can rely on an allocation there."""
_BUFFERS: Final = frozenset("empty zeros ones full rand randn new_empty new_zeros new_ones new_full tile".split())
_LIKE: Final = frozenset("empty_like zeros_like ones_like full_like rand_like randn_like".split())
_POINTWISE: Final = frozenset(
    "softmax log_softmax dropout layer_norm rms_norm cumsum copy clone flip roll sort tril triu".split()
)
_SHAPES: Final = frozenset("shape dtype device ndim size".split())
_ALIASES: Final = frozenset("T mT H mH data real".split())
_MASKS: Final = frozenset(
    "isnan isinf isfinite eq ne lt le gt ge equal isclose logical_and logical_or logical_not".split()
)


@lru_cache(maxsize=1)
def _pointwise() -> frozenset[str]:
    """The last names of elementwise operators, from the table."""
    names = {name.rpartition(".")[2] for name, kind in operators().functions.items() if kind == "elementwise"}
    names |= {name for name, kind in operators().methods.items() if kind == "elementwise"}
    return frozenset(names - _MASKS) | _POINTWISE


class Extents:
    """The sizes of one function's local names, learned statement by statement."""

    def __init__(self, function: FunctionNode) -> None:
        self.names: dict[str, int] = {}
        self.products = {name for node in walk(function) for name in _operands(node)}
        self.narrow = {name for node in walk(function) for name in _broadcast(node)}
        self.wide = self.products | {name for node in walk(function) for name in _reduced(node)}
        self.inputs = {"inputs", "xs"} & set(_parameters(function))
        if function.args.vararg is not None:
            self.inputs.add(function.args.vararg.arg)
        for number, argument in enumerate((*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)):
            size = _of_parameter(argument)
            self.names[argument.arg] = size if size == SMALL else self._of_input(argument.arg, number == 1)
        self.names.update(dict.fromkeys(self.inputs, FULL))

    def _of_input(self, name: str, first: bool) -> int:
        """An input is an activation where it is the first one, or is reduced, multiplied or taken apart by its axes."""
        return FULL if name not in self.narrow and (first or name in self.wide) else UNSURE

    # -- statements ----------------------------------------------------------------------------------------------------

    def learn(self, statement: ast.stmt) -> None:
        """Take in the bindings of a statement and of those inside it."""
        for node in walk(statement):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                self._bind(node.target, node.value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            size = self.of(value)
            self.names[target.id] = FULL if size == UNSURE and target.id in self.products else size
        elif isinstance(target, ast.Starred):
            self._bind(target.value, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for part, item in zip(target.elts, value.elts, strict=True):
                    self._bind(part, item)
                return
            if isinstance(value, ast.Name) and value.id in self.inputs:
                for number, name in enumerate(_names(target)):
                    self.names[name] = self._of_input(name, number == 0)
                return
            size = self.of(value) if _keeps(value) else UNSURE
            for name in _names(target):
                wide = size == FULL and name not in self.narrow
                self.names[name] = FULL if wide or (size != SMALL and name in self.products) else min(size, UNSURE)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def of(self, node: ast.expr) -> int:
        """The size of what an expression gives."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, UNSURE)
        if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda, ast.Dict, ast.Set)):
            return SMALL
        if isinstance(node, ast.BoolOp):
            return max(self.of(value) for value in node.values)
        if isinstance(node, ast.UnaryOp):
            return SMALL if isinstance(node.op, ast.Not) else self.of(node.operand)
        if isinstance(node, ast.BinOp):
            return FULL if isinstance(node.op, ast.MatMult) else self._widest((node.left, node.right))
        if isinstance(node, ast.IfExp):
            return max(self.of(node.body), self.of(node.orelse))
        if isinstance(node, (ast.Starred, ast.Await, ast.NamedExpr)):
            return self.of(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            return max((self.of(item) for item in node.elts), default=SMALL)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.of(node.elt)
        if isinstance(node, ast.Attribute):
            return self.of(node.value) if node.attr in _ALIASES else SMALL if node.attr in _SHAPES else UNSURE
        if isinstance(node, ast.Subscript):
            return self._item(node)
        return self._call(node) if isinstance(node, ast.Call) else UNSURE

    def _widest(self, parts: Iterable[ast.expr]) -> int:
        return max((self.of(part) for part in parts), default=SMALL)

    def _item(self, node: ast.Subscript) -> int:
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        whole = self.of(node.value)
        if all(isinstance(i, ast.Slice) or (isinstance(i, ast.Constant) and i.value in (None, ...)) for i in index):
            return whole
        if isinstance(node.value, (ast.Name, ast.Attribute)) and len(index) == 1 and isinstance(index[0], ast.Name):
            return min(whole, UNSURE)  # rows that an index picks: as many as it has
        return SMALL if whole == FULL and not isinstance(node.value, ast.Name) else min(whole, UNSURE)

    def _call(self, node: ast.Call) -> int:
        name = last_name(node.func)
        operands = list(_operands_of(node))
        if name in _PRODUCTS:
            return FULL
        if name in JOINS:
            return SMALL if operands and self.of(operands[0]) == SMALL else FULL
        if name in ("max", "min"):
            pair = len(operands) > 1 and not isinstance(operands[1], ast.Constant) and not node.keywords
            return self._widest(operands) if pair else SMALL
        if name in _REDUCTIONS or name in _MASKS:
            return SMALL
        if name in _LIKE:
            return self.of(operands[-1]) if operands else UNSURE
        if name in _BUFFERS:
            return self._buffer(node)
        if name in _CASTS and operands and isinstance(operands[0], ast.Compare):
            return self._widest((operands[0].left, *operands[0].comparators))  # a mask as numbers
        if name in _VIEWS or name in _CASTS:
            return self.of(operands[0]) if operands else UNSURE
        plain = name.rstrip("_")
        return self._widest(operands) if plain in _pointwise() else UNSURE

    def _buffer(self, node: ast.Call) -> int:
        """A buffer is as large as the tensor whose whole shape it is given."""
        if node.args and all(
            isinstance(n, (ast.Constant, ast.Tuple, ast.List, ast.Load)) for a in node.args for n in walk(a)
        ):
            return SMALL
        for argument in node.args:
            for part in argument.elts if isinstance(argument, (ast.Tuple, ast.List)) else [argument]:
                source = part.value if isinstance(part, ast.Starred) else part
                if isinstance(source, ast.Subscript) and isinstance(part, ast.Starred):
                    source = source.value  # *x.shape[:-1], n
                if isinstance(source, ast.Call) and last_name(source.func) == "size" and not source.args:
                    source = source.func
                if isinstance(source, ast.Attribute) and source.attr in ("shape", "size"):
                    return self.of(source.value)
        return UNSURE

    # -- what is alive while a statement runs ---------------------------------------------------------------------------

    def peak(self, statement: ast.stmt, unsure: int) -> int:
        """The most tensors that a statement makes and holds at one time; ``unsure`` is what one of unknown size counts."""
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return 0
        most = 0
        for child in children(statement):
            if isinstance(child, ast.stmt):
                most = max(most, self.peak(child, unsure))
            elif isinstance(child, ast.expr):
                most = max(most, self._held(child, unsure)[0])
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                most = max(most, *(self.peak(inner, unsure) for inner in child.body))
        return most

    def _held(self, node: ast.expr, unsure: int) -> tuple[int, int]:
        """The most that is held while an expression is evaluated, and what its own result holds of it."""
        if isinstance(
            node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Name, ast.Constant)
        ):
            return 0, 0
        held = most = 0
        for part in _evaluated(node):
            inner, stays = self._held(part, unsure)
            most = max(most, held + inner)
            held += stays
        made = self._made(node, unsure)
        if made is None:  # an alias, a container: it holds what its parts hold
            return most, held
        return max(most, held + made), made

    def _made(self, node: ast.expr, unsure: int) -> int | None:
        """What a new tensor counts, None where the expression makes none."""
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return self._weight(node, unsure)
        if isinstance(node, ast.Compare):
            return 0
        if isinstance(node, ast.Subscript):
            return None if self._item(node) == self.of(node.value) else 0
        if not isinstance(node, ast.Call):
            return None
        name = last_name(node.func)
        if (
            name in _VIEWS
            or (name.endswith("_") and not name.endswith("__"))
            or any(k.arg == "out" for k in node.keywords)
        ):
            return None
        if name in _CASTS:
            return min(self._weight(node, unsure), unsure) if self.of(node) == FULL else self._weight(node, unsure)
        return self._weight(node, unsure)

    def _weight(self, node: ast.expr, unsure: int) -> int:
        size = self.of(node)
        return 1 if size == FULL else unsure if size == UNSURE else 0


def _of_parameter(argument: ast.arg) -> int:
    text = code_of(argument.annotation) if argument.annotation is not None else ""
    return SMALL if text.strip("'\"") in ("int", "float", "bool", "str") else FULL


def _parameters(function: FunctionNode) -> Iterator[str]:
    yield from (a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def _reduced(node: ast.AST) -> Iterator[str]:
    """Names with several axes: they are reduced along one, split, or asked for the length of the last one."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in _AXES and (name != "size" or node.args):
            for operand in list(_operands_of(node))[:1]:
                if isinstance(operand, ast.Name):
                    yield operand.id
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        if isinstance(node.value.value, ast.Name) and code_of(node.slice) != "0":
            yield node.value.value.id
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        if isinstance(node.value.value, ast.Name) and isinstance(node.targets[0], ast.Tuple):
            yield node.value.value.id


_AXES: Final = frozenset(
    "sum mean var std max min amax amin argmax argmin norm logsumexp softmax log_softmax chunk split size topk sort "
    "layer_norm rms_norm transpose permute flatten".split()
)


def _names(target: ast.expr) -> Iterator[str]:
    for node in walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _keeps(value: ast.expr) -> bool:
    """Whether each part of an unpacked value is about as large as the whole."""
    return isinstance(value, ast.Name) or (isinstance(value, ast.Call) and last_name(value.func) in _VIEWS)


def _operands_of(node: ast.Call) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        yield node.func.value
    for argument in node.args:
        yield argument.value if isinstance(argument, ast.Starred) else argument


def _is_module(node: ast.expr) -> bool:
    """Whether the name before a dot is most likely a library (``torch.exp``), not a tensor (``x.exp()``)."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in _LIBRARIES


_LIBRARIES: Final = frozenset("torch F np numpy xp cupy paddle jnp cuda math tl th nn functional".split())


def _evaluated(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        yield from _operands_of(node)
        yield from (keyword.value for keyword in node.keywords)
    else:
        yield from (child for child in children(node) if isinstance(child, ast.expr))


def _operands(node: ast.AST) -> Iterator[str]:
    """Names that stand in a matrix product, by themselves or through views."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and last_name(node.func) in _PRODUCTS:
        parts = list(_operands_of(node))
    for part in parts:
        while True:
            if (
                isinstance(part, ast.Call)
                and isinstance(part.func, ast.Attribute)
                and part.func.attr in _VIEWS | _CASTS
            ):
                part = part.func.value
            elif isinstance(part, ast.Attribute) and part.attr in _ALIASES:
                part = part.value
            else:
                break
        if isinstance(part, ast.Name):
            yield part.id


def _broadcast(node: ast.AST) -> Iterator[str]:
    """Names that get axes of length one before they are used: they are smaller than what they are combined with."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(i, ast.Constant) and i.value is None for i in index) or any(
            isinstance(i, ast.Name) and "expand" in i.id for i in index
        ):
            yield node.value.id
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        if node.func.attr in ("unsqueeze", "expand", "expand_as", "broadcast_to", "repeat_interleave"):
            yield node.func.value.id
