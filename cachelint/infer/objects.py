"""Objects: constructors, calls of instances and of methods, the receiver's own API."""

from __future__ import annotations

import ast
from typing import Final

from cachelint.collect.log import (
    ChildCall,
    Save,
)
from cachelint.index.module import ClassInfo, empty_class
from cachelint.index.walk import last_name
from cachelint.infer.annotations import is_enum, is_record
from cachelint.infer.library import Library
from cachelint.infer.symbols import DECISIVE
from cachelint.infer.values import (
    CHILD,
    DEVICE,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    NONE,
    NONE_VALUE,
    OPAQUE,
    PERSIST,
    UNKNOWN,
    WORKSPACE,
    Attr,
    Bound,
    Cls,
    Const,
    Func,
    Inst,
    Partial,
    Recv,
    Seq,
    Value,
    carried,
    join,
    replace,
)

# The context of a function that is only followed for its result.
_CONTEXT: Final = empty_class("Context", "<context>")


class Objects(Library):
    """Calls that go to an object."""

    def construct(
        self, info: ClassInfo, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> Value:
        """An object of a project class."""
        if is_enum(info):
            return HOST_VALUE
        instance = Inst(info)
        value = Value(HOST, ref=instance, tags=frozenset(("handle",)))
        found = self.find_method(info, "__init__")
        if found is not None:
            method, owner = found
            self.call_function(Func(method, owner.module, owner), [value, *args], kwargs, node, star)
        elif is_record(info):
            names = [
                i.target.id for i in info.node.body if isinstance(i, ast.AnnAssign) and isinstance(i.target, ast.Name)
            ]
            instance.attrs.update(zip(names, args, strict=False))
            instance.attrs.update({k: v for k, v in kwargs.items() if k in names})
        else:
            external = [self.dotted_base(base, owner) for owner in self.mro(info) for base in owner.node.bases]
            if any(name and name.rpartition(".")[2] in ("Tensor", "ndarray") for name in external):
                return self.made(node, f"a {info.name}", (*args, *kwargs.values()), floor=LIVE, kinds=DEVICE)
        return value

    def call_instance(
        self,
        func: Value,
        ref: Inst,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.Call,
        star: bool,
    ) -> Value:
        """``layer(x)``: a child layer's forward is SAVE whatever it computes; other objects run ``__call__``."""
        if self.receiver_is_self:
            self.child_call(ref, "__call__", args, kwargs, node, star)
        found = self.find_method(ref.info, "__call__")
        if found is not None:
            method, owner = found
            return self.call_function(Func(method, owner.module, owner), [func, *args], kwargs, node, star)
        if self.find_method(ref.info, "forward") is not None:
            return self.child_result(ref.info.name, args, kwargs, node)
        return self.opaque_call(func, args, kwargs, node, ref.info.name)

    def child_call(
        self, child: Inst, method: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> None:
        """Note a call of an object's method by the receiver's own methods."""
        log, frame = self.log, self.frame
        owner = frame.env.get(frame.self_name) if frame.self_name else None
        if log.phase in ("forward", "backward") and owner is not None and isinstance(owner.ref, Recv):
            log.child_calls.append(
                ChildCall(
                    child,
                    method,
                    node,
                    tuple(args),
                    frozenset(kwargs),
                    star,
                    frame.module.path,
                    frame.name,
                    log.phase,
                    self.tick(),
                    self.path,
                    frame.loops,
                )
            )

    def child_result(self, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:
        """What a child layer returns."""
        return replace(
            self.made(
                node, f"what the child layer {name} returned", (*args, *kwargs.values()), floor=CHILD, kinds=DEVICE
            ),
            cost=CHILD,
        )

    def call_attr(
        self, func: Value, ref: Attr, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> Value:
        """``base.name(…)`` where the class of base does not say what name is."""
        base, name = ref.base, ref.name
        if name == "[]":
            return self.launch(base, args, kwargs, node)
        inner = base.ref
        if isinstance(inner, Recv):
            return self.call_receiver_api(name, args, kwargs, node)
        if isinstance(inner, Seq) and not base.kinds & DEVICE:
            return self.call_sequence(base, inner, name, args, kwargs, node)
        if name == "apply" and isinstance(inner, Cls):
            return self.apply_function(inner.info, args, kwargs, node)
        if isinstance(inner, (Func, Bound, Partial)):
            if name in ("__call__", "forward", "__wrapped__"):
                return self.call(base, args, kwargs, node, star)
            return self.launch(base, args, kwargs, node) if _is_kernel(inner) else HOST_VALUE
        if isinstance(inner, Attr) and inner.name == "super":
            return self.call_super(inner.base, name, args, kwargs, node, star)
        return self.call_method(base, name, args, kwargs, node)

    def apply_function(self, info: ClassInfo, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """``F.apply(…)`` inside another function: what its forward returns, where that can be followed."""
        found = self.find_method(info, "forward") if self.log.phase == "forward" else None
        if found is not None and found[0] is not self.frame.node:
            method, owner = found
            names = [a.arg for a in (*method.args.posonlyargs, *method.args.args)]
            separate = self.find_method(info, "setup_context") is not None and names[:1] != ["ctx"]
            given = args if separate else [Value(HOST, ref=Inst(_CONTEXT)), *args]
            result = self.call_function(Func(method, owner.module, owner), given, kwargs, node)
            if carried(result).kinds & DEVICE:
                return result
        if any(isinstance(value.ref, Recv) for value in (*args, *kwargs.values())):
            self.log.escapes.append(self.event("*", node, sure=False))
        return self.made(
            node, f"the result of {info.name}.apply", (*args, *kwargs.values()), floor=OPAQUE, kinds=DEVICE
        )

    def call_super(
        self,
        receiver: Value,
        name: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.Call,
        star: bool,
    ) -> Value:
        """``super().name(…)``: the next class in the order after the one that is being interpreted."""
        owner = self.frame.owner
        start = receiver.ref.info if isinstance(receiver.ref, (Inst, Cls)) else self.receiver_class
        if owner is None or start is None:
            return self.opaque_call(receiver, args, kwargs, node, f"super().{name}")
        order = self.mro(start)
        after = order[order.index(owner) + 1 :] if owner in order else []
        for info in after:
            method = info.method(name)
            if method is not None:
                static = any(last_name(d) == "staticmethod" for d in method.decorator_list)
                given = args if static else [receiver, *args]
                return self.call_function(Func(method, info.module, info), given, kwargs, node, star)
        if name == "__init__":
            return NONE_VALUE
        return self.opaque_call(receiver, args, kwargs, node, f"super().{name}")

    def call_sequence(
        self, base: Value, seq: Seq, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        """Methods of lists, tuples, dicts and sets."""
        if seq.shared and name in ("pop", "popleft", "get", "popitem", "values", "items"):
            self.log.fetches.append(self.outside(seq.shared.rpartition(".")[2], node))
        if name in ("append", "add", "appendleft") and args:
            self.grow(seq, args[0], node)
        elif name in ("extend", "update", "extendleft"):
            for value in args:
                if isinstance(value.ref, Seq):
                    for item in value.ref.each():
                        self.grow(seq, item, node, spread=True)
                elif value.kinds != NONE:
                    self.grow(seq, self.element_of(value, node), node, spread=True)
            for value in kwargs.values():
                self.grow(seq, value, node, spread=True)
        elif name == "insert" and len(args) == 2:
            seq.rest, seq.items = seq.element(), None
            self.grow(seq, args[1], node, spread=True)
        elif name == "setdefault" and args:
            value = args[1] if len(args) > 1 else NONE_VALUE
            self.grow(seq, value, node, spread=True)
            return seq.element() or value
        elif name in ("pop", "popleft", "get", "popitem"):
            literal = args[0].const if args else ...
            if seq.places and isinstance(literal, str) and seq.rest is not None:
                found = self.place(seq, literal, node)
                return join(found, args[1]) if len(args) > 1 else found
            if seq.keys is not None and isinstance(literal, (str, int)) and literal in seq.keys and seq.rest is None:
                return seq.keys[literal]
            element = seq.element()
            if element is None:
                if seq.shared:
                    return self.symbol(
                        f"item of {seq.shared}", "result", f"an item of the module's `{seq.shared}`",
                        self.frame.module, node.lineno, cost=PERSIST, deps=frozenset(),
                    )  # fmt: skip
                return args[1] if len(args) > 1 else Value(UNKNOWN | NONE, OPAQUE, sure=LOW)
            return join(element, args[1]) if len(args) > 1 else element
        elif name == "items":
            element = seq.element()
            pair = [HOST_VALUE, element if element is not None else NONE_VALUE]
            if seq.keys is not None and seq.rest is None:
                pairs = [Value(HOST, ref=Seq([Value(HOST, ref=Const(k)), v])) for k, v in seq.keys.items()]
                return Value(HOST, ref=Seq(pairs))
            return Value(HOST, ref=Seq(None, Value(HOST, ref=Seq(pair))))
        elif name == "keys":
            return Value(HOST, ref=Seq(None, HOST_VALUE))
        elif name == "values":
            return Value(HOST, ref=Seq(None, seq.element()))
        elif name in ("copy", "union", "_asdict", "_replace"):
            return Value(HOST, ref=Seq(seq.items and list(seq.items), seq.rest, seq.keys and dict(seq.keys), True))
        elif name in ("index", "count", "sort", "reverse", "clear", "remove", "numel"):
            return HOST_VALUE
        return NONE_VALUE if name in ("append", "extend", "insert", "update", "add") else HOST_VALUE

    def grow(self, seq: Seq, value: Value, node: ast.AST, spread: bool = False) -> None:
        """Something joins a container. Positions stay known outside branches and loops."""
        self.grown(seq, value, node)
        if seq.shared:
            self.log.stores.append(self.outside(seq.shared.rpartition(".")[2], node, value))
        if seq.shared and value.kinds & DEVICE:
            value = replace(value, cost=WORKSPACE, roots=frozenset((f"g:{seq.shared}",)))
        if (
            seq.items is not None
            and seq.rest is None
            and not self.frame.loops
            and not self.path
            and not seq.shared
            and len(seq.items) < 40
        ):
            seq.items.append(value)
            return
        seq.put(value)

    def call_receiver_api(self, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value:
        """The dialect's API on the receiver: saving, marking."""
        log = self.log
        log.api_calls.append((name, node, tuple(args), self.frame.module.path, log.phase, self.tick()))
        if name in log.save_names:
            self.saved(name, args, node)
            return NONE_VALUE
        if name in log.read_back:
            return self.read_saved(node)
        return HOST_VALUE

    def saved(self, api: str, args: list[Value], node: ast.Call) -> None:
        """A call of the save API."""
        exprs: list[ast.expr] = []
        position = 0
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                known = self.positions(self.eval(arg.value), None)
                count = 1 if known is None else len(known)
            else:
                count = 1
            exprs.extend([arg] * count)
            position += count
        for value in args:
            if value.param is not None:
                self.note(value, DEVICE, DECISIVE, node, f"passed to {api}")
        log = self.log
        log.saves.append(
            Save(
                api,
                node,
                tuple(exprs[: len(args)]),
                tuple(args),
                self.frame.module.path,
                self.frame.name,
                log.phase,
                self.tick(),
                self.path,
            )
        )


def _is_kernel(ref: object) -> bool:
    return isinstance(ref, Func) and ref.kernel
