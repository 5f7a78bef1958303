"""How the project calls a type: the arguments of ``F.apply(…)`` are evidence about forward's parameters."""

from __future__ import annotations

import ast
import contextlib
import re
from contextlib import suppress
from typing import Final

from cachelint.collect.types import Unit
from cachelint.index.chunks import Chunk
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo, class_info
from cachelint.index.project import Project
from cachelint.index.walk import children, last_name, walk
from cachelint.infer.core import Exhausted
from cachelint.infer.machine import Machine
from cachelint.infer.names import suggests
from cachelint.infer.symbols import DECISIVE, STRONG, WEAK, settle
from cachelint.infer.values import DEVICE, HIGH, HOST, LOW, NONE, OPAQUE, UNKNOWN, Inst, Seq, Value, Why, carried

MAX_FILES: Final = 6
MAX_SITES: Final = 8
DEPTH: Final = 4
STEPS: Final = 400
"""How far a caller's own helpers are followed: far enough for what makes an argument, not into what it builds."""
MORE_STEPS: Final = 2_000
"""The same, where an argument comes from a helper that was too long."""


def note_callers(unit: Unit, machine: Machine, project: Project) -> None:
    """Add what the callers pass to the symbols of forward's parameters."""
    assert unit.info is not None
    name = unit.info.name
    sites = 0
    files = project.apply_files(name)
    if unit.dialect.name == "torch-function":
        files = list(dict.fromkeys((*files, *project.apply_files(f"{name}()"))))
    # The type's own module first: its wrapper is the best witness. Tests speak last.
    files = sorted(files, key=lambda p: (p != unit.module.path, "test" in p.rpartition("/")[2], p))
    for path in files[:MAX_FILES]:
        module = project.module(path)
        if module is None or not _same(project, module, unit):
            continue
        for chunk in module.chunks:
            if sites >= MAX_SITES:
                return
            text = chunk.text.replace(" ", "")
            instances = unit.dialect.name == "torch-function" and f"{name}().apply" in text
            if not instances and f"{name}.apply" not in text:
                continue
            try:
                sites += _note_chunk(unit, machine, project, module, chunk)
            except SyntaxError:
                continue


def _same(project: Project, module: ModuleInfo, unit: Unit) -> bool:
    """Whether the name in ``module`` is our type and not a namesake."""
    assert unit.info is not None
    if module is unit.module:
        # Of several classes of one name at the top level, the last is the one that its callers see.
        same = [b for b in module.lookup(unit.info.name) if isinstance(b, ClassInfo)]
        return not same or unit.info.qualname != unit.info.name or not _one_after_another(same, unit.info)
    found = project.resolve(module, unit.info.name)
    return found is not None and (found.binding is unit.info or _is(found.binding, unit))


def _one_after_another(definitions: list[ClassInfo], own: ClassInfo) -> bool:
    """Whether a later definition replaces ours: both stand at the margin, not in the arms of a branch."""
    margin = [info for info in definitions if info.node.col_offset == 0]
    return own.node.col_offset == 0 and len(margin) > 1 and max(i.node.lineno for i in margin) > own.node.lineno


def _is(binding: object, unit: Unit) -> bool:
    node = getattr(binding, "node", None)
    return node is not None and unit.info is not None and node is unit.info.node


def _note_chunk(unit: Unit, machine: Machine, project: Project, module: ModuleInfo, chunk: Chunk) -> int:
    assert unit.info is not None
    name = unit.info.name
    count = 0
    for statement in module.statements(chunk):
        for function, owner, calls in _enclosing(statement, name, module):
            count += len(calls)
            if function is not None:
                _run(unit, machine, project, module, function, owner, calls)
        alias = _alias(statement, name)
        if alias:
            count += _note_alias(unit, machine, project, module, alias)
    return count


