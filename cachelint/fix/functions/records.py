"""Dataclasses that carry tensors: the tensors are saved one by one, a copy without them stays on ctx, and backward puts
them back into another copy."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cachelint.classify import relative
from cachelint.fix.edits import WIDTH
from cachelint.fix.functions.fields import CannotPlan, Field, tensor_only
from cachelint.fix.functions.forward import Placement, Site, Slot
from cachelint.index.module import ClassInfo
from cachelint.index.project import Project
from cachelint.index.walk import last_name, walk
from cachelint.infer.values import DEVICE, NONE, UNKNOWN, Inst, carried

_SPECIAL = frozenset(
    "__post_init__ __new__ __setattr__ __getattribute__ __getattr__ __delattr__ __copy__ __replace__ __init_subclass__".split()
)


@dataclass
class Record:
    """How an object is taken apart: the fields of its class that are tensors or None."""

    item: Field
    tensors: list[str]
    optional: bool
    replace: str = ""
    slots: list[Slot] = field(default_factory=list)


def record_of(item: Field, project: Project) -> Record:
    """The tensors of an object. Raises CannotPlan where a copy might not be what the object is."""
    ref = item.value.ref
    assert isinstance(ref, Inst)
    info = ref.info

    def no(why: str) -> CannotPlan:
        return CannotPlan(f"it is an object of class {info.name} that owns tensors, and {why}", "object", item.name)

    _check_class(info, project, no)
    tensors = [name for name, value in ref.attrs.items() if tensor_only(value)]
    for name, value in ref.attrs.items():
        if name not in tensors and carried(value).kinds & (DEVICE | UNKNOWN):
            raise no(f"`{name}` may hold tensors inside another object")
    fields = _fields(info)
    if not tensors or not set(tensors) <= set(fields):
        raise no("none of its own fields is known to be a tensor")
    writer = _written(fields, project)
    if writer:
        raise no(f"{writer} sets a field of such an object, which a copy would not see")
    return Record(item, tensors, bool(item.value.kinds & NONE))


def _check_class(info: ClassInfo, project: Project, no: Callable[[str], CannotPlan]) -> None:
    """Raise CannotPlan unless ``dataclasses.replace`` gives an object that only differs where it is told to."""
    node = info.node
    if len(node.decorator_list) != 1 or not _is_dataclass(node.decorator_list[0], info, project):
        raise no("only lists, tuples, dicts and dataclasses are taken apart")
    if any(last_name(base) != "object" for base in node.bases) or node.keywords:
        raise no("it inherits from another class")
    if any(info.name in bases for places in project.headers.values() for _, bases in places):
        raise no("another class derives from it")
    methods = {m.name: m for m in node.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))}
    odd = _SPECIAL & methods.keys()
    if odd:
        raise no(f"its `{min(odd)}` may do more than copy")
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            keywords = statement.value.keywords if isinstance(statement.value, ast.Call) else []
            if any(k.arg == "init" for k in keywords) or "InitVar" in ast.dump(statement.annotation):
                raise no("the arguments of its constructor are not its fields")
    changing = next((m.name for m in methods.values() if m.name != "__init__" and _sets_itself(m)), "")
    if changing:
        raise no(f"its `{changing}` changes it")
    made = methods.get("__init__")
    if made is None and _own_init(node.decorator_list[0]):
        raise no("it has no constructor for its fields")
    if made is not None and not _only_assigns(made, _fields(info)):
        raise no("its constructor does more than keep its arguments")


def _sets_itself(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method sets attributes of its object."""
    receiver = method.args.args[0].arg if method.args.args else ""
    for node in walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver:
            if not isinstance(node.ctx, ast.Load):
                return True
        if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "__setattr__", "vars"):
            return True
    return False


def _is_dataclass(node: ast.expr, info: ClassInfo, project: Project) -> bool:
    """Whether a decorator is that of the standard library."""
    target = node.func if isinstance(node, ast.Call) else node
    root = target.value if isinstance(target, ast.Attribute) else target
    if not isinstance(root, ast.Name):
        return False
    found = project.resolve(info.module, root.id)
    dotted = found.dotted if found is not None and found.binding is None and found.module is None else ""
    return dotted == ("dataclasses" if isinstance(target, ast.Attribute) else "dataclasses.dataclass") and (
        last_name(target) == "dataclass" or not isinstance(target, ast.Attribute)
    )


