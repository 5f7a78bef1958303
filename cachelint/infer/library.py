"""Calls that leave the project: builtins by hand, everything else by the operator table."""

from __future__ import annotations

import ast
import re
from typing import Final

from cachelint.index.walk import code_of
from cachelint.infer.launches import Launches
from cachelint.infer.optable import operators
from cachelint.infer.places import part_of, star_of
from cachelint.infer.specials import SPECIAL
from cachelint.infer.symbols import DECISIVE, FAIR, HINT, STRONG
from cachelint.infer.values import (
    BUFFER,
    CHEAP,
    COLLECTIVE,
    CONST,
    DEVICE,
    EXPENSIVE,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    NONE_VALUE,
    OPAQUE,
    RANDOM,
    UNKNOWN,
    Const,
    Ext,
    Func,
    Inst,
    Partial,
    Recv,
    Seq,
    Value,
    carried,
    join,
    join_all,
    replace,
)

_SMALL: Final = frozenset(("small",))

# Methods that strings, lists, dicts and handles have as well: using one says nothing about the receiver.
_AMBIGUOUS: Final = frozenset(
    [
        "backward",
        "copy",
        "count",
        "split",
        "format",
        "get",
        "update",
        "pop",
        "append",
        "extend",
        "keys",
        "values",
        "items",
        "sort",
        "reverse",
        "remove",
        "insert",
        "clear",
        "type",
        "to",
        "add",
        "join",
        "replace",
        "strip",
        "lower",
        "upper",
        "encode",
        "decode",
        "size",
        "numel",
        "apply",
        "map",
        "find",
        "set_",
        "size_",
        "data_ptr",
        "wait",
        "all",
        "any",
        "bool",
        "float",
        "int",
        "long",
        "cpu",
        "cuda",
        "double",
        "half",
        "train",
        "eval",
        "parameters",
        "named_parameters",
        "state_dict",
        "zero_grad",
        "register_hook",
        "name",
        "is_floating_point",
        "repeat",
        "fill",
        "flatten",
        "put",
        "take",
        "dim",
        "rename",
        "std",
        "mean",
        "sum",
        "min",
        "max",
        "rank",
    ]
)

_STRONG_ANYWAY: Final = frozenset(
    [
        "numel",
        "data_ptr",
        "is_floating_point",
        "float",
        "half",
        "long",
        "double",
        "int",
        "bool",
        "cpu",
        "cuda",
        "dim",
        "repeat",
    ]
)

_HOST_HINTS: Final = ("is_", "has_", "use_", "should_", "check_", "can_", "get_num_", "num_", "supports_", "_is_", "_check_",
               "_use_", "_has_", "_should_", "validate_", "assert_")  # fmt: skip

_HOST_TAILS: Final = ("_size", "_rank", "_dtype", "_device", "_enabled", "_available", "_capability", "_version", "_supported",
               "_group", "_name", "_config", "_type", "_mode", "_count", "_block", "_blocks", "_warps", "_shape", "_dim",
               "_dims", "_settings", "_kernel", "_stream", "_format", "_num_sms", "_is_available", "_descriptor", "_desc")  # fmt: skip

ARRAY_MODULE_GETTERS: Final = frozenset(("get_array_module", "array_namespace"))
_IN_PLACE_COLLECTIVE: Final = re.compile(r"torch\.distributed(?:\.distributed_c10d)?\.\w+$").match

# Functions that give numbers for numbers and arrays for arrays.
_NUMERIC: Final = ("numpy", "cupy", "operator.")
_GENERATOR: Final = re.compile("(?i)rng|generator|tracker")
_STATES: Final = frozenset(("get_states", "get_rng_state", "get_state", "clone_state", "graphsafe_get_state"))
_BLANK: Final = frozenset(("blank",))
_SHARING: Final = frozenset(("alias", "cast"))
_NUMBER_FIRST: Final = frozenset(("0", "*"))
_MAYBE_COPY: Final = frozenset(("copy?",))
_DETACHED: Final = frozenset(("detached",))
_SAME: Final[frozenset[str]] = frozenset()
_VIEWS: Final = frozenset(
    "view view_as t transpose permute squeeze unsqueeze expand expand_as detach narrow select unflatten swapaxes"
    " swapdims movedim moveaxis diagonal as_strided alias unbind split chunk requires_grad_ slice T mT H mH real".split()
)

