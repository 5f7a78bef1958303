"""Classes of the project: bases, members, and the attributes that constructors set."""

from __future__ import annotations

import ast
from typing import Final

from cachelint.index.module import ClassInfo, FunctionNode
from cachelint.index.walk import code_of, last_name, walk
from cachelint.infer.annotations import Reader, is_enum
from cachelint.infer.core import _text
from cachelint.infer.places import Places
from cachelint.infer.scopes import is_kernel
from cachelint.infer.values import (
    DEVICE,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    PERSIST,
    UNKNOWN,
    Attr,
    Bound,
    Cls,
    Func,
    Seq,
    Value,
    join,
    join_all,
    replace,
)

_PROPERTIES: Final = frozenset(("property", "cached_property", "abstractproperty"))
_REGISTER: Final = frozenset(("register_buffer", "register_parameter"))


class Classes(Places):
    """Members of classes, and of the receiver."""

    def dotted_base(self, base: ast.expr, info: ClassInfo) -> str:
        """The dotted name of an outside base class, empty for the project's own."""
        if isinstance(base, ast.Subscript):
            base = base.value
        parts = code_of(base).split(".")
        found = self.project.resolve(info.module, parts[0])
        if found is None:
            return ".".join(parts)
        if found.binding is not None or found.module is not None:
            return ""
        return ".".join([found.dotted, *parts[1:]])

    def find_method(self, info: ClassInfo, name: str) -> tuple[FunctionNode, ClassInfo] | None:
        """A method by the (approximate) method resolution order."""
        for owner in self.mro(info):
            node = owner.method(name)
            if node is not None:
                return node, owner
        return None

    def mro(self, info: ClassInfo) -> list[ClassInfo]:
        """The class and its bases in the project, left to right, depth first, each once."""
        known = self.mros.get(id(info))
        if known is None:
            known = []
            self._linearise(info, known, 0)
            self.mros[id(info)] = known
        return known

    def _linearise(self, info: ClassInfo, out: list[ClassInfo], depth: int) -> None:
        if info in out or depth > 12:
            return
        out.append(info)
        for base in info.node.bases:
            found = self.base_class(base, info)
            if found is not None:
                self._linearise(found, out, depth + 1)

    def base_class(self, base: ast.expr, info: ClassInfo) -> ClassInfo | None:
        """The project class that a base expression names."""
        if isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            if info.scope is not None and isinstance(info.scope.get(base.id), ClassInfo):
                return info.scope[base.id]  # type: ignore[return-value]
            found = self.project.resolve(info.module, base.id)
            if found is None or found.binding is None:
                return None
            if isinstance(found.binding, ClassInfo):
                return found.binding
            if isinstance(found.binding, (ast.Name, ast.Attribute)) and found.module is not None:
                value = self.module_expression(found.binding, found.module, base.id)
                return value.ref.info if isinstance(value.ref, Cls) else None
            return None
        if isinstance(base, ast.Attribute):
            value = self.module_expression(base, info.module, base.attr)
            return value.ref.info if isinstance(value.ref, Cls) else None
        return None

    def class_member(self, info: ClassInfo, name: str, receiver: Value | None, node: ast.AST) -> Value | None:
        """A method, property or class attribute; None when no class in the order defines it."""
        for owner in self.mro(info):
            stored = self.class_attrs.get((id(owner), name))
            if stored is not None:
                return stored
            if name in owner.nested:
                return Value(HOST, ref=Cls(owner.nested[name]))
            members = owner.members.get(name)
            if not members:
                continue
            member = members[-1]
            if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return self.method_value(member, owner, receiver, node)
            if is_enum(info):
                return HOST_VALUE
            value_node = member.value if isinstance(member, (ast.Assign, ast.AnnAssign)) else None
            if value_node is not None:
                return self.module_expression(value_node, owner.module, name)
            if isinstance(member, ast.AnnAssign):
                return None
        return None

    def method_value(self, member: FunctionNode, owner: ClassInfo, receiver: Value | None, node: ast.AST) -> Value:
        """A method bound to a receiver, by its decorators."""
        func = Func(member, owner.module, owner, kernel=is_kernel(member))
        names = {last_name(d.func if isinstance(d, ast.Call) else d) for d in member.decorator_list}
        if "staticmethod" in names:
            return Value(HOST, ref=func)
        if "classmethod" in names:
            return Value(HOST, ref=Bound(Value(HOST, ref=Cls(owner)), func))
        if receiver is None:
            return Value(HOST, ref=func)
        if names & _PROPERTIES:
            return self.call_function(func, [receiver], {}, node)
        return Value(HOST, ref=Bound(receiver, func))

    def is_dialect_base(self, info: ClassInfo) -> bool:
        """Whether a class of the project is itself the dialect's base (a framework that lints itself)."""
        return f"{info.module.name}.{info.qualname}" in self.dialect_bases

    def init_attribute(self, info: ClassInfo, name: str, base: Value, node: ast.AST) -> Value | None:
        """What a class's ``__init__`` puts in an attribute, judged by the assignment alone."""
        for owner in self.mro(info):
            init = owner.method("__init__")
            if init is None:
                continue
            for item in self.init_assignments(init).get(name, ()):
                if isinstance(item, ast.Assign):
                    return self.init_expression(item.value, init, owner, name, base)
                if isinstance(item, ast.AnnAssign):
                    why = self.why(item, f"annotated {code_of(item.annotation)}")
                    reader = Reader(self.project, owner.module)
                    read = reader.read(item.annotation, base.param or name, f"a:{owner.name}.{name}", why)
                    if read is not None:
                        return replace(read, cost=PERSIST)
                else:
                    return self.held(owner, name, base, item, f"`{name}` is registered with the module")
        return None

    def init_assignments(self, init: FunctionNode) -> dict[str, list[ast.Assign | ast.AnnAssign | ast.Call]]:
        """The statements of a constructor by the attribute that they set; read once a process."""
        known = self.project.init_assignments.get(id(init))
        if known is None:
            known = self.project.init_assignments[id(init)] = {}
            for item in walk(init):
                if isinstance(item, ast.Assign):
                    for target in item.targets:
                        if isinstance(target, ast.Attribute) and _is_self(target.value):
                            known.setdefault(target.attr, []).append(item)
                elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Attribute):
                    known.setdefault(item.target.attr, []).append(item)
                elif isinstance(item, ast.Call) and last_name(item.func) in _REGISTER and item.args:
                    first = item.args[0]
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        known.setdefault(first.value, []).append(item)
        return known

    def held(self, owner: ClassInfo, name: str, base: Value, node: ast.AST, text: str) -> Value:
        """A tensor that an object holds beyond this call."""
        root = frozenset((f"a:{owner.name}.{name}",))
        return Value(DEVICE, PERSIST, frozenset((base.param or name,)), root, why=self.why(node, text))

    def init_expression(
        self, node: ast.expr, init: FunctionNode, owner: ClassInfo, name: str, base: Value
    ) -> Value | None:
        """The right-hand side of ``self.name = …`` in a constructor."""
        if isinstance(node, ast.Constant):
            return None if node.value is None else Value(HOST, why=self.why(node, "set to a constant in __init__"))
        if isinstance(node, ast.Name):
            for parameter in (*init.args.args, *init.args.kwonlyargs):
                if parameter.arg == node.id and parameter.annotation is not None:
                    why = self.why(
                        parameter, f"`{name}` comes from a parameter annotated {code_of(parameter.annotation)}"
                    )
                    reader = Reader(self.project, owner.module)
                    read = reader.read(parameter.annotation, base.param or name, f"a:{owner.name}.{name}", why)
                    return None if read is None else replace(read, cost=PERSIST)
            defaults = [None] * (len(init.args.args) - len(init.args.defaults)) + list(init.args.defaults)
            for parameter, default in zip(init.args.args, defaults, strict=True):
                if parameter.arg == node.id and isinstance(default, ast.Constant) and default.value is not None:
                    return Value(HOST, sure=MEDIUM, why=self.why(parameter, f"`{name}` has a literal default"))
            return None
        if _is_empty_container(node):
            return Value(HOST, ref=Seq([], mutable=True) if isinstance(node, ast.List) else Seq(None, None, {}, True))
        if isinstance(node, (ast.Compare, ast.JoinedStr, ast.List, ast.Dict, ast.Tuple, ast.Lambda)):
            return Value(HOST, sure=MEDIUM, why=self.why(node, "a host value in __init__"))
        if isinstance(node, (ast.Call, ast.BinOp, ast.IfExp, ast.BoolOp, ast.UnaryOp)):
            value = self.module_expression(node, owner.module, name)
            if value.kinds & DEVICE:
                return self.held(owner, name, base, node, f"`{name}` is made in __init__: {_text(node)}")
            if value.kinds == HOST and value.sure > LOW and not isinstance(value.ref, Seq):
                return value if value.why is not None else Value(HOST, sure=MEDIUM, ref=value.ref)
        return None

    def receiver_attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """``ctx.name`` or ``self.name``: API, field, method, or what ``__init__`` set."""
        log = self.log
        current = log.attrs.get(name)
        if current is not None:
            log.reads.append(self.event(name, node, unset="maybe-unset" in current.tags))
            if "maybe-unset" in current.tags and name in log.initial:
                return join(current, log.initial[name])
            return current
        if name in log.read_back and name not in log.save_names:
            found = self.find_method(self.receiver_class, name) if self.receiver_class is not None else None
            if found is not None and not self.is_dialect_base(found[1]):
                pass
            elif (name.startswith("saved_") and name != "saved_tensor") or name in log.own_read_back:
                return self.read_saved(node)
            else:
                return Value(HOST, ref=Attr(base, name))
        if name in log.api:
            if name == "needs_input_grad":
                return Value(HOST, ref=Seq(None, HOST_VALUE))
            found = self.find_method(self.receiver_class, name) if self.receiver_class is not None else None
            # The contract's own base class may be in the project too: its save call is the API all the same.
            if found is None or name in log.save_names or self.is_dialect_base(found[1]):
                return Value(HOST, ref=Attr(base, name))
        if name == "__dict__":
            log.escapes.append(self.event("*", node, sure=False))
            return Value(HOST, ref=Seq(None, join_all(log.attrs.values())))
        if self.receiver_is_self:
            assert self.receiver_class is not None
            member = self.class_member(self.receiver_class, name, base, node)
            if member is not None and isinstance(member.ref, (Func, Bound, Cls)):
                return member
            log.reads.append(self.event(name, node, unset=True))
            if name in log.initial:
                return log.initial[name]
            if member is not None:
                return member
        else:
            log.reads.append(self.event(name, node, unset=True))
        return self.symbol(
            f"self.{name}",
            "self",
            f"attribute `{name}` of the receiver, set elsewhere",
            self.frame.module,
            getattr(node, "lineno", 0),
            cost=PERSIST,
        )

    def read_saved(self, node: ast.AST) -> Value:
        """``ctx.saved_tensors`` and its like."""
        self.log.unpacks.append(self.event("saved", node))
        values = self.log.saved_values()
        if values is not None:
            if any("starred" in value.tags for value in values):
                return Value(HOST, ref=Seq(None, join_all(values)))
            return Value(
                HOST,
                ref=Seq([replace(v, kinds=v.kinds & ~UNKNOWN | DEVICE) if v.kinds & UNKNOWN else v for v in values]),
            )
        return Value(HOST, ref=Seq(None, Value(DEVICE | NONE, LIVE)))


def _is_empty_container(node: ast.expr) -> bool:
    """``[]``, ``{}``, ``dict()`` and their like."""
    if isinstance(node, ast.Call):
        return not node.args and not node.keywords and last_name(node.func) in ("dict", "list", "OrderedDict")
    return (isinstance(node, ast.List) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
