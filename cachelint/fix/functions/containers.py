"""Containers: the tensors are taken out and saved one by one, the rest stays on ctx, and backward builds it again."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from cachelint.fix.edits import WIDTH, Rewrite
from cachelint.fix.functions.backward import Reader
from cachelint.fix.functions.fields import CannotPlan, Field, tensor_only
from cachelint.fix.functions.flow import plain_name
from cachelint.fix.functions.forward import Placement, Site, Slot
from cachelint.index.walk import code_of, last_name, within
from cachelint.infer.values import DEVICE, NONE, UNKNOWN, Inst, Seq, Value, carried

TENSOR, HOST_PART, LITERAL = "tensor", "host", "literal"


@dataclass(frozen=True, slots=True)
class Part:
    """One item: what it is, its code in forward, its key in a dict or its index."""

    kind: str
    node: ast.expr
    key: object


@dataclass
class Shape:
    """How a container is taken apart: item by item, or as one run of tensors (``parts`` is None)."""

    item: Field
    parts: list[Part] | None
    dictionary: bool = False
    mutable: bool = True
    slots: list[Slot] = field(default_factory=list)
    hosts: dict[object, str] = field(default_factory=dict)
    mixed: bool = False
    """Whether only the program knows which items are tensors: the others stay in a container on the receiver."""
    optional: bool = False


def shape_of(item: Field, site: Site, kind_of: KindOf) -> Shape:
    """How to take a field apart. ``kind_of`` tells what an expression of forward is: a list, a tuple, a dict, or
    nothing. Raises CannotPlan."""
    ref = item.value.ref
    assert isinstance(ref, Seq)
    name = item.name
    pairs = site.pairs(name)
    if ref.shared:
        raise CannotPlan("it is a container of the module, shared by every call", "shared container", name)
    literal = None if item.split else _literal(item, site, ref)
    if literal is not None:
        return literal
    element = ref.element()
    several = any(p.statement is not pairs[0].statement for p in pairs) and len(pairs) > 1
    whole = not item.split and element is not None and ref.keys is None and tensor_only(element)
    kinds = {kind_of(pair.value) for pair in pairs if not is_none(pair.value)}
    if whole and kinds != {"dict"} and all(p.value is not None for p in pairs):
        if several:
            raise CannotPlan("it is built in several places", "several containers", name)
        if any(_is_no_sequence(pair.value, site) for pair in pairs):
            raise CannotPlan(
                "it is an iterator, a set or a dict, which no saved run of tensors gives back", "mixed container", name
            )
        return Shape(item, None, mutable=_is_mutable(pairs[0].value, ref))
    if any(isinstance(part.ref, (Seq, Inst)) for part in ref.each()):
        raise CannotPlan(
            "it holds containers or objects, whose tensors would have to be found", "nested container", name
        )
    kind = kinds.pop() if len(kinds) == 1 else ""
    if not kind and ref.keys is not None and ref.items is None and not kinds - {"dict"}:
        kind = "dict"  # the display that made it was found, or a copy of it
    if not kind:
        raise CannotPlan(
            "nothing shows whether it is a list, a tuple or a dict: its tensors can't be told from the rest",
            "mixed container",
            name,
        )
    optional = bool(item.value.kinds & NONE) or any(is_none(pair.value) for pair in pairs)
    return Shape(item, None, kind == "dict", kind == "list", mixed=True, optional=optional)


KindOf = Callable[[ast.expr | None], str]


def is_none(node: ast.expr | None) -> bool:
    """Whether an expression is the literal None."""
    return isinstance(node, ast.Constant) and node.value is None


def _literal(item: Field, site: Site, ref: Seq) -> Shape | None:
    pairs = site.pairs(item.name)
    if len(pairs) != 1 or not pairs[0].plain or not isinstance(pairs[0].statement, ast.Assign):
        return None
    pair, statement = pairs[0], pairs[0].statement
    if statement.targets[0] is not pair.use.node or not site.flow.is_top(pair.statement):
        return None
    value = pair.value
    if not isinstance(value, ast.Tuple) and any(
        _may_change(site, use.node) for use in site.routine.of("load", item.name)
    ):
        return None
    entries: list[tuple[object, ast.expr, Value]]
    if isinstance(value, (ast.Tuple, ast.List)) and ref.items is not None and len(ref.items) == len(value.elts):
        if ref.rest is not None or any(isinstance(e, ast.Starred) for e in value.elts):
            return None
        entries = list(zip(range(len(value.elts)), value.elts, ref.items, strict=True))
    elif isinstance(value, ast.Dict) and ref.keys is not None and ref.rest is None:
        entries = []
        for key, node in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or key.value not in ref.keys:
                return None
            entries.append((key.value, node, ref.keys[key.value]))
        if len(entries) != len(ref.keys):
            return None
    elif _is_dict_call(value) and ref.keys is not None and ref.rest is None:
        assert isinstance(value, ast.Call)
        keywords = [keyword for keyword in value.keywords if keyword.arg in ref.keys]
        entries = [(keyword.arg, keyword.value, ref.keys[keyword.arg]) for keyword in keywords]
        if not len(entries) == len(ref.keys) == len(value.keywords):
            return None
    else:
        return None
    parts: list[Part] = []
    for number, node, what in entries:
        if isinstance(node, ast.Constant):
            parts.append(Part(LITERAL, node, number))
        elif tensor_only(what):
            parts.append(Part(TENSOR, node, number))
        elif not carried(what).kinds & (DEVICE | UNKNOWN) or what.kinds == NONE:
            parts.append(Part(HOST_PART, node, number))
        else:
            return None
    return Shape(item, parts, not isinstance(value, (ast.Tuple, ast.List)), not isinstance(value, ast.Tuple))


def _may_change(site: Site, node: ast.expr) -> bool:
    """Whether a read of a container in forward may change it: anything but ``c[i]``, ``*c`` and ``len(c)``."""
    parent = site.flow.parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return not isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Call):
        return not (isinstance(parent.func, ast.Name) and parent.func.id == "len")
    return not isinstance(parent, ast.Starred)


def _is_no_sequence(value: ast.expr | None, site: Site, depth: int = 0) -> bool:
    """Whether an expression gives an iterator, a set or a dict by its looks, or a local that some path binds to one."""
    if isinstance(value, (ast.GeneratorExp, ast.Set, ast.SetComp, ast.Dict, ast.DictComp)):
        return True
    if isinstance(value, ast.IfExp):
        return any(_is_no_sequence(arm, site, depth + 1) for arm in (value.body, value.orelse))
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub))
    if isinstance(value, ast.Call):
        return last_name(value.func) in _NO_SEQUENCES
    if not isinstance(value, ast.Name) or depth > 4:
        return False
    for node in site.flow.bindings.get(value.id, ()):
        parent = site.flow.parents.get(node)
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if _is_no_sequence(parent.value, site, depth + 1):
                return True
    return False


_NO_SEQUENCES = frozenset(
    "map zip iter reversed filter enumerate set frozenset dict deque OrderedDict defaultdict Counter ChainMap fromkeys "
    "items values keys chain islice repeat cycle starmap tee".split()
)


def _is_dict_call(value: ast.expr | None) -> bool:
    """``dict(a=x, b=y)``."""
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args
    )


def _literal_code(key: object) -> str:
    """A key as code, strings in the quotes that formatters use."""
    return json.dumps(key) if isinstance(key, str) and key.isascii() else repr(key)


def _is_mutable(value: ast.expr | None, ref: Seq) -> bool:
    if isinstance(value, (ast.List, ast.ListComp)):
        return True
    if isinstance(value, ast.Tuple):
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("list", "tuple"):
        return value.func.id == "list"
    return ref.mutable


# -- forward ---------------------------------------------------------------------------------------------------------


def ready(shape: Shape, site: Site) -> int:
    """The index of the last statement of the body that may still change the container."""
    flow, name = site.flow, shape.item.name
    nodes = [use.node for use in site.routine.of("load", name)]
    for pair in site.pairs(name):
        if isinstance(pair.value, ast.Name):
            nodes += flow.loads(pair.value.id)
    tops = [flow.top(node) for node in nodes if shape.mutable]
    returned = {flow.top(item) for item in flow.returns if flow.is_top(item)}
    return max([top for top in tops if top not in returned], default=-1)


def take_apart(shape: Shape, site: Site, place: Placement, attributes: set[str], only: str) -> None:
    """Write the forward side: fills ``shape.slots`` and ``shape.hosts``. ``attributes`` are names taken on ctx,
    ``only`` is the class of tensors."""
    name, receiver = shape.item.name, site.routine.receiver
    if shape.mixed:
        _take_out(shape, site, place, only)
        return
    if shape.parts is None:
        local = site.local(name, place, empty="()")
        shape.slots = [Slot(local, name, star=True)]
        return
    (pair,) = site.pairs(name)
    lines: list[str] = []
    base: str | None = None
    if site.routine.of("load", name):
        base = site.flow.fresh(name, site.taken)
        site.taken.add(base)
        assert pair.value is not None
        lines.append(f"{base} = {site.text.source(pair.value)}")
        site.replace_loads(name, base)
    end = len(site.flow.node.body) if place.kind == "collect" else place.index
    for part in shape.parts:
        code = site.text.source(part.node)
        stem = part.key if isinstance(part.key, str) and part.key.isidentifier() else f"{name}_{part.key}"
        if part.kind == TENSOR:
            wanted = part.node.id if isinstance(part.node, ast.Name) else str(stem)
            if base is not None:
                slot = f"{base}[{_literal_code(part.key)}]"
            elif isinstance(part.node, ast.Name) and not site.flow.rebound_between(
                part.node.id, site.flow.top(pair.statement), end
            ):
                slot = part.node.id
            else:
                slot = site.flow.fresh(str(stem), site.taken)
                site.taken.add(slot)
                lines.append(f"{slot} = {code}")
            shape.slots.append(Slot(slot, wanted))
        elif part.kind == HOST_PART:
            attribute = plain_name(part.node.id if isinstance(part.node, ast.Name) else str(stem))
            head = f"{plain_name(name)}_"
            while attribute in attributes:
                attribute = f"{attribute}_" if attribute.startswith(head) else f"{head}{attribute}"
            attributes.add(attribute)
            shape.hosts[part.key] = attribute
            source = f"{base}[{_literal_code(part.key)}]" if base is not None else code
            lines.append(f"{receiver}.{attribute} = {source}")
    inner = [use.node for use in site.routine.uses if use.kind == "load" and within(use.node, pair.value)]
    if inner:
        raise CannotPlan("it is built from other attributes", "built from attributes", name)
    site.edits.append(Rewrite(site.text.span(pair.statement), tuple(lines)))


def _take_out(shape: Shape, site: Site, place: Placement, only: str) -> None:
    """A container of which only the program knows the tensors: these are saved, the rest stays in a copy of it."""
    name = shape.item.name
    local = site.local(name, place)
    shape.optional |= f"{local} = None" in site.inits
    taken = {*site.taken, local}
    item = site.flow.fresh("item", taken)
    kept = f"None if isinstance({item}, {only}) else {item}"
    if shape.dictionary:
        key = site.flow.fresh("key", taken)
        code = f"{key}: {kept} for {key}, {item} in {local}.items()"
        items = f"({local} or {{}}).values()" if shape.optional else f"{local}.values()"
    else:
        code = f"{kept} for {item} in {local}"
        items = f"{local} or ()" if shape.optional else local
    site.counts.append(_built(shape, f"{site.routine.receiver}.{name} = ", local, code))
    shape.slots = [Slot(f"({item} if isinstance({item}, {only}) else None for {item} in {items})", name, star=True)]


def _put_back(shape: Shape, reader: Reader, local: str) -> str:
    """The statement that puts the saved tensors back among the rest."""
    taken = {*reader.taken, local}
    item, kept = reader.flow.fresh("item", taken), reader.flow.fresh("kept", taken)
    rest = f"{reader.routine.receiver}.{shape.item.name}"
    code = f"{kept} if {item} is None else {item}"
    if shape.dictionary:
        key = reader.flow.fresh("key", taken)
        code = f"{key}: {code} for {item}, ({key}, {kept}) in zip({local}, {rest}.items())"
    else:
        code = f"{code} for {item}, {kept} in zip({local}, {rest})"
    return _built(shape, f"{local} = ", rest, code)


def _built(shape: Shape, head: str, source: str, inner: str) -> str:
    """A statement that builds a container like the one that it was; None stays None."""
    start, end = ("{", "}") if shape.dictionary else ("[", "]") if shape.mutable else ("tuple(", ")")
    head += f"None if {source} is None else {start}" if shape.optional else start
    line = f"{head}{inner}{end}"
    return line if len(line) <= WIDTH - 8 else f"{head}\n    {inner}\n{end}"


# -- backward --------------------------------------------------------------------------------------------------------


def put_together(shape: Shape, reader: Reader, below: bool = False) -> list[str]:
    """Write the backward side; the names to unpack the slots to. ``below``: a helper reads the container as well, so
    it is needed as a whole; ``reader.whole`` then has its name."""
    if shape.parts is None:
        return _run(shape, reader, below)
    name = shape.item.name
    loads = reader.routine.of("load", name)
    changed = reader.routine.of("store", name) and not all(
        _cleared(reader, use.node) for use in reader.routine.of("store", name)
    )
    if not changed and not below:
        names = _unpacked(shape, reader) or _indexed(shape, reader)
        if names is not None:
            return names
    names = []
    codes: dict[object, str] = {}
    for part, slot in _tensors(shape):
        local = reader.flow.fresh(slot.name, (*reader.taken, name))
        reader.taken.add(local)
        names.append(local)
        codes[part.key] = local
    if loads or below:
        whole = reader.bind(name)
        reader.whole[name] = whole
        reader.lines.append(f"{whole} = {_rebuilt(shape, codes, reader.routine.receiver)}")
    else:
        reader.replace(name, name)
    return names


def _tensors(shape: Shape) -> list[tuple[Part, Slot]]:
    assert shape.parts is not None
    return list(zip([p for p in shape.parts if p.kind == TENSOR], shape.slots, strict=True))


def _code(part: Part, codes: dict[object, str], shape: Shape, receiver: str) -> str:
    if part.kind == LITERAL:
        value = part.node.value if isinstance(part.node, ast.Constant) else None
        return _literal_code(value) if isinstance(value, str) else code_of(part.node)
    return codes[part.key] if part.kind == TENSOR else f"{receiver}.{shape.hosts[part.key]}"


def _rebuilt(shape: Shape, codes: dict[object, str], receiver: str) -> str:
    assert shape.parts is not None
    items = [_code(part, codes, shape, receiver) for part in shape.parts]
    if shape.dictionary:
        return (
            "{" + ", ".join(f"{_literal_code(p.key)}: {code}" for p, code in zip(shape.parts, items, strict=True)) + "}"
        )
    if shape.mutable:
        return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _cleared(reader: Reader, node: ast.expr) -> bool:
    statement = reader.flow.statement(node)
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def _unpacked(shape: Shape, reader: Reader) -> list[str] | None:
    """``a, b, n = ctx.f``, the only read: its names are taken over."""
    assert shape.parts is not None
    flow = reader.flow
    loads = reader.routine.of("load", shape.item.name)
    if len(loads) != 1 or shape.dictionary:
        return None
    statement = flow.statement(loads[0].node)
    if not isinstance(statement, ast.Assign) or statement.value is not loads[0].node or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != len(shape.parts):
        return None
    if not flow.is_top(statement) or not all(isinstance(e, ast.Name) for e in target.elts):
        return None
    index = flow.top(statement)
    names, hosts = [], []
    for part, element in zip(shape.parts, target.elts, strict=True):
        assert isinstance(element, ast.Name)
        local = element.id
        if part.kind == TENSOR and local != "_":
            bound = [node for node in flow.bindings.get(local, ()) if node is not element and flow.top(node) <= index]
            early = any(flow.top(node) < index for node in flow.loads(local))
            if bound or early or local in reader.taken or local in flow.parameters:
                return None
            names.append(local)
        elif part.kind == TENSOR:
            names.append("_")
        elif local != "_" or flow.loads("_"):
            hosts.append(f"{local} = {_code(part, {}, shape, reader.routine.receiver)}")
    if len({n for n in names if n != "_"}) < len([n for n in names if n != "_"]):
        return None
    reader.taken.update(names)
    reader.replace(shape.item.name, "_")
    if hosts:
        reader.edits.append(Rewrite(reader.text.span(statement), tuple(hosts)))
    else:
        reader.dropped.add(statement)
    reader.loads = [node for node in reader.loads if node is not loads[0].node] + [statement.value]
    return names


def _indexed(shape: Shape, reader: Reader) -> list[str] | None:
    """Reads of single items only: ``ctx.f["x"]``."""
    assert shape.parts is not None
    flow, name = reader.flow, shape.item.name
    loads = reader.routine.of("load", name)
    if not loads or reader.routine.of("store", name):
        return None
    by_key = {part.key: part for part in shape.parts}
    found: list[tuple[ast.Subscript, Part]] = []
    for use in loads:
        parent = flow.parents.get(use.node)
        if (
            not isinstance(parent, ast.Subscript)
            or parent.value is not use.node
            or not isinstance(parent.ctx, ast.Load)
        ):
            return None
        key = _constant(parent.slice)
        if isinstance(key, int) and not shape.dictionary and key < 0:
            key += len(shape.parts)
        if key not in by_key:
            return None
        found.append((parent, by_key[key]))
    names, codes = [], {}
    for part, slot in _tensors(shape):
        local = flow.fresh(slot.name, reader.taken)
        reader.taken.add(local)
        names.append(local)
        codes[part.key] = local
    from cachelint.fix.edits import Replace

    for node, part in found:
        reader.edits.append(Replace(reader.text.span(node), _code(part, codes, shape, reader.routine.receiver)))
        reader.loads.append(node)
    for use in reader.routine.of("delete", name):
        reader.clear(flow.statement(use.node), use.node)
    return names


def _constant(node: ast.expr) -> object:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    return node.value if isinstance(node, ast.Constant) else None


def _run(shape: Shape, reader: Reader, below: bool) -> list[str]:
    """A run of tensors: ``*states`` in the unpacking, which makes a list."""
    name = shape.item.name
    reader.run = name
    if not reader.routine.of("load", name) and not below:
        reader.replace(name, name)
        return ["*_"]
    local = reader.bind(name)
    reader.whole[name] = local
    if shape.mixed:
        reader.lines.append(_put_back(shape, reader, local))
        return [f"*{local}"]
    if not shape.mutable:
        reader.tuples.add(local)
    if not shape.mutable and (below or not _list_will_do(reader, local, name)):
        reader.lines.append(f"{local} = tuple({local})")
    return [f"*{local}"]


def _list_will_do(reader: Reader, local: str, name: str) -> bool:
    """Whether every read only indexes, iterates, measures or unpacks."""
    flow = reader.flow
    for node in [*(use.node for use in reader.routine.of("load", name)), *flow.loads(local)]:
        parent = flow.parents.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node and not isinstance(parent.slice, ast.Slice):
            continue
        if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node:
            continue
        if isinstance(parent, ast.Starred):
            continue
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in _ITERATES:
            continue
        if isinstance(parent, ast.Assign) and parent.value is node:
            target = parent.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)):
                continue
            if isinstance(target, ast.Name) and target.id == local:
                continue
        return False
    return True


_ITERATES = frozenset(["len", "zip", "enumerate", "reversed", "sum", "map", "list", "tuple", "sorted", "any", "all"])
