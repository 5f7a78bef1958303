"""Abstract values: where a value lives, how it was made, what it shares, and why we think so.

A :class:`Value` is never changed once it is made; what Python mutates (lists, dicts, objects, buffers that kernels
fill) is a :class:`Seq`, an :class:`Inst` or a heap cell keyed by storage root. These records are written out, and are no
dataclasses: the inner loop makes hundreds of thousands of them, and only a constructor that stands here is compiled with
the rest (see ``hatch_build.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo
    from cachelint.infer.core import Frame

# Where a value may live: a bit set, so that a join is an `or`.
HOST: Final = 1
DEVICE: Final = 2
NONE: Final = 4
UNKNOWN: Final = 8

# How a device value comes to be, cheapest first; a join takes the larger. From SAVED on, live inputs can't give it back.
LIVE: Final = 0
CONST: Final = 1
CHEAP: Final = 2
PERSIST: Final = 3
BUFFER: Final = 4
EXPENSIVE: Final = 5
OPAQUE: Final = 6
CHILD: Final = 7
COLLECTIVE: Final = 8
WORKSPACE: Final = 9
RANDOM: Final = 10
SAVED: Final = 4
COST_NAMES: Final = {
    LIVE: "an input or an alias of one",
    CONST: "a constant tensor",
    CHEAP: "cheap to derive",
    PERSIST: "state that outlives the call",
    BUFFER: "a buffer filled later",
    EXPENSIVE: "expensive to compute again",
    OPAQUE: "the result of opaque code",
    CHILD: "what a child returned",
    COLLECTIVE: "the result of a collective",
    WORKSPACE: "a shared workspace",
    RANDOM: "a random draw",
}

# Confidence, as a number that a join lowers.
LOW: Final = 0
MEDIUM: Final = 1
HIGH: Final = 2


class Why:
    """One link of evidence and the links before it."""

    __slots__ = ("before", "line", "path", "text")

    def __init__(self, path: str, line: int, text: str, before: Why | None = None) -> None:
        self.path = path
        self.line = line
        self.text = text
        self.before = before

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Why)
            and self.path == other.path
            and self.line == other.line
            and self.text == other.text
            and self.before == other.before
        )

    def __hash__(self) -> int:
        return hash((self.path, self.line, self.text, self.before))

    def chain(self, limit: int = 8) -> list[Why]:
        """The links, oldest first, at most ``limit``."""
        links: list[Why] = []
        link: Why | None = self
        while link is not None and len(links) < limit:
            links.append(link)
            link = link.before
        return links[::-1]


# -- what a value refers to ------------------------------------------------------------------------------------------


class Const:
    """A literal: its Python value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.value,))


class Func:
    """A function of the project. ``env`` is the activation that it closes over."""

    __slots__ = ("env", "kernel", "module", "node", "owner")

    def __init__(
        self,
        node: FunctionNode | ast.Lambda,
        module: ModuleInfo,
        owner: ClassInfo | None = None,
        env: Frame | None = None,
        kernel: bool = False,
    ) -> None:
        self.node = node
        self.module = module
        self.owner = owner
        self.env = env
        self.kernel = kernel


class Cls:
    """A class of the project."""

    __slots__ = ("info",)

    def __init__(self, info: ClassInfo) -> None:
        self.info = info


class Mod:
    """A module of the project."""

    __slots__ = ("info",)

    def __init__(self, info: ModuleInfo) -> None:
        self.info = info


class Ext:
    """Something outside the project, by dotted name."""

    __slots__ = ("dotted",)

    def __init__(self, dotted: str) -> None:
        self.dotted = dotted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ext) and self.dotted == other.dotted

    def __hash__(self) -> int:
        return hash((self.dotted,))


class Bound:
    """A method of the project with its receiver."""

    __slots__ = ("func", "receiver")

    def __init__(self, receiver: Value, func: Func) -> None:
        self.receiver = receiver
        self.func = func


class Attr:
    """An attribute of a value that we know nothing about: called, it is a method."""

    __slots__ = ("base", "name")

    def __init__(self, base: Value, name: str) -> None:
        self.base = base
        self.name = name


