"""What a type annotation says about a value: string forms, Optional, unions, containers, dataclasses, enums."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

from cachelint.index.module import ClassInfo, ModuleInfo
from cachelint.index.project import Project
from cachelint.index.walk import last_name
from cachelint.infer.values import DEVICE, HOST, NONE, Inst, Seq, Value, Why, join, replace

_TENSORS: Final = frozenset(
    [
        "Tensor",
        "FloatTensor",
        "HalfTensor",
        "LongTensor",
        "IntTensor",
        "BoolTensor",
        "ByteTensor",
        "DoubleTensor",
        "BFloat16Tensor",
        "ShortTensor",
        "Parameter",
        "ndarray",
        "NDArray",
        "DTensor",
        "ArrayLike",
        "Variable",
        "Array",
        "TensorType",
    ]
)
_HOST_NAMES: Final = frozenset(
    [
        "int",
        "float",
        "bool",
        "str",
        "bytes",
        "complex",
        "dtype",
        "device",
        "Size",
        "Number",
        "Integer",
        "slice",
        "range",
        "layout",
        "memory_format",
        "SymInt",
        "SymFloat",
        "int8",
        "date",
        "PathLike",
        "Path",
        "constexpr",
    ]
)
_HANDLES: Final = frozenset(
    [
        "Callable",
        "ProcessGroup",
        "Generator",
        "Stream",
        "Event",
        "Module",
        "Function",
        "FunctionCtx",
        "DeviceMesh",
        "Type",
        "type",
        "ModuleType",
        "Logger",
        "Enum",
        "object_handle",
        "Placement",
        "Partial",
        "Work",
        "Shard",
        "Group",
        "Literal",
    ]
)
_SEQUENCES: Final = frozenset(
    [
        "List",
        "list",
        "Tuple",
        "tuple",
        "Sequence",
        "Iterable",
        "Set",
        "set",
        "FrozenSet",
        "frozenset",
        "Collection",
        "deque",
    ]
)
_MAPPINGS: Final = frozenset(["Dict", "dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"])


@dataclass(frozen=True)
class Reader:
    """Reads annotations of one module. ``budget`` bounds nesting of dataclasses in dataclasses."""

    project: Project
    module: ModuleInfo

    def read(self, node: ast.expr | None, name: str, root: str, why: Why, depth: int = 0) -> Value | None:
        """The value that the annotation promises, or None when it promises nothing.

        Device parts carry ``root`` as their storage and ``name`` as what they depend on.
        """
        if node is None or depth > 6:
            return None
        if isinstance(node, ast.Constant):
            if node.value is None:
                return Value(NONE)
            if isinstance(node.value, str):
                try:
                    return self.read(ast.parse(node.value, mode="eval").body, name, root, why, depth + 1)
                except (SyntaxError, ValueError):
                    return None
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union([node.left, node.right], name, root, why, depth)
        if isinstance(node, ast.Subscript):
            return self._generic(node, name, root, why, depth)
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        info = self._class(node)
        if info is not None:
            return self._of_class(info, name, root, why, depth)
        if last in _TENSORS:
            return Value(DEVICE, deps=frozenset({name}), roots=frozenset({root}), param=name, why=why)
        if last in _HOST_NAMES:
            return Value(HOST, why=why, deps=frozenset({name}))
        if last in _HANDLES:
            return Value(HOST, why=why, tags=frozenset({"handle"}))
        if last in _SEQUENCES or last in _MAPPINGS:
            return None
        return None

    def _union(self, parts: list[ast.expr], name: str, root: str, why: Why, depth: int) -> Value | None:
        result: Value | None = None
        for part in parts:
            value = self.read(part, name, root, why, depth + 1)
            if value is None:
                return None
            result = value if result is None else join(result, value)
        return result

    def _generic(self, node: ast.Subscript, name: str, root: str, why: Why, depth: int) -> Value | None:
        head = node.value
        last = head.attr if isinstance(head, ast.Attribute) else head.id if isinstance(head, ast.Name) else ""
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if last == "Optional":
            value = self.read(node.slice, name, root, why, depth + 1)
            return None if value is None else replace(value, kinds=value.kinds | NONE)
        if last == "Union":
            return self._union(inner, name, root, why, depth)
        if last in ("Annotated", "Final", "ClassVar", "Required", "NotRequired"):
            return self.read(inner[0], name, root, why, depth + 1)
        if last in ("Literal", "Callable", "Type", "type"):
            return Value(HOST, why=why)
        if last in _MAPPINGS:
            value = self.read(inner[-1], name, root, why, depth + 1)
            return None if value is None else Value(HOST, why=why, ref=Seq(None, _piece(value)))
        if last in ("Tuple", "tuple") and not (len(inner) == 2 and _is_ellipsis(inner[1])):
            values = [self.read(part, name, f"{root}[{i}]", why, depth + 1) for i, part in enumerate(inner)]
            if all(value is not None for value in values):
                return Value(HOST, why=why, ref=Seq([_piece(v) for v in values if v is not None]))
            return None
        if last in _SEQUENCES:
            value = self.read(inner[0], name, root, why, depth + 1)
            return None if value is None else Value(HOST, why=why, ref=Seq(None, _piece(value)))
        if inner and last in ("Float", "Int", "Bool", "Shaped", "Integer", "Num", "Real", "Complex", "UInt"):
            return self.read(inner[0], name, root, why, depth + 1)  # jaxtyping
        if last in _TENSORS:
            return Value(DEVICE, deps=frozenset({name}), roots=frozenset({root}), param=name, why=why)
        return None

    def class_of(self, node: ast.expr) -> ClassInfo | None:
        """The class of the project that an annotation names, quoted or not."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError):
                return None
        return self._class(node)

    def _class(self, node: ast.expr) -> ClassInfo | None:
        if isinstance(node, ast.Name):
            found = self.project.resolve(self.module, node.id)
            return found.binding if found is not None and isinstance(found.binding, ClassInfo) else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            base = self.project.resolve(self.module, node.value.id)
            if base is not None and base.binding is None and base.module is not None:
                found = self.project.member(base.module, node.attr)
                return found.binding if found is not None and isinstance(found.binding, ClassInfo) else None
        return None

    def _of_class(self, info: ClassInfo, name: str, root: str, why: Why, depth: int) -> Value:
        if not is_record(info):
            if any(last_name(base) in _TENSORS for base in info.node.bases):
                return Value(DEVICE, deps=frozenset({name}), roots=frozenset({root}), param=name, why=why)
            return Value(HOST, why=why, ref=Inst(info, built_here=False), tags=frozenset({"handle"}))
        reader = Reader(self.project, info.module)
        plain = reader._plain_fields(info, depth)
        deps = frozenset({name})
        made: dict[tuple[int, frozenset[str]], Value] = {}
        attrs = {}
        for item in info.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                field = item.target.id
                simple = plain.get(field)
                if simple is not None:
                    value = made.get(simple)
                    if value is None:
                        value = made[simple] = Value(simple[0], deps=deps, why=why, tags=simple[1])
                    attrs[field] = value
                    continue
                read = reader.read(item.annotation, f"{name}.{field}", f"{root}.{field}", why, depth + 1)
                if read is not None:
                    attrs[field] = replace(read, deps=deps)
        return Value(HOST, why=why, ref=Inst(info, attrs, built_here=True), tags=frozenset({"handle"}))

    def _plain_fields(self, info: ClassInfo, depth: int) -> dict[str, tuple[int, frozenset[str]]]:
        """The fields of a record that are host values whoever holds it, each with its kinds and tags.

        Large configuration classes are read for every function that takes one: what is the same for all is kept.
        """
        project = self.project
        known = project.records.get(id(info.node))
        if known is None:
            outer = project.used, project.missed
            project.used, project.missed = set(), set()
            fields: dict[str, tuple[int, frozenset[str]]] = {}
            for item in info.node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    value = self.read(item.annotation, "", "", Why(info.module.path, item.lineno, ""), depth + 1)
                    if value is not None and not value.kinds & DEVICE and value.ref is None:
                        fields[item.target.id] = (value.kinds, value.tags)
            known = fields, frozenset(project.used), frozenset(project.missed)
            project.used, project.missed = outer
            if depth == 0:  # deeper down, nesting may have cut the reading short
                project.records[id(info.node)] = known
        project.used |= known[1]
        project.missed |= known[2]
        return known[0]


def is_record(info: ClassInfo) -> bool:
    """Whether a class is a dataclass, a named tuple or a typed dict: data, not a handle."""
    for decorator in info.node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if last_name(target) in ("dataclass", "define", "frozen", "attrs", "s", "dataclass_json"):
            return True
    return any(last_name(base) in ("NamedTuple", "TypedDict", "BaseModel", "Struct") for base in info.node.bases)


def is_enum(info: ClassInfo) -> bool:
    """Whether a class is an enumeration."""
    return any(last_name(base) in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") for base in info.node.bases)


def _piece(value: Value) -> Value:
    # An element of an annotated container is not the parameter itself.
    return replace(value, param=None)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