_FROM_DATA: Final = frozenset(["tensor", "array", "asarray", "from_numpy", "stack"])
_CHECKPOINT: Final = frozenset(["use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug"])
_SIZED: Final = frozenset("empty zeros ones full new_empty new_zeros new_ones new_full".split())
"""Functions whose arguments are numbers, or a tuple of numbers, in front."""


class Library(Launches):
    """Calls outside the project."""

    def call_external(self, dotted: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """A call of something outside the project, by dotted name."""
        special = SPECIAL.get(dotted)
        if special is not None:
            found = special(self, args, kwargs, node)
            if found is not None:
                return found
        table = operators()
        last = dotted.rpartition(".")[2]
        if last in ARRAY_MODULE_GETTERS:
            return Value(HOST, ref=Ext("numpy"))
        if dotted.startswith("torch.ops."):
            own = self.own_operator(dotted, node)
            if own is not None:
                return self.call(own, args, kwargs, node)
            if dotted.count(".") == 4:  # `torch.ops.aten.add.Tensor`: one of the operator's overloads
                dotted = dotted.rpartition(".")[0]
                last = dotted.rpartition(".")[2]
        if dotted.startswith("torch.Tensor.") and args and dotted.count(".") == 2:
            return self.call_method(args[0], last, args[1:], kwargs, node)
        category = table.functions.get(dotted)
        multi = table.multi.get(dotted)
        if multi is not None and (category is None or self.several(args, kwargs)):
            category = multi
        else:
            multi = None
        if category is None and dotted.startswith("numpy."):
            category = table.functions.get(f"torch.{last}")
        if category is None and last.endswith("_") and not last.startswith("_"):
            inner = table.functions.get(dotted[:-1])
            if inner is not None and args:
                return self.in_place(args[0], inner, args[1:], kwargs, node, last)
        if category is None:
            if dotted.startswith(table.handle_prefixes):
                return Value(HOST, tags=frozenset(("handle",)))
            return self.unknown_external(dotted, args, kwargs, node)
        self.argument_evidence(dotted, args, kwargs, node)
        if "._functional" not in dotted:  # the functional collectives write into nothing
            self.note_fills(table.fills.get(dotted), category, args, kwargs, node, last)
        result = self.by_category(
            category, last, args, kwargs, node, numeric=dotted.startswith(_NUMERIC) or "." not in dotted
        )
        if multi is not None:
            result = result.tagged("multi")
        if category == "collective" and _IN_PLACE_COLLECTIVE(dotted) and table.fills.get(dotted) is not None:
            return Value(HOST | NONE, tags=frozenset(("handle",)))  # the work to wait for
        out = kwargs.get("out")
        if out is not None and out.kinds != NONE:
            self.mutated(node, out, "out=", node)
            self.fill(out, result, node)
            return out
        return result

    def own_operator(self, dotted: str, node: ast.Call) -> Value | None:
        """``torch.ops.ns.name`` where the calling module itself defines ``name`` as a custom operator."""
        name = dotted.split(".")[3] if dotted.count(".") >= 3 else ""
        found = self.global_name(self.frame.module, name) if name else None
        if found is None or not isinstance(found.ref, Func):
            return None
        return None if id(found.ref.node) in self.stack else found  # a wrapper that bears the name of what it wraps

    def several(self, args: list[Value], kwargs: dict[str, Value]) -> bool:
        """Whether a reduction is called in its form with several results (a dimension is given)."""
        return "dim" in kwargs or (len(args) > 1 and not args[1].kinds & (DEVICE | UNKNOWN)) or "axis" in kwargs

    def argument_evidence(self, dotted: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> None:
        """What an operator demands of its arguments."""
        table = operators()
        for positions, side, inner in (
            (table.host_args.get(dotted), HOST, False),
            (table.device_args.get(dotted), DEVICE, False),
            (table.device_list_args.get(dotted), DEVICE, True),
        ):
            if positions is None:
                continue
            what = "a tensor" if side == DEVICE else "a host value"
            for value in _pick(positions, args, kwargs):
                if inner:
                    items = list(value.ref.each()) if isinstance(value.ref, Seq) else []
                    if not items and value.param is not None and value.kinds & UNKNOWN:
                        items = [self.item_symbol(value, node)]
                else:
                    items = [value]
                for item in items:
                    if item.param is not None:
                        strength = STRONG if side == DEVICE else FAIR
                        if side == HOST and dotted.startswith("torch.distributed."):
                            strength = DECISIVE
                        self.note(item, side, strength, node, f"passed to {dotted}, which takes {what} there")

    def note_fills(
        self,
        positions: tuple[str, ...] | None,
        category: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.AST,
        name: str,
    ) -> None:
        """Arguments that a function writes into."""
        if positions is None:
            return
        cost = {"collective": COLLECTIVE, "random": RANDOM}.get(category, CHEAP)
        everything = [carried(value) for value in (*args, *kwargs.values())]
        deps = frozenset().union(*(value.deps for value in everything)) if everything else frozenset()
        content = Value(DEVICE, cost, deps, why=self.why(node, f"written by {name}"))
        for value in _pick(positions, args, kwargs):
            targets = list(value.ref.each()) if isinstance(value.ref, Seq) else [value]
            for target in targets:
                if target.kinds & (DEVICE | UNKNOWN):
                    self.mutated(node, target, name, node)
                    self.note(target, DEVICE, STRONG, node, f"written by {name}")
                    for root in target.roots:
                        if root.startswith("n"):
                            self.heap[root] = content if root not in self.heap else join(self.heap[root], content)

    def by_category(
        self,
        category: str,
        name: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.AST,
        numeric: bool = False,
    ) -> Value:
        """The result of an operator of a category. ``numeric``: host arguments may give a host result (numpy)."""
        first = args[0] if args else next(iter(kwargs.values()), HOST_VALUE)
        everything = (*args, *kwargs.values())
        kinds: int | None = DEVICE
        if numeric and not any(v.kinds & (DEVICE | UNKNOWN) or isinstance(v.ref, Seq) for v in everything):
            kinds = None
        if category in ("alias", "cast") and name == "array" and first.kinds & DEVICE:
            return self.made(node, "array: a copy", (first,), floor=CHEAP, kinds=DEVICE)
        if category in ("alias", "cast"):
            return self.alias(first, name, node, numeric)
        if category == "alias_list":
            part = self.alias(first, name, node, numeric)
            return Value(HOST, ref=Seq(None, replace(part, param=None)))
        if category == "copy" and isinstance(first.ref, (Seq, Inst)):
            return self.copied(first, name == "deepcopy", node)
        if category in ("elementwise", "index", "rowstat", "copy"):
            what = {"rowstat": f"{name}: a row statistic", "index": f"{name}: index arithmetic or a copy"}
            text = what.get(category, f"{name}: elementwise")
            made = self.made(node, text, everything, floor=CHEAP, kinds=kinds, small=category == "rowstat")
            if name == "exp":
                return made.tagged("exp")
            return made.tagged("sum of exp") if name == "sum" and "exp" in first.tags else made
        if category in ("constant", "empty"):
            shape = args[: 1 + name.startswith("new_")] if name.endswith("full") else args
            for size in _sizes(name, shape) if name in _SIZED else ():
                self.note(size, HOST, FAIR, node, f"a size given to {name}")
        if category == "constant":
            if any(carried(v).kinds & (DEVICE | UNKNOWN) for v in args) and name in _FROM_DATA:
                return self.made(node, f"{name}: a copy", tuple(args), floor=CHEAP, kinds=DEVICE)
            tags = _BLANK if "zeros" in name else frozenset()
            if _is_small(name, args):
                tags |= _SMALL
            why = self.why(node, f"{name}: a constant tensor")
            return self.allocated(Value(DEVICE, CONST, roots=self.fresh(), why=why, tags=tags), name)
        if category == "empty":
            why = self.why(node, f"{name}: a buffer to be filled")
            tags = _SMALL if _is_small(name, args) else frozenset()
            return self.allocated(Value(DEVICE, BUFFER, roots=self.fresh(), why=why, tags=tags), name)
        if category in ("expensive", "scan"):
            return self.made(node, f"{name}: expensive", everything, floor=EXPENSIVE, kinds=kinds)
        if category == "random":
            made = self.made(node, f"{name}: a random draw", everything, floor=RANDOM, kinds=DEVICE)
            return replace(made, cost=RANDOM)
        if category == "collective":
            return self.made(node, f"{name}: a collective", everything, floor=COLLECTIVE, kinds=DEVICE)
        if name == "replace" and isinstance(first.ref, Inst):
            changed = Inst(first.ref.info, {**first.ref.attrs, **kwargs}, first.ref.built_here)
            return replace(first, param=None, ref=changed)
        if category == "container":
            self.call_back(everything, node)
            return self.contain(everything, node)
        if category == "element":
            return self.element_of(first, node)
        if category == "closure":
            return Value(HOST, ref=Partial(first, tuple(args[1:]), dict(kwargs)))
        if category == "result_of" and isinstance(node, ast.Call):
            return self.call(first, list(args[1:]), {k: v for k, v in kwargs.items() if k not in _CHECKPOINT}, node)
        if category == "inplace":
            self.mutated(node, first, name, node)
            return first
        if category == "handle":
            return Value(HOST, tags=frozenset(("handle",)))
        if category in ("elementwise_kernel", "rowstat_kernel"):
            return Value(HOST, ref=Ext("<elementwise kernel>" if category == "elementwise_kernel" else "torch.sum"))
        return HOST_VALUE

    def copied(self, first: Value, deep: bool, node: ast.AST, depth: int = 0) -> Value:
        """A copy of a container or an object: what is inside is the same, or copied, too."""

        def inside(value: Value) -> Value:
            if not deep or depth > 3:
                return value
            if isinstance(value.ref, (Seq, Inst)):
                return self.copied(value, deep, node, depth + 1)
            if not value.kinds & (DEVICE | UNKNOWN):
                return value
            return self.made(node, "deepcopy: a copy", (value,), floor=CHEAP, kinds=value.kinds)

        ref = first.ref
        if isinstance(ref, Inst):
            attrs = {name: inside(value) for name, value in ref.attrs.items()}
            return replace(first, param=None, ref=Inst(ref.info, attrs, ref.built_here))
        assert isinstance(ref, Seq)
        items = None if ref.items is None else [inside(value) for value in ref.items]
        keys = None if ref.keys is None else {key: inside(value) for key, value in ref.keys.items()}
        rest = None if ref.rest is None else inside(ref.rest)
        return replace(first, param=None, ref=Seq(items, rest, keys, ref.mutable, places=ref.places))

    def alias(self, first: Value, name: str, node: ast.AST, numeric: bool) -> Value:
        """A view, a cast or the thing itself."""
        if isinstance(first.ref, Seq) or not first.kinds & (DEVICE | UNKNOWN):
            inner = carried(first)
            if inner.kinds & (DEVICE | UNKNOWN):
                return self.made(node, f"{name}: a copy", (inner,), floor=CHEAP, kinds=DEVICE)
            if numeric and first.ref is None:
                return replace(first, kinds=HOST)
            return Value(DEVICE, CONST, roots=self.fresh(), why=self.why(node, f"{name} of host values"))
        return replace(
            first,
            kinds=DEVICE,
            param=None,
            ref=None,
            why=self.why(node, f"{name}: the same storage or a copy of it", first.why),
            sure=max(first.sure, MEDIUM),
            tags=first.tags | (_DETACHED if name == "detach" else _SAME if name in _VIEWS else _MAYBE_COPY),
        )

    def contain(self, values: tuple[Value, ...], node: ast.AST) -> Value:
        """A container of whatever the arguments carry."""
        if len(values) == 1:
            known = self.positions(values[0], None)
            if known is not None:
                return Value(HOST, ref=Seq(list(known), mutable=True))
            if values[0].kinds == NONE:
                return Value(HOST, ref=Seq([], mutable=True))
            star = star_of(values[0])
            if star is not None and star.keys is None:
                return part_of(star, None if star.items is None else list(star.items), 0, mutable=True)
            return Value(HOST, ref=Seq(None, self.element_of(values[0], node), mutable=True))
        parts = [self.element_of(value, node) for value in values if value.kinds != NONE]
        return Value(HOST, ref=Seq(None, join_all(parts), mutable=True))

    def unknown_external(self, dotted: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """A function that neither the project nor the table knows."""
        last = dotted.rpartition(".")[2]
        if ("rng" in last and "state" in last) or (last in _STATES and _GENERATOR.search(dotted)):
            made = self.made(node, f"{last}: generator state", (), floor=RANDOM, kinds=DEVICE)
            return replace(made, cost=RANDOM, sure=MEDIUM)
        if last.startswith(_HOST_HINTS) or last.endswith(_HOST_TAILS):
            for value in (*args, *kwargs.values()):
                if isinstance(value.ref, Recv):
                    self.log.escapes.append(self.event("*", node, sure=False))
            return Value(HOST, sure=LOW, why=self.why(node, f"{last} is not here; its name suggests a host value"))
        if (
            last[:1].isupper()
            and "_" not in last
            and not any(carried(v).kinds & DEVICE for v in (*args, *kwargs.values()))
        ):
            # A class outside the project, given no tensors: a handle.
            return Value(HOST, sure=MEDIUM, tags=frozenset(("handle",)), ref=None)
        return self.opaque_call(Value(HOST, ref=Ext(dotted)), args, kwargs, node, dotted)

    def call_method(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """A method of a value: a tensor's by the table, a handle's otherwise."""
        if name == "index":
            return HOST_VALUE  # of a list or a string: the position
        table = operators()
        category = table.methods.get(name)
        if args and category in _SHARING and args[0].kinds & ~NONE == DEVICE and not base.kinds & DEVICE:
            if not _NUMBER_FIRST.isdisjoint(table.method_host_args.get(name, ())):
                # `accelerator.pin_memory(x)`: of a tensor, it would take a number there.
                self.note(
                    base, HOST, STRONG, node, f"its `.{name}()` is given a tensor, a tensor's own takes none there"
                )
                return replace(self.alias(args[0], name, node, False), sure=min(args[0].sure, MEDIUM))
        multi = table.method_multi.get(name)
        inplace = None
        if category is None and multi is None and name.endswith("_") and name not in table.not_inplace:
            inplace = table.methods.get(name[:-1])
        elif name.endswith("_") and category == "random":
            category, inplace = None, "random"
        if name == "register_hook" and args:
            self.log.hooks.append(self.outside(name, node, args[0]))
        known = category is not None or multi is not None or inplace is not None
        tensor = bool(base.kinds & DEVICE) or name == "get_rng_state"
        if base.kinds & UNKNOWN and known:
            if name not in _AMBIGUOUS or name in _STRONG_ANYWAY:
                self.tensor_use(base, node, f"the tensor method `.{name}()` is called")
                tensor = True
            elif name in ("to", "type", "size", "sum", "mean", "max", "min", "std", "flatten", "all", "any"):
                self.note(base, DEVICE, FAIR, node, f"`.{name}()` is called")
                tensor = True
        if tensor and known:
            return self.tensor_method(base, name, category, multi, inplace, args, kwargs, node)
        if base.kinds & UNKNOWN or base.kinds == HOST:
            return self.handle_method(base, name, args, kwargs, node)
        if tensor:
            if name.startswith(("is_", "has_", "get_")):
                return HOST_VALUE
            return self.made(node, f"the method .{name}()", (base, *args, *kwargs.values()), floor=OPAQUE)
        return HOST_VALUE

    def tensor_method(
        self,
        base: Value,
        name: str,
        category: str | None,
        multi: str | None,
        inplace: str | None,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.Call,
    ) -> Value:
        """A method of a tensor."""
        table = operators()
        for positions, side in ((table.method_host_args.get(name), HOST), (table.method_device_args.get(name), DEVICE)):
            if positions is not None:
                for value in _pick(positions, args, kwargs):
                    if value.param is not None:
                        strength = STRONG if side == DEVICE else FAIR
                        self.note(value, side, strength, node, f"an argument of `.{name}()`")
        if name == "data_ptr":
            self.fill_opened([base], _source, node)  # whoever is given the address of an empty buffer fills it
        if inplace is not None:
            return self.in_place(base, inplace, args, kwargs, node, name)
        if category == "inplace" or name in ("copy_", "fill_", "zero_"):
            return self.in_place(base, "copy", args, kwargs, node, name)
        fills = table.method_fills.get(name)
        if fills is not None:
            self.note_fills(fills, category or "", args, kwargs, node, name)
        if multi is not None and (category is None or args or kwargs):
            if category is None or "dim" in kwargs or (args and args[0].kinds & HOST):
                return self.by_category(multi, name, [base, *args], kwargs, node).tagged("multi")
        return self.by_category(category or "elementwise", name, [base, *args], kwargs, node)

    def in_place(
        self,
        base: Value,
        category: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.AST,
        name: str,
    ) -> Value:
        """An in-place operator: the storage stays, the content changes."""
        self.mutated(node, base, f"`{name}`", getattr(node, "func", node))
        cost = {"random": RANDOM, "collective": COLLECTIVE, "expensive": EXPENSIVE, "scan": EXPENSIVE}.get(
            category, CHEAP
        )
        if name in ("fill_", "zero_"):
            cost = CONST
        given = tuple(value for value in (*args, *kwargs.values()) if value.kinds & (DEVICE | UNKNOWN))
        if name == "copy_":
            for value in args[:1]:
                self.note(value, DEVICE, STRONG, node, "copied into a tensor")
        content = self.made(node, f"{name} writes it", given, floor=cost, kinds=DEVICE)
        self.fill(base, content, node)
        result = replace(base, kinds=base.kinds & ~UNKNOWN | DEVICE, param=None, ref=None)
        if base.cost not in (LIVE,):
            result = replace(result, deps=base.deps | content.deps)
        return result

    def handle_method(
        self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        """A method of something that is not a tensor."""
        if base.param is not None:
            symbol = self.symbols.get(base.param)
            if symbol is not None:
                if name not in operators().methods:
                    symbol.foreign.add(f"{name}()")
                strength = FAIR if symbol.kind in ("result", "item") else HINT
                self.note(base, HOST, strength, node, f"its method `.{name}()` is called")
        if name in _STATES and _GENERATOR.search(_source(node)):
            made = self.made(node, f"{name}: generator state", (), floor=RANDOM, kinds=DEVICE)
            return replace(made, cost=RANDOM, sure=MEDIUM)
        if isinstance(base.ref, Const) and isinstance(base.ref.value, str):
            return HOST_VALUE
        if "dtype" in base.tags:
            return HOST_VALUE  # ``x.dtype.type(2)`` is a number
        if name == "prepare_for_saving":  # tensor subclasses' own: (their tensors, the emptied shell)
            return emptied(base)
        if name in ("save_for_backward", "save"):
            return NONE_VALUE
        for value in (*args, *kwargs.values()):
            if isinstance(value.ref, Recv):
                self.log.escapes.append(self.event("*", node, sure=False))
        if not name.startswith("mark_"):
            self.fill_opened((*args, *kwargs.values()), _source, node)
        if name.startswith(_HOST_HINTS) or name.endswith(_HOST_TAILS):
            return Value(HOST, sure=MEDIUM)
        inner = [carried(value) for value in (*args, *kwargs.values())]
        text = _source(node)
        if any(value.kinds & DEVICE for value in inner):
            return self.opaque_result(node, text, inner)
        if any(value.kinds & UNKNOWN for value in inner) or base.kinds & UNKNOWN:
            return self.symbol(
                f"{text}():{node.lineno}",
                "result",
                f"the result of {text}",
                self.frame.module,
                node.lineno,
                cost=OPAQUE,
                deps=base.deps.union(*(value.deps for value in inner)),
                prior=HOST,
            )
        return Value(HOST, sure=MEDIUM, deps=base.deps)


def _source(node: ast.Call) -> str:
    text = code_of(node.func)
    return text if len(text) <= 48 else text[:45] + "..."


def emptied(base: Value) -> Value:
    """What ``prepare_for_saving`` of a tensor subclass returns: its tensors, and itself without them."""
    inner = replace(base, kinds=DEVICE | NONE, param=None, ref=None)
    return Value(HOST, ref=Seq([Value(HOST, ref=Seq(None, inner)), HOST_VALUE]))


def _sizes(name: str, args: list[Value]) -> list[Value]:
    """The sizes among the arguments of a function that makes a tensor of a given shape."""
    if name.endswith("_like") or not args:
        return []
    given = args[1:] if name.startswith("new_") else args  # behind the receiver
    return [size for arg in given for size in (arg.ref.each() if isinstance(arg.ref, Seq) else [arg])]


def _is_small(name: str, args: list[Value]) -> bool:
    """A constant tensor whose size is written out, and small."""
    if name in ("tensor", "as_tensor", "scalar_tensor"):
        return True
    sizes = _sizes(name, args)
    if not sizes:
        return False
    total = 1
    for size in sizes:
        if not isinstance(size.const, int):
            return False
        total *= size.const
    return total <= 4096


def _pick(positions: tuple[str, ...], args: list[Value], kwargs: dict[str, Value]) -> list[Value]:
    """The arguments at table positions: numbers, keywords, or ``*`` for all positional ones."""
    picked = []
    for position in positions:
        if position == "*":
            picked.extend(args)
        elif position.isdigit():
            if int(position) < len(args):
                picked.append(args[int(position)])
        elif position in kwargs:
            picked.append(kwargs[position])
    return picked
