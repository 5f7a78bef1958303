"""CL205: a caller leaves out the live inputs that a child's backward accepts, or hands it others than forward did."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import loaded, names, statements
from cachelint.collect.log import ChildCall
from cachelint.composite import Judged
from cachelint.index.module import FunctionNode
from cachelint.index.walk import last_name, parents, walk
from cachelint.model import FieldClass, Finding


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Calls ``child.backward(grad)`` where the child would take its inputs, and reads a field in their place; calls
    that give it an input of this layer where its forward got another value."""
    analysis = context.analysis
    unit = analysis.unit
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer"):
        return
    yield from _wrong_operands(context, rule)
    if not any(call.phase == "backward" and call.method == "backward" for call in analysis.log.child_calls):
        return
    seen: set[int] = set()
    for child in context.composites.children(analysis):
        judged = context.composites.judge(child)
        if judged is None or not judged.layer:
            continue
        for call in child.backward:
            if call.method != "backward" or id(call.node) in seen or call.file != unit.module.path:
                continue
            seen.add(id(call.node))
            missing = _left_out(call, judged)
            if missing:
                holder = f"`self.{child.attribute}`" if child.attribute else f"this {child.inst.info.name}"
                yield context.at(
                    rule,
                    call.node,
                    f"the backward of {holder} also takes {missing}; left out, it falls back on what the last forward kept. "
                    "Pass what its forward got",
                )


def _left_out(call: ChildCall, judged: Judged) -> str:
    """The live inputs that are not passed and whose place a field takes, or that backward can't do without."""
    if call.star or any("starred" in value.tags for value in call.values):
        return ""
    node = judged.unit.backward[0].node
    parameters = names(node)[2:]
    used = loaded(node)
    given = len(call.values) - 1
    fields = [f for f in judged.report.fields if f.read and f.cls is FieldClass.RECOMPUTE]
    if node.args.vararg is not None and not parameters:
        taken = names(judged.unit.forward[0].node)[1:] or judged.unit.forward[0].node.args.vararg
        falls_back = node.args.vararg.arg in used and bool(fields)
        return f"*{node.args.vararg.arg}" if given <= 0 and taken and falls_back else ""
    required = len(parameters) - len(node.args.defaults)
    missing = [
        name
        for position, name in enumerate(parameters)
        if position >= given and name not in call.keywords and (position < required or (name in used and fields))
    ]
    return ", ".join(f"`{name}`" for name in missing)


# -- another operand ---------------------------------------------------------------------------------------------------


def _wrong_operands(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """``self.child.backward(grad, x)`` with an input of this layer, where forward gave the child something made of it."""
    unit = context.analysis.unit
    if len(unit.forward) != 1 or len(unit.backward) != 1:
        return
    forward, backward = unit.forward[0], unit.backward[0]
    if forward.module is not unit.module or backward.module is not unit.module:
        return
    ahead, behind = _calls(forward.node, ("forward", "")), _calls(backward.node, ("backward",))
    live = _live(forward.node, backward.node)
    for name, there in behind.items():
        here = ahead.get(name, [])
        if len(here) != 1 or len(there) != 1 or not live:
            continue
        read = _read_inputs(name, context)
        for place, (given, wanted) in enumerate(zip(here[0].args, there[0].args[1:], strict=False)):
            if not isinstance(given, ast.Name) or not isinstance(wanted, ast.Name) or wanted.id not in live:
                continue
            line = _made_at(given, live[wanted.id], forward.node)
            if line and (read is None or place in read):
                what = f"`{given.id}`" if given.id != wanted.id else f"another `{given.id}`"
                yield context.at(
                    rule,
                    there[0],
                    f"the backward of `self.{name}` is handed `{wanted.id}`, an input of this layer, but its forward got "
                    f"{what}, bound on line {line}. Pass what its forward got",
                )
                break


def _calls(method: FunctionNode, ends: tuple[str, ...]) -> dict[str, list[ast.Call]]:
    """The plain calls of ``self.child.method(...)``, by child; an empty method is a call of the child itself. A call
    in a loop or a nested function counts twice."""
    receiver = names(method)[0] if names(method) else ""
    above = parents(method)
    found: dict[str, list[ast.Call]] = {}
    for node in walk(method):
        if not isinstance(node, ast.Call):
            continue
        for end in ends:
            holder = node.func if not end else node.func.value if last_name(node.func) == end else None  # type: ignore[attr-defined]
            if not isinstance(holder, ast.Attribute) or not isinstance(holder.value, ast.Name):
                continue
            if holder.value.id != receiver or (not end and holder.attr in ("forward", "backward")):
                continue
            plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
            once = plain and not _repeated(node, above)
            found.setdefault(holder.attr, []).extend([node] if once else [node, node])
    return found


def _repeated(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    while node in above:
        node = above[node]
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.Lambda, ast.ListComp, ast.GeneratorExp)):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in above:
            return True
    return False


def _live(forward: FunctionNode, backward: FunctionNode) -> dict[str, str]:
    """The parameters of backward that are forward's inputs as they came in, with forward's names for them."""
    theirs, own = names(forward)[1:], names(backward)[2:]
    bound = {n.id for n in walk(backward) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    found = {name: name for name in own if name in theirs}
    if not found and len(own) == len(theirs):
        found = dict(zip(own, theirs, strict=True))
    return {name: their for name, their in found.items() if name not in bound}


def _made_at(name: ast.Name, parameter: str, forward: FunctionNode) -> int:
    """The line that binds a name to something which surely is not the parameter: what a child returned, or arithmetic.
    0 where the name may still be the parameter, or something that can't be told from it."""
    line = 0
    surely = name.id != parameter and name.id not in names(forward)
    for statement in statements(forward.body):
        if (statement.lineno, statement.col_offset) >= (name.lineno, name.col_offset):
            continue
        for target in getattr(statement, "targets", None) or [getattr(statement, "target", None)]:
            if target is None or not any(isinstance(n, ast.Name) and n.id == name.id for n in walk(target)):
                continue
            if (
                not isinstance(statement, ast.Assign)
                or not isinstance(target, ast.Name)
                or not _is_made(statement.value)
            ):
                return 0
            surely |= statement in forward.body
            line = statement.lineno
    return line if surely else 0


def _is_made(value: ast.expr) -> bool:
    """Whether an expression makes a new value: ``self.child.forward(x)``, ``self.child(x)``, ``a + b``."""
    if isinstance(value, ast.BinOp):
        return not any(isinstance(part, ast.Constant) for part in (value.left, value.right))
    if not isinstance(value, ast.Call):
        return False
    holder = (
        value.func.value if last_name(value.func) == "forward" and isinstance(value.func, ast.Attribute) else value.func
    )
    return isinstance(holder, ast.Attribute) and isinstance(holder.value, ast.Name) and holder.value.id == "self"


def _read_inputs(name: str, context: TypeContext) -> set[int] | None:
    """The places of the live inputs whose content a child's backward reads, None where its class is not known."""
    for child in context.composites.children(context.analysis):
        if child.attribute != name:
            continue
        judged = context.composites.judge(child)
        if judged is None or not judged.unit.backward:
            return None
        node = judged.unit.backward[0].node
        above = parents(node)
        read = {
            n.id
            for n in walk(node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and last_name(above[n]) not in _LOOKS
        }
        if node.args.vararg is not None and node.args.vararg.arg in read:
            return None
        return {place for place, parameter in enumerate(names(node)[2:]) if parameter in read}
    return None


_LOOKS = frozenset(("shape", "dtype", "device", "ndim", "size", "dim", "numel", "new_zeros", "new_empty", "new_full"))
