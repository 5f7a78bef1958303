"""Attributes and items of values."""

from __future__ import annotations

import ast
from typing import Any, Final

from cachelint.index.walk import code_of, walk
from cachelint.infer.annotations import Reader
from cachelint.infer.conditions import Conditions
from cachelint.infer.names import suggests
from cachelint.infer.optable import operators
from cachelint.infer.symbols import FAIR, STRONG, WEAK
from cachelint.infer.values import (
    CHEAP,
    DEVICE,
    HOST,
    LIVE,
    LOW,
    NONE,
    PERSIST,
    SAVED,
    UNKNOWN,
    Attr,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Inst,
    Mod,
    Partial,
    Recv,
    Seq,
    Value,
    external,
    join,
    replace,
)

# Attributes of tensors that configurations and graphs often have too.
_COMMON_ATTRS: Final = frozenset(("dtype", "device", "layout"))
_RESULTS: Final = {"values": 0, "indices": 1}
"""Names of the results of operators that return several, by position."""

_SHAPE: Final = frozenset(("shape",))
_ATTRIBUTE_TAGS: Final = {"shape": _SHAPE, "dtype": frozenset(("dtype",))}
_DATA: Final = frozenset(("data",))
_FOREIGN: Final = frozenset(("foreign",))


class Attributes(Conditions):
    """``base.name`` and ``base[key]``."""

    def ev_attribute(self, node: ast.Attribute) -> Value:
        if self.frame.told and isinstance(node.value, ast.Name):
            known = self.frame.env.get(f"{node.value.id}.{node.attr}")
            if known is not None:
                return known
        return self.attribute(self.eval(node.value), node.attr, node)

    def attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """``base.name``."""
        ref = base.ref
        if ref is not None:
            handler = _ATTRIBUTES.get(type(ref))
            if handler is not None:
                found: Value | None = handler(self, base, ref, name, node)
                if found is not None:
                    return found
        return self.plain_attribute(base, name, node)

    def at_recv(self, base: Value, ref: Recv, name: str, node: ast.AST) -> Value | None:
        return self.receiver_attribute(base, name, node)

    def at_mod(self, base: Value, ref: Mod, name: str, node: ast.AST) -> Value | None:
        stored = self.module_values.get((ref.info.path, name))
        if stored is not None and "side-channel" in stored.tags:
            self.log.fetches.append(self.outside(name, node))
            return stored
        found = self.project.member(ref.info, name)
        dotted = f"{ref.info.name}.{name}"
        if found is None or (found.binding is not None and operators().names(dotted)):
            return external(dotted)
        if found.binding is None and found.module is not None:
            return Value(HOST, ref=Mod(found.module))
        return self.from_resolved(found.binding, found.module, found.dotted, name)

    def at_ext(self, base: Value, ref: Ext, name: str, node: ast.AST) -> Value | None:
        return external(f"{ref.dotted}.{name}", base.tags)

    def at_cls(self, base: Value, ref: Cls, name: str, node: ast.AST) -> Value | None:
        stored = self.class_attrs.get((id(ref.info), name))
        if stored is not None:
            self.log.fetches.append(self.outside(f"{ref.info.name}.{name}", node))
            return stored
        return self.class_member(ref.info, name, None, node)

    def at_inst(self, base: Value, ref: Inst, name: str, node: ast.AST) -> Value | None:
        if name in ref.attrs:
            value = ref.attrs[name]
            if isinstance(value.ref, Seq) and value.ref.mutable and value.ref.element() is None:
                self.fill_from_methods(ref, name, base)
            return value
        found = self.class_member(ref.info, name, base, node)
        if found is not None:
            return found
        if not ref.built_here or base.param:
            found = self.init_attribute(ref.info, name, base, node)
            if found is not None and isinstance(found.ref, Seq) and self.log.phase != "backward":
                ref.attrs[name] = found  # an empty container: what the methods put into it stays there
                self.fill_from_methods(ref, name, base)
            return found
        return None

    def fill_from_methods(self, ref: Inst, name: str, base: Value) -> None:
        """Run the methods of a class that put something into a container that ``__init__`` leaves empty."""
        if (id(ref), name) in self.looked:
            return
        self.looked.add((id(ref), name))
        for owner in self.mro(ref.info):
            for member in owner.node.body:
                if isinstance(member, ast.FunctionDef) and member.name != "__init__" and _fills(member, name):
                    self.call_function(Func(member, owner.module, owner), [base], {}, member)
        filled = ref.attrs[name].ref
        if isinstance(filled, Seq) and filled.rest is not None and filled.rest.kinds & UNKNOWN:
            # Put in by a caller of that method, whom we don't follow.
            filled.rest = None

    def at_seq(self, base: Value, ref: Seq, name: str, node: ast.AST) -> Value | None:
        if name in operators().host_attrs and base.kinds & (DEVICE | UNKNOWN):
            return None
        return Value(HOST, ref=Attr(base, name))

    def at_func(self, base: Value, ref: Func | Bound | Partial, name: str, node: ast.AST) -> Value | None:
        return Value(HOST, ref=Attr(base, name))

    def at_const(self, base: Value, ref: Const, name: str, node: ast.AST) -> Value | None:
        return None if base.kinds & DEVICE else Value(HOST, ref=Attr(base, name))

    def plain_attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """An attribute of a value whose class we don't know: a tensor's, or a handle's."""
        table = operators()
        if name in _RESULTS and "multi" in base.tags:
            return self.result_part(base, _RESULTS[name], node)
        if name in table.host_attrs:
            self.tensor_use(base, node, f"`.{name}` is read", FAIR if name in _COMMON_ATTRS else STRONG)
            ref = Attr(base, name) if name in table.methods else None  # an array's attribute, a tensor's method
            return Value(HOST, deps=base.deps, ref=ref, tags=_ATTRIBUTE_TAGS.get(name, frozenset()))
        if name in table.plain_attrs and base.kinds & DEVICE:
            return Value(HOST, deps=base.deps)
        if name in table.alias_attrs and (base.kinds & DEVICE or name in ("T", "mT", "data")):
            self.tensor_use(base, node, f"`.{name}` is read")
            return replace(
                base,
                param=None,
                ref=None,
                why=self.why(node, f"`.{name}`: an alias", base.why),
                tags=base.tags | _DATA if name == "data" else base.tags,
            )
        if name in table.methods or name in table.method_multi or (name[-1:] == "_" and name[:-1] in table.methods):
            return Value(HOST, ref=Attr(base, name))
        if base.kinds & UNKNOWN or (base.param is not None and base.kinds & HOST):
            return self.handle_attribute(base, name, node)
        if base.kinds & DEVICE:
            # An attribute that the author hung on a tensor or a parameter: main_grad, a quantisation state.
            symbol = self.symbols.get(base.param) if base.param else None
            if symbol is not None:
                if "tested" not in base.tags:
                    symbol.foreign.add(name)
                declared = self.declared_attribute(base, name, node)
                if declared is not None:
                    return declared
            device = suggests(name) != HOST and not name.startswith(("is_", "_is", "has_"))
            kinds = DEVICE | NONE if device else HOST
            if base.cost >= SAVED:  # part of what opaque code returned
                roots = frozenset(f"{root}.{name}" for root in base.roots)
                return Value(kinds, base.cost, base.deps, roots, why=base.why, sure=LOW, tags=_FOREIGN)
            return Value(kinds, PERSIST, base.deps, frozenset((f"a:{name}",)), sure=LOW, tags=_FOREIGN)
        if base.kinds == HOST and base.ref is None:
            return Value(HOST, ref=Attr(base, name), deps=base.deps, sure=base.sure, why=base.why)
        return Value(HOST, ref=Attr(base, name))

    def declared_attribute(self, base: Value, name: str, node: ast.AST) -> Value | None:
        """What the body of a subclass of Tensor says about an attribute of its objects."""
        info = self.tensor_classes.get(base.param or "")
        for owner in self.mro(info) if info is not None else ():
            for member in owner.members.get(name, ()):
                if isinstance(member, ast.AnnAssign):
                    told = self.why(node, f"`{name}` of a {owner.name} is annotated {code_of(member.annotation)}")
                    read = Reader(self.project, owner.module).read(member.annotation, name, f"a:{name}", told)
                    return None if read is None else replace(read, deps=base.deps, cost=PERSIST, param=None)
        return None

    def handle_attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """An attribute of something unknown, as a symbol of its own."""
        owner = base.param or "?"
        symbol = self.symbols.get(owner)
        if symbol is not None and name not in ("grad", "requires_grad"):
            symbol.foreign.add(name)
            if symbol.kind in ("result", "item"):
                self.note(base, HOST, WEAK, node, f"its attribute `.{name}` is read, which tensors don't have")
        side = suggests(name)
        value = self.symbol(
            f"{owner}.{name}",
            "attr",
            f"attribute `{name}` of `{owner}`",
            self.frame.module,
            getattr(node, "lineno", 0),
            deps=base.deps,
            cost=base.cost if base.cost >= SAVED else LIVE,
            prior=side or HOST,
        )
        return replace(value, ref=Attr(base, name)) if value.ref is None else value

    def ev_subscript(self, node: ast.Subscript) -> Value:
        base = self.eval(node.value)
        key = self.eval(node.slice)
        return self.item(base, key, node)

    def item(self, base: Value, key: Value, node: ast.Subscript) -> Value:
        """``base[key]``."""
        ref = base.ref
        if isinstance(ref, Seq):
            return self.sequence_item(ref, key, node)
        if isinstance(ref, Inst):
            items = self.positions(base, len(ref.attrs))
            position = key.const
            if items is not None and isinstance(position, int) and -len(items) <= position < len(items):
                return items[position]
        if isinstance(ref, (Func, Cls, Ext, Bound)):
            return Value(HOST, ref=Attr(base, "[]"))
        if base.param is not None and isinstance(key.const, (str, int)):
            if f"{base.param}[{key.const}]" in self.settled:
                return self.item_symbol(base, node, key.const)
        if base.kinds & DEVICE:
            return self.tensor_item(base, key, node)
        if base.kinds & UNKNOWN:
            if self.looks_like_tensor_index(node.slice):
                self.note(base, DEVICE, FAIR, node, "indexed like a tensor")
                return self.tensor_item(base, key, node)
            if isinstance(key.const, str):
                self.note(base, HOST, FAIR, node, "indexed with a string")
            if key.kinds & DEVICE:
                self.note(base, DEVICE, FAIR, node, "indexed with a tensor")
                return self.made(node, "a gather", (base, key), floor=CHEAP)
            if isinstance(node.slice, ast.Slice):
                return replace(base, param=None)
            literal = key.const if isinstance(key.const, (str, int)) else None
            return self.item_symbol(base, node, literal) if base.param else replace(base, param=None)
        if isinstance(ref, Attr):
            return Value(HOST, ref=Attr(base, "[]"))
        return Value(HOST, deps=base.deps, why=base.why, sure=base.sure)

    def tensor_item(self, base: Value, key: Value, node: ast.Subscript) -> Value:
        """Basic indexing makes a view, indexing with a tensor a copy."""
        if "multi" in base.tags and isinstance(key.const, int):
            return self.result_part(base, key.const, node)
        keys = key.ref.items or [] if isinstance(key.ref, Seq) else [key]
        if any(part.kinds & DEVICE for part in keys):
            return self.made(node, "a gather", (base, *keys), floor=CHEAP)
        return replace(base, param=None, ref=None, kinds=(base.kinds & ~NONE), why=self.why(node, "a view", base.why))

    def looks_like_tensor_index(self, key: ast.expr) -> bool:
        """``x[:, 0]``, ``x[..., None]``: forms that lists don't take."""
        if isinstance(key, ast.Tuple):
            return any(isinstance(e, (ast.Slice, ast.Constant)) for e in key.elts) and len(key.elts) > 1
        return isinstance(key, ast.Constant) and (key.value is None or key.value is Ellipsis)

    def sequence_item(self, ref: Seq, key: Value, node: ast.Subscript) -> Value:
        """An item of a known container."""
        if ref.shared:
            self.log.fetches.append(self.outside(ref.shared.rpartition(".")[2], node))
        literal = key.const
        if isinstance(node.slice, ast.Slice):
            return self.sequence_slice(ref, node.slice)
        if ref.items is not None and isinstance(literal, int):
            if (0 if ref.rest is not None else -len(ref.items)) <= literal < len(ref.items):
                return ref.items[literal]
        if ref.keys is not None and isinstance(literal, (str, int)) and literal in ref.keys:
            found = ref.keys[literal]
            return found if ref.rest is None or ref.places else join(found, ref.rest)
        if ref.places and isinstance(literal, (str, int)):
            return self.place(ref, literal, node)
        element = ref.element()
        if element is None:
            if ref.shared:
                return self.symbol(
                    f"item of {ref.shared}",
                    "result",
                    f"an item of the module's `{ref.shared}`",
                    self.frame.module,
                    node.lineno,
                    cost=PERSIST,
                    deps=frozenset(),
                )
            return self.symbol(
                f"item of {_source(node.value)}",
                "result",
                f"an item of `{_source(node.value)}`, which is empty as far as this code shows",
                self.frame.module,
                node.lineno,
                cost=PERSIST,
                deps=frozenset(),
            )
        return element

    def sequence_slice(self, ref: Seq, key: ast.Slice) -> Value:
        """A slice of a known container."""
        if ref.places:
            cut = self.slice_places(ref, key)
            if cut is not None:
                return cut
        if ref.items is not None:
            bounds: list[int | None] = []
            for part in (key.lower, key.upper, key.step):
                literal = None if part is None else self.eval(part).const
                if part is not None and not isinstance(literal, int):
                    break
                bounds.append(literal if isinstance(literal, int) else None)
            else:
                if ref.rest is None:
                    return Value(HOST, ref=Seq(ref.items[slice(*bounds)], mutable=ref.mutable))
                start = bounds[0] or 0
                if bounds[1:] == [None, None] and 0 <= start <= len(ref.items):
                    return Value(HOST, ref=Seq(ref.items[start:], ref.rest, mutable=ref.mutable))
        return Value(HOST, ref=Seq(None, ref.element(), mutable=ref.mutable))


def _source(node: ast.expr) -> str:
    text = code_of(node)
    return text if len(text) <= 48 else text[:45] + "..."


def _fills(method: ast.FunctionDef, name: str) -> bool:
    """Whether a method assigns to an item of ``self.<name>``."""
    return any(
        isinstance(item, ast.Subscript)
        and isinstance(item.ctx, ast.Store)
        and isinstance(item.value, ast.Attribute)
        and item.value.attr == name
        for item in walk(method)
    )


_ATTRIBUTES: Final[dict[type, Any]] = {
    Recv: Attributes.at_recv,
    Mod: Attributes.at_mod,
    Ext: Attributes.at_ext,
    Cls: Attributes.at_cls,
    Inst: Attributes.at_inst,
    Seq: Attributes.at_seq,
    Func: Attributes.at_func,
    Bound: Attributes.at_func,
    Partial: Attributes.at_func,
    Const: Attributes.at_const,
}
