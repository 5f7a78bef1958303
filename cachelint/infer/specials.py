"""Builtins and functions of the standard library that do more than the operator table can say."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from cachelint.infer.symbols import HINT, STRONG
from cachelint.infer.values import (
    CHEAP,
    DEVICE,
    HOST,
    HOST_VALUE,
    LOW,
    MEDIUM,
    NONE_VALUE,
    OPAQUE,
    UNKNOWN,
    Attr,
    Cls,
    Ext,
    Inst,
    Partial,
    Recv,
    Seq,
    Test,
    Value,
    const,
    join,
    join_all,
)

if TYPE_CHECKING:
    from cachelint.infer.library import Library


def _getattr(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if len(args) < 2:
        return None
    name = args[1].const
    if not isinstance(name, str):
        if isinstance(args[0].ref, Recv):
            m.log.escapes.append(m.event("*", node, sure=False))
            return join_all(m.log.attrs.values()) or Value(UNKNOWN, OPAQUE, sure=LOW)
        return Value(UNKNOWN, OPAQUE, sure=LOW)
    if len(args) < 3:
        return m.attribute(args[0], name, node)
    symbol = m.symbols.get(args[0].param or "")
    probed = symbol is not None and name not in symbol.foreign
    value = m.attribute(args[0], name, node)
    if symbol is not None and probed:
        symbol.foreign.discard(name)  # only asked whether it is there, as one does with what is hung on tensors
    default = args[2].const
    if isinstance(default, (bool, int, float, str)) and value.sure == LOW and not value.kinds & HOST:
        # A name that only its owner could explain: the default shows what kind of value it is.
        return Value(HOST, sure=MEDIUM, why=m.why(node, f"getattr has the default {default!r}"))
    return join(value, args[2])


def _setattr(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if len(args) == 3:
        name = args[1].const
        if isinstance(name, str):
            m.set_attribute(args[0], name, args[2], node, False)
        elif isinstance(args[0].ref, Recv):
            for literal in m.literal_names(node.args[1]):
                m.set_attribute(args[0], literal, args[2], node, False)
    return NONE_VALUE


def _enumerate(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if not args:
        return None
    known = m.positions(args[0], None)
    if known is not None:
        return Value(HOST, ref=Seq([Value(HOST, ref=Seq([const(i), v])) for i, v in enumerate(known)]))
    return Value(HOST, ref=Seq(None, Value(HOST, ref=Seq([HOST_VALUE, m.element_of(args[0], node)]))))


def _zip(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    known = [m.positions(value, None) for value in args]
    if args and all(k is not None for k in known) and len({len(k or ()) for k in known}) == 1:
        return Value(
            HOST, ref=Seq([Value(HOST, ref=Seq(list(row))) for row in zip(*(k or [] for k in known), strict=True)])
        )
    return Value(HOST, ref=Seq(None, Value(HOST, ref=Seq([m.element_of(value, node) for value in args]))))


def _map(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if len(args) < 2:
        return None
    known = m.positions(args[1], None) if len(args) == 2 else None
    if known is not None and len(known) <= 12:
        return Value(HOST, ref=Seq([m.call(args[0], [value], {}, node) for value in known]))
    return Value(HOST, ref=Seq(None, m.call(args[0], [m.element_of(v, node) for v in args[1:]], {}, node)))


def _filter(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    return Value(HOST, ref=Seq(None, m.element_of(args[1], node))) if len(args) == 2 else None


def _range(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    for value in args:
        m.note(value, HOST, STRONG, node, "passed to range")
    literals = [value.const for value in args]
    if len(literals) == 1 and isinstance(literals[0], int) and 0 <= literals[0] <= 8:
        return Value(HOST, ref=Seq([const(i) for i in range(literals[0])]))
    return Value(HOST, ref=Seq(None, HOST_VALUE))


def _sequence(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if not args:
        return Value(HOST, ref=Seq([], mutable=True))
    return m.contain((args[0],), node)


def _dict(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    keys: dict[Any, Value] = {**kwargs}
    seq = Seq(None, None, keys, True)
    for value in args:
        if isinstance(value.ref, Seq) and value.ref.keys is not None:
            keys.update(value.ref.keys)
        else:
            element = m.element_of(value, node)
            pair = m.positions(element, 2)
            seq.put(pair[1] if pair is not None and len(pair) == 2 else element)
            seq.places = len(args) == 1 and m.has_places(seq.rest)  # `dict(zip(names, args))`
    return Value(HOST, ref=seq)


def _super(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    frame = m.frame
    receiver = frame.env.get(frame.self_name) if frame.self_name else None
    if receiver is None:
        receiver = next((v for v in frame.env.values() if isinstance(v.ref, (Recv, Inst, Cls))), HOST_VALUE)
    return Value(HOST, ref=Attr(receiver, "super"))


def _sum(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if not args:
        return None
    element = m.element_of(args[0], node)
    return m.made(node, "sum", (element,), floor=CHEAP)


def _extreme(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    values = [m.element_of(args[0], node)] if len(args) == 1 else args
    for value in values:
        m.note(value, HOST, HINT, node, "compared by min or max")
    if any(value.kinds & DEVICE for value in values):
        return m.made(node, "min or max", tuple(values), floor=CHEAP)
    return Value(HOST, deps=frozenset().union(*(v.deps for v in values)) if values else frozenset())


def _partial(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    return Value(HOST, ref=Partial(args[0], tuple(args[1:]), dict(kwargs))) if args else None


def _vars(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if args and isinstance(args[0].ref, Recv):
        m.log.escapes.append(m.event("*", node, sure=False))
    return Value(HOST, ref=Seq(None, HOST_VALUE))


def _float(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if args and args[0].const is not ... and isinstance(args[0].const, (int, float)):
        return args[0]
    return Value(HOST, deps=args[0].deps if args else frozenset(), why=m.why(node, "a host number by conversion"))


def _isinstance(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    return Value(HOST, ref=Test(node, args[0])) if args and isinstance(node.args[0], ast.Name) else None


def _hasattr(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    return HOST_VALUE


def _type(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if len(args) == 1 and isinstance(args[0].ref, Recv) and m.receiver_class is not None:
        return Value(HOST, ref=Cls(m.receiver_class))
    return HOST_VALUE


def _namedtuple(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    return Value(HOST, ref=Ext("<namedtuple>"))


def _elementwise_kernel(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    m.fill_opened((*args, *kwargs.values()), lambda _: "an elementwise kernel", node)
    return m.made(node, "an elementwise kernel", (*args, *kwargs.values()), floor=CHEAP, kinds=DEVICE).tagged("multi")


def _record(m: Library, args: list[Value], kwargs: dict[str, Value], node: ast.Call) -> Value | None:
    if not args and kwargs:
        return Value(HOST, ref=Seq(None, None, {**kwargs}, True))
    return Value(HOST, ref=Seq([*args, *kwargs.values()]))


SPECIAL: Final[dict[str, Callable[[Library, list[Value], dict[str, Value], ast.Call], Value | None]]] = {
    "getattr": _getattr,
    "setattr": _setattr,
    "hasattr": _hasattr,
    "isinstance": _isinstance,
    "torch.is_tensor": _isinstance,
    "enumerate": _enumerate,
    "zip": _zip,
    "map": _map,
    "filter": _filter,
    "range": _range,
    "list": _sequence,
    "tuple": _sequence,
    "set": _sequence,
    "frozenset": _sequence,
    "sorted": _sequence,
    "reversed": _sequence,
    "iter": _sequence,
    "dict": _dict,
    "collections.OrderedDict": _dict,
    "collections.deque": _sequence,
    "super": _super,
    "sum": _sum,
    "min": _extreme,
    "max": _extreme,
    "functools.partial": _partial,
    "vars": _vars,
    "float": _float,
    "int": _float,
    "bool": _float,
    "type": _type,
    "collections.namedtuple": _namedtuple,
    "typing.NamedTuple": _namedtuple,
    "<namedtuple>": _record,
    "<elementwise kernel>": _elementwise_kernel,
    "types.SimpleNamespace": _record,
}