class Seq:
    """A list, tuple, set or dict. ``items`` while positions are known, ``keys`` for literal keys, ``rest`` for what
    was put in otherwise: behind the items, where there are some."""

    __slots__ = ("family", "items", "keys", "mutable", "places", "rest", "shared", "start", "variants")

    def __init__(
        self,
        items: list[Value] | None = None,
        rest: Value | None = None,
        keys: dict[Any, Value] | None = None,
        mutable: bool = False,
        shared: str = "",
        places: bool = False,
        start: int = 0,
        family: str = "",
        variants: tuple[list[Value], ...] = (),
    ) -> None:
        self.items = items
        self.rest = rest
        self.keys = keys
        self.mutable = mutable
        self.shared = shared
        """Dotted name of the module-level container that this is, if it is one."""
        self.places = places
        """Whether ``rest`` stands for arguments that callers give by position or keyword: each place is its own symbol."""
        self.start = start
        """The place of ``rest``'s first item, where this is what was cut off a star's front."""
        self.family = family
        """Where nobody knows at which place a part of a star begins: what its places are told apart by."""
        self.variants = variants
        """The tuples of different lengths that this may be: how many names it is unpacked into tells which."""

    def each(self) -> Iterator[Value]:
        """Every value that may be inside."""
        if self.items is not None:
            yield from self.items
        if self.keys is not None:
            yield from self.keys.values()
        if self.rest is not None:
            yield self.rest

    def element(self) -> Value | None:
        """The join of everything inside, None when nothing is."""
        return join_all(self.each())

    def put(self, value: Value) -> None:
        """Something goes in at a place we don't follow."""
        self.rest = value if self.rest is None else join(self.rest, value)


class Inst:
    """An object of a project class, with the attributes that its constructor set."""

    __slots__ = ("attrs", "built_here", "info")

    def __init__(self, info: ClassInfo, attrs: dict[str, Value] | None = None, built_here: bool = True) -> None:
        self.info = info
        self.attrs = {} if attrs is None else attrs
        self.built_here = built_here


class Recv:
    """The receiver: ``ctx`` or the layer's ``self``."""

    __slots__ = ("log",)

    def __init__(self, log: object) -> None:
        self.log = log