def _own_init(node: ast.expr) -> bool:
    """Whether ``dataclass`` is told to make no constructor."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return any(k.arg == "init" and not (isinstance(k.value, ast.Constant) and k.value.value) for k in keywords)


def _fields(info: ClassInfo) -> list[str]:
    """The names of the fields, in order."""
    found = [s for s in info.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    return [s.target.id for s in found if "ClassVar" not in ast.dump(s.annotation)]  # type: ignore[union-attr]


def _only_assigns(node: ast.FunctionDef | ast.AsyncFunctionDef, fields: list[str]) -> bool:
    """Whether a constructor keeps an argument of the same name for each field, and else looks at other arguments only."""
    arguments = node.args
    receiver = arguments.args[0].arg if arguments.args else ""
    names = {a.arg for a in (*arguments.args[1:], *arguments.kwonlyargs)}
    kept: set[str] = set()
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            own = (
                isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == receiver
            )
            if not own or not isinstance(value, ast.Name) or value.id != target.attr:  # type: ignore[attr-defined]
                return False
            kept.add(value.id)
        elif isinstance(statement, ast.Expr):
            used = {n.id for n in walk(statement.value) if isinstance(n, ast.Name)}
            if receiver in used or used & set(fields):
                return False
        else:
            return False
    return kept == set(fields) and set(fields) <= names


def _written(fields: list[str], project: Project) -> str:
    """Where code outside the class sets a field of some object that may be one of these; empty if nowhere."""
    question = f"written: {' '.join(fields)}"
    path, line = project.once(question, lambda: _writing(fields, project))
    if path:
        project.used.add(path)
    return f"{relative(path)}:{line}" if path else ""


def _writing(fields: list[str], project: Project) -> tuple[str, int]:
    """The first place where code sets an attribute of one of these names, of anything but its own receiver."""
    words = "|".join(map(re.escape, fields)).encode()
    # The pattern begins with a literal, which the search jumps to; whose attribute it is is looked at after.
    pattern = re.compile(rb"\.(?:" + words + rb")\s*[-+*/|&@]?=(?!=)")
    for path in project.files:
        data = project.raw(path)
        for match in pattern.finditer(data):
            owner = _OWNER.search(data, max(0, match.start() - 200), match.start())
            if owner and owner[0] not in (b"self", b"ctx", b"cls"):
                return path, data.count(b"\n", 0, match.start()) + 1
    return "", 0


_OWNER = re.compile(rb"(?:\w+(?:\.\w+)*|[\])])\Z")


def take_out(record: Record, site: Site, place: Placement) -> None:
    """Write the forward side."""
    name = record.item.name

    def stays(local: str) -> str:
        return _copied(record, local, dict.fromkeys(record.tensors, "None"))

    local = site.local(name, place, stays=stays)
    record.optional |= f"{local} = None" in site.inits
    head = f"None if {local} is None else " if record.optional else ""
    record.slots = [Slot(f"{head}{local}.{tensor}", f"{name}_{tensor}") for tensor in record.tensors]


def put_back(record: Record, receiver: str, names: list[str], local: str) -> str:
    """The statement by which backward has the object again."""
    items = dict(zip(record.tensors, names, strict=True))
    return f"{local} = {_copied(record, f'{receiver}.{record.item.name}', items)}"


def _copied(record: Record, source: str, items: Mapping[str, str]) -> str:
    """A copy of the object with some fields changed, in several lines where it would be long; None stays None."""
    changes = [f"{name}={code}" for name, code in items.items()]
    head = f"None if {source} is None else {record.replace}(" if record.optional else f"{record.replace}("
    line = f"{head}{source}, {', '.join(changes)})"
    if len(line) <= WIDTH - 30:
        return line
    rows = "".join(f"    {row},\n" for row in (source, *changes))
    return f"{head}\n{rows})"