def _alias(statement: ast.stmt, name: str) -> str:
    """``f`` in ``f = F.apply`` or ``f = wrapper(F.apply)`` at module level."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return ""
    value = statement.value
    inner = value.args if isinstance(value, ast.Call) and len(value.args) == 1 else [value]
    return statement.targets[0].id if any(_is_apply(node, name) for node in inner) else ""


def _is_apply(node: ast.expr, name: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != "apply":
        return False
    base = node.value
    if isinstance(base, ast.Call) and not base.args:
        base = base.func  # `F().apply(…)`, as old code has it
    return isinstance(base, (ast.Name, ast.Attribute)) and last_name(base) == name


def _note_alias(unit: Unit, machine: Machine, project: Project, module: ModuleInfo, alias: str) -> int:
    """The calls of an alias: in its own module, and where it is imported."""
    binding = next(iter(module.lookup(alias)), None)
    count = files = 0
    for path in [module.path, *(p for p in project.mentioning(f"{alias}(".encode())[:12] if p != module.path)]:
        other = project.module(path)
        if other is None or files >= MAX_FILES or count >= MAX_SITES:
            break
        if other is not module:
            found = project.resolve(other, alias)
            if found is None or found.binding is not binding:
                continue
        files += 1
        for chunk in other.chunks:
            if alias not in chunk.text or (other is not module and f"{alias}(" not in chunk.text):
                continue
            with contextlib.suppress(SyntaxError):
                for statement in other.statements(chunk):
                    for function, owner, calls in _enclosing(statement, alias, other, bare=True):
                        count += len(calls)
                        if function is not None:
                            _run(unit, machine, project, other, function, owner, calls)
    return count


def _enclosing(
    statement: ast.stmt, name: str, module: ModuleInfo, bare: bool = False
) -> list[tuple[FunctionNode | None, object, list[ast.Call]]]:
    """The innermost function around each ``name.apply(…)`` call, with the class it is a method of.

    ``bare``: around each ``name(…)`` call, also under another name that the function gives it.
    """
    names = {name}
    found: dict[int, tuple[FunctionNode | None, object, list[ast.Call]]] = {}

    def walk(node: ast.AST, function: FunctionNode | None, owner: ast.ClassDef | None) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not node.decorator_list and not module.mentions(node, name):
                return
            function = node
            if bare:
                names.update(_other_names(node, name))
        elif isinstance(node, ast.ClassDef):
            owner, function = node, None
        elif isinstance(node, ast.Call) and (
            isinstance(node.func, ast.Name) and node.func.id in names if bare else _is_apply(node.func, name)
        ):
            entry = found.setdefault(id(function), (function, owner, []))
            entry[2].append(node)
        for child in children(node):
            walk(child, function, owner)

    walk(statement, None, None)
    return list(found.values())


def _other_names(function: FunctionNode, name: str) -> set[str]:
    """``f`` for each ``f = name`` in a function."""
    return {
        target.id
        for node in walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == name
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _run(
    unit: Unit,
    machine: Machine,
    project: Project,
    module: ModuleInfo,
    function: FunctionNode,
    owner: object,
    calls: list[ast.Call],
    steps: int = STEPS,
) -> None:
    runner = _interpreted(project, module, function, owner, calls, steps)
    given = [
        (call, name, value)
        for call in calls
        for args, kwargs in runner.call_hook[id(call)]
        for name, value in _paired(unit, machine, args, kwargs)
    ]
    if steps < MORE_STEPS and any("unfollowed" in value.tags for _, _, value in given):
        _run(unit, machine, project, module, function, owner, calls, MORE_STEPS)
        return
    open_: dict[str, list[str]] = {}
    for call, name, value in given:
        if not _note_argument(machine, runner, module, call, name, value) and _is_parameter(value, runner):
            open_.setdefault(value.param or "", []).append(name)
    if open_ and owner is None:
        _note_wrapper(machine, project, module, function, open_)


def _is_parameter(value: Value, runner: Machine) -> bool:
    symbol = runner.symbols.get(value.param or "")
    return symbol is not None and symbol.kind == "param" and value.ref is None


def _note_wrapper(
    machine: Machine,
    project: Project,
    module: ModuleInfo,
    function: FunctionNode,
    open_: dict[str, list[str]],
    further: int = 1,
) -> None:
    """What the callers of a wrapper pass for parameters that it hands on and does not use itself.

    ``open_`` names forward's parameters by the wrapper's; ``further`` wrappers around it may hand on, too.
    """
    name = function.name
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    sites = 0
    for path in [module.path, *(p for p in project.mentioning(f"{name}(".encode())[:12] if p != module.path)]:
        other = project.module(path)
        if other is None or sites >= MAX_SITES:
            return
        if other is not module:
            found = project.resolve(other, name)
            if found is None or found.binding is not function or len(other.lookup(name)) > 1:
                continue  # another function, or one of several that go by this name
        for chunk in other.chunks:
            if f"{name}(" not in chunk.text or sites >= MAX_SITES:
                continue
            with suppress(SyntaxError):
                for statement in other.statements(chunk):
                    for caller, owner, calls in _enclosing(statement, name, other, bare=True):
                        if caller is None or caller is function or _imports(caller, name):
                            continue
                        sites += len(calls)
                        runner = _interpreted(project, other, caller, owner, calls)
                        still: dict[str, list[str]] = {}
                        for call in calls:
                            for args, kwargs in runner.call_hook[id(call)]:
                                for own, value in [*zip(names, args, strict=False), *kwargs.items()]:
                                    if "starred" in value.tags:
                                        break
                                    for target in open_.get(own, ()):
                                        told = _note_argument(machine, runner, other, call, target, value)
                                        if not told and _is_parameter(value, runner):
                                            still.setdefault(value.param or "", []).append(target)
                        if still and owner is None and further:
                            _note_wrapper(machine, project, other, caller, still, further - 1)


def _imports(function: FunctionNode, name: str) -> bool:
    """Whether a function imports something of that name itself: a namesake of what the module knows."""
    return any(
        name in (alias.asname or alias.name for alias in node.names)
        for node in walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )


def _interpreted(
    project: Project,
    module: ModuleInfo,
    function: FunctionNode,
    owner: object,
    calls: list[ast.Call],
    steps: int = STEPS,
) -> Machine:
    """Run a function for the arguments of some calls in it."""
    from cachelint.collect.types import Method
    from cachelint.infer.analysis import _parameters

    runner = Machine(project)
    runner.depth_limit, runner.helper_steps = DEPTH, steps
    for call in calls:
        runner.call_hook[id(call)] = []
    info = class_info(owner, module, "") if isinstance(owner, ast.ClassDef) else None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    skip = 1 if info is not None and names and not static else 0
    env: dict[str, Value] = {}
    if skip:
        assert info is not None
        env[names[0]] = Value(HOST, ref=Inst(info, built_here=False), param=f"self of {info.name}")
    env.update(_parameters(Method(function, info, module), runner, skip))
    _docstring(function, runner)
    with suppress(Exhausted, RecursionError):
        runner.run(function, module, env, owner=info, self_name=names[0] if skip else "", entry=True)
    return runner


_TENSOR_WORDS: Final = ("tensor", "ndarray", "array")
_A_TENSOR: Final = re.compile(
    r"(?:(?:an?|the|input|output|optional) )*(?:(?:list|tuple|sequence) of )?(?:[\w.]+\.)?(?:\w*tensor|ndarray|array)s?\b"
)
"""How a sentence begins that says what a parameter is, and that it is a tensor."""

_HOST_WORDS: Final = ("int", "float", "bool", "str", "optional[int]", "optional[float]", "optional[bool]", "callable")


def _docstring(function: FunctionNode, runner: Machine) -> None:
    """``x (torch.Tensor): …`` in a docstring speaks for an unannotated parameter."""
    text = ast.get_docstring(function, clean=False)
    if not text:
        return
    for line in text.splitlines():
        head, colon, rest = line.strip().partition(":")
        if not colon or len(head) > 80:
            continue
        word, _, kind = head.partition("(")
        told = (kind or rest).strip(" )`").lower()
        symbol = runner.symbols.get(word.strip(" `*-"))
        if symbol is None or not told:
            continue
        why = Why(symbol.path, function.lineno, f"the docstring calls `{symbol.name}` {told[:40]}")
        first = told.split(",")[0].strip(" `)")
        # In parentheses stands the type; what follows a colon may be a sentence about tensors.
        if any(word in first.split("(")[0] for word in _TENSOR_WORDS) if kind else _A_TENSOR.match(first):
            symbol.note(DEVICE, STRONG, why)
        elif first in _HOST_WORDS:
            symbol.note(HOST, STRONG, why)


def _paired(unit: Unit, machine: Machine, args: list[Value], kwargs: dict[str, Value]) -> list[tuple[str, Value]]:
    """The arguments of one ``apply`` with forward's parameters."""
    method = unit.forward[0]
    names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
    has_receiver = not (unit.setup and names and names[0] not in ("ctx", "self", "context", "_ctx"))
    # A class method has its class in front of ctx.
    behind = 2 if has_receiver and names[1:2] == ["ctx"] else int(has_receiver)
    names = names[behind:]
    cut = any("starred" in value.tags for value in args)
    if cut:
        args = args[: next(i for i, value in enumerate(args) if "starred" in value.tags)]
    pairs = [*zip(names, args, strict=False), *kwargs.items()]
    vararg = method.node.args.vararg
    if vararg is not None:
        for number, value in enumerate(args[len(names) :]):
            numbers = (number,) if cut else (number, number - len(args) + len(names))
            told = [p for p in (f"*{vararg.arg}[{n}]" for n in numbers) if p in machine.symbols]
            pairs.extend((place, value) for place in told or [f"*{vararg.arg}"])
    return pairs