class Partial:
    """functools.partial and its like."""

    __slots__ = ("args", "func", "kwargs")

    def __init__(self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs


class Test:
    """The outcome of a type test that was put aside: ``flag = isinstance(x, Tensor)``, with what ``x`` was then."""

    __slots__ = ("call", "subject")

    def __init__(self, call: ast.Call, subject: Value) -> None:
        self.call = call
        self.subject = subject


Ref = Const | Func | Cls | Mod | Ext | Bound | Attr | Seq | Inst | Recv | Partial | Test

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Value:
    """One abstract value.

    ``deps`` are the forward parameters that it depends on, ``roots`` the storages that it may share, ``param`` the
    parameter that it *is* (not merely aliases), ``tags`` further facts by name.
    """

    __slots__ = ("cost", "deps", "kinds", "param", "ref", "roots", "sure", "tags", "why")

    def __init__(
        self,
        kinds: int,
        cost: int = LIVE,
        deps: frozenset[str] = _NO_NAMES,
        roots: frozenset[str] = _NO_NAMES,
        param: str | None = None,
        ref: Ref | None = None,
        why: Why | None = None,
        sure: int = HIGH,
        tags: frozenset[str] = _NO_NAMES,
    ) -> None:
        self.kinds = kinds
        self.cost = cost
        self.deps = deps
        self.roots = roots
        self.param = param
        self.ref = ref
        self.why = why
        self.sure = sure
        self.tags = tags

    @property
    def const(self) -> object:
        """The literal behind it, or ``...`` where there is none."""
        return self.ref.value if isinstance(self.ref, Const) else ...

    def because(self, path: str, line: int, text: str) -> Value:
        """The same value with one more link of evidence."""
        return replace(self, why=Why(path, line, text, self.why))

    def tagged(self, *tags: str) -> Value:
        """The same value with ``tags`` added."""
        return replace(self, tags=self.tags | frozenset(tags))


def replace(
    value: Value,
    *,
    kinds: int | None = None,
    cost: int | None = None,
    deps: frozenset[str] | None = None,
    roots: frozenset[str] | None = None,
    param: str | EllipsisType | None = ...,
    ref: Ref | EllipsisType | None = ...,
    why: Why | None = None,
    sure: int | None = None,
    tags: frozenset[str] | None = None,
) -> Value:
    """A copy with some fields changed (several times faster than dataclasses.replace, and this is the inner loop)."""
    return Value(
        value.kinds if kinds is None else kinds,
        value.cost if cost is None else cost,
        value.deps if deps is None else deps,
        value.roots if roots is None else roots,
        value.param if isinstance(param, EllipsisType) else param,
        value.ref if isinstance(ref, EllipsisType) else ref,
        value.why if why is None else why,
        value.sure if sure is None else sure,
        value.tags if tags is None else tags,
    )


HOST_VALUE: Final = Value(HOST)
NONE_VALUE: Final = Value(NONE, ref=Const(None))
UNKNOWN_VALUE: Final = Value(UNKNOWN, OPAQUE, sure=LOW)


def const(value: object) -> Value:
    """A literal host value."""
    return NONE_VALUE if value is None else Value(HOST, ref=Const(value))


def external(dotted: str, tags: frozenset[str] = _NO_NAMES) -> Value:
    """Something outside the project: the same value each time, since programs name the same few over and over."""
    found = _EXTERNALS.get((dotted, tags))
    if found is None:
        found = _EXTERNALS[dotted, tags] = Value(HOST, ref=Ext(dotted), tags=tags)
    return found


_EXTERNALS: Final[dict[tuple[str, frozenset[str]], Value]] = {}


def host(why: Why | None = None, sure: int = HIGH, deps: frozenset[str] = _NO_NAMES) -> Value:
    """A host value."""
    return HOST_VALUE if why is None and sure == HIGH and not deps else Value(HOST, why=why, sure=sure, deps=deps)


def sequence(items: Iterable[Value], mutable: bool = False) -> Value:
    """A tuple or list with known positions."""
    return Value(HOST, ref=Seq(list(items), mutable=mutable))


DEEP: Final = 6
"""How many containers inside one another are followed: what is deeper neither joins nor counts as carried."""


def join(a: Value, b: Value, depth: int = 0) -> Value:
    """The value that may be either. ``depth`` is how many containers it is inside of."""
    if a is b:
        return a
    # None brings nothing but its bit: the other's ref, roots and evidence stay.
    if a.kinds == NONE:
        return b if b.kinds & NONE else replace(b, kinds=b.kinds | NONE)
    if b.kinds == NONE:
        return a if a.kinds & NONE else replace(a, kinds=a.kinds | NONE)
    ref = a.ref
    if ref is not b.ref:
        ref = _join_ref(a.ref, b.ref, depth)
    return _both(a, b, ref, a.tags | b.tags if a.tags is not b.tags else a.tags)


def _both(a: Value, b: Value, ref: Ref | None, tags: frozenset[str]) -> Value:
    strong, weak, cost = _ranked(a, b)
    return Value(
        a.kinds | b.kinds,
        cost,
        a.deps | b.deps if a.deps is not b.deps else a.deps,
        a.roots | b.roots if a.roots is not b.roots else a.roots,
        a.param if a.param == b.param else None,
        ref,
        strong.why or weak.why,
        min(a.sure, b.sure) if strong.kinds == weak.kinds else strong.sure,
        tags,
    )


def _ranked(a: Value, b: Value) -> tuple[Value, Value, int]:
    """Which of two values decides, the other, and the cost of both together."""
    strong, weak = (a, b) if _weight(a) >= _weight(b) else (b, a)
    cost = strong.cost if not weak.kinds & (DEVICE | UNKNOWN) else max(a.cost, b.cost)
    if strong.cost == OPAQUE and weak.cost == CHEAP and strong.kinds & weak.kinds & DEVICE:
        # Two ways to one quantity, a fast one that can't be seen and a plain one: the recipe that can be read is for both.
        return weak, strong, CHEAP
    return strong, weak, cost


def _weight(value: Value) -> int:
    """Tensors weigh more than what is unknown, that more than the rest; cost decides between equals."""
    kinds = value.kinds
    return value.cost + (2000 if kinds & DEVICE else 0) + (1000 if kinds & UNKNOWN else 0)


def _join_ref(a: Ref | None, b: Ref | None, depth: int) -> Ref | None:
    if a is None or b is None:
        # A container on one path and a plain value on the other: the container still carries.
        other = b if a is None else a
        return other if isinstance(other, (Seq, Inst)) else None
    if isinstance(a, Seq) and isinstance(b, Seq):
        return _join_seq(a, b, depth + 1) if depth < DEEP else a
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value == b.value and type(a.value) is type(b.value) else None
    if isinstance(a, Ext) and a == b:
        return a
    if isinstance(a, (Seq, Inst)):
        return a
    if isinstance(b, (Seq, Inst)):
        return b
    if isinstance(a, Func) and isinstance(b, (Func, Ext, Bound)) and _only_raises(a):
        return b
    if isinstance(b, Func) and isinstance(a, Ext) and _only_raises(b):
        return a
    if isinstance(a, (Func, Cls, Bound)) and isinstance(b, (Func, Cls, Bound, Ext)):
        return a
    if isinstance(b, (Func, Cls, Bound)) and isinstance(a, Ext):
        return b
    return None


def _only_raises(func: Func) -> bool:
    """Whether a function stands in for something that is missing: its body is one ``raise``."""
    node = func.node
    if isinstance(node, ast.Lambda):
        return False
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _join_seq(a: Seq, b: Seq, depth: int) -> Seq:
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        items = [join(x, y, depth) for x, y in zip(a.items, b.items, strict=True)]
        rest = a.rest if b.rest is None else b.rest if a.rest is None else join(a.rest, b.rest, depth)
        return Seq(items, rest, a.keys or b.keys, a.mutable or b.mutable, a.shared or b.shared)
    if a.keys is not None and b.keys is not None:
        keys = dict(a.keys)
        for key, value in b.keys.items():
            keys[key] = join(keys[key], value, depth) if key in keys else value
        rest = a.rest if b.rest is None else b.rest if a.rest is None else join(a.rest, b.rest, depth)
        return Seq(None, rest, keys, True, a.shared or b.shared)
    rest_all = join_all([*a.each(), *b.each()], depth)
    joined = Seq(None, rest_all, None, a.mutable or b.mutable, a.shared or b.shared)
    joined.variants = _variants(a, b, depth)
    return joined


def _variants(a: Seq, b: Seq, depth: int) -> tuple[list[Value], ...]:
    """The tuples that either of two may be, one a length; none where one of them is something else."""
    found: dict[int, list[Value]] = {}
    for seq in (a, b):
        known = seq.variants or (() if seq.items is None or seq.rest is not None or seq.mutable else (seq.items,))
        if not known:
            return ()
        for items in known:
            other = found.get(len(items))
            found[len(items)] = (
                items if other is None else [join(x, y, depth) for x, y in zip(other, items, strict=True)]
            )
    return tuple(found.values())


def join_all(values: Iterable[Value], depth: int = 0) -> Value | None:
    """The join of all, None for none."""
    result: Value | None = None
    for value in values:
        result = value if result is None else join(result, value, depth)
    return result


def carried(value: Value, depth: int = 0, seen: set[int] | None = None) -> Value:
    """What a value keeps alive: itself, and everything inside a container or an object made in this call."""
    ref = value.ref
    inner: Iterable[Value]
    if isinstance(ref, Seq):
        inner = ref.each()
    elif isinstance(ref, Inst) and ref.built_here:
        inner = ref.attrs.values()
    elif isinstance(ref, Partial):
        inner = [*ref.args, *ref.kwargs.values(), ref.func]
    elif isinstance(ref, Bound):
        inner = [ref.receiver]
    else:
        return value
    seen = seen or set()
    if depth >= DEEP or id(ref) in seen:
        return value
    seen = seen | {id(ref)}
    result = replace(value, ref=None)
    for item in inner:
        part = carried(item, depth + 1, seen)
        if part.kinds == NONE:
            continue
        result = _gathered(result, part)
    return result


_CONTAINER: Final = frozenset(("container",))


def _gathered(a: Value, b: Value) -> Value:
    """The join of two values that are kept together, whatever they refer to, with the tags of both."""
    tags = a.tags | b.tags | _CONTAINER
    if a.kinds == NONE:
        return Value(b.kinds | NONE, b.cost, b.deps, b.roots, b.param, None, b.why, b.sure, tags)
    return _both(a, b, None, tags)