def _note_argument(
    machine: Machine, runner: Machine, module: ModuleInfo, call: ast.Call, name: str, value: Value
) -> bool:
    """Note what one argument shows about a parameter; False when it shows nothing."""
    symbol = machine.symbols.get(name)
    if symbol is None:
        return True
    kinds = _kinds(value, runner)
    if kinds & NONE:
        symbol.optional = True
    where = Why(module.path, call.lineno, f"a caller passes {_spoken(kinds)} for `{name}`")
    strength = WEAK if value.sure == LOW and not value.kinds & UNKNOWN else STRONG
    if kinds & DEVICE and _from_unseen_code(value) and suggests(name) == HOST:
        return False  # one of several things that came together: not all of them need be tensors
    if kinds == HOST and isinstance(value.ref, Inst) and not carried(value).kinds & (DEVICE | UNKNOWN):
        strength = DECISIVE  # an object of a class of the project, whatever attributes it shares with tensors
    if kinds & DEVICE:
        symbol.note(DEVICE, strength, where)
    elif kinds & HOST and not kinds & UNKNOWN:
        symbol.note(HOST, strength, where)
    return bool(kinds & DEVICE) or not kinds & UNKNOWN


def _from_unseen_code(value: Value) -> bool:
    return value.cost == OPAQUE and value.sure < HIGH and value.ref is None and any("#" in root for root in value.roots)


def _kinds(value: Value, runner: Machine) -> int:
    """The kinds of an argument, with what the wrapper's own code shows about its parameters."""
    if isinstance(value.ref, Seq):
        element = value.ref.element()
        return HOST if element is None else _kinds(element, runner) | (HOST if element.kinds == HOST else 0)
    if isinstance(value.ref, Inst) and value.ref.built_here:
        return value.kinds | carried(value).kinds & DEVICE
    if value.kinds & UNKNOWN and value.param is not None:
        symbol = runner.symbols.get(value.param)
        if symbol is not None:
            outcome = settle(symbol)
            if outcome.kinds and outcome.sure > 0:
                return outcome.kinds
        return value.kinds
    return value.kinds


def _spoken(kinds: int) -> str:
    return "a tensor" if kinds & DEVICE else "None" if kinds == NONE else "a host value"
