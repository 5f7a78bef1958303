"""CL208: a value is registered with a layer's saver on a path that only evaluation takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cachelint.checks import Rule, TypeContext
from cachelint.checks.support import facts
from cachelint.collect.log import ReceiverLog, Save
from cachelint.index.module import FunctionNode
from cachelint.index.walk import code_of, last_name, walk
from cachelint.model import Finding

_EVALUATION = ("no_grad", "inference_mode")
_PREDICTION = ("predict", "infer", "inference", "evaluate", "generate", "forward_eval", "forward_inference")


def check(context: TypeContext, rule: Rule) -> Iterator[Finding]:
    """Registrations under ``if not self.training``, and in methods that are there for evaluation."""
    analysis = context.analysis
    unit, log = analysis.unit, analysis.log
    if unit.trainer or unit.dialect.name not in ("graph-node", "layer") or unit.info is None:
        return
    seen: set[int] = set()
    for save in log.saves:
        if save.phase == "forward" and save.file == unit.module.path and id(save.node) not in seen:
            if _evaluation_only(save, log) and not _released(save, log):
                seen.add(id(save.node))
                yield context.at(rule, save.node, _message("on a path that only evaluation takes"))
    if not log.saves:
        return
    known = {m.node.name for m in (*unit.forward, *unit.backward)} | {save.function for save in log.saves}
    for node in unit.info.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in known and _evaluates(node):
            for call in walk(node):
                if _is_save(call, unit.dialect.save):
                    yield context.at(rule, call, _message(f"in `{node.name}`, which runs no backward"))


def _evaluation_only(save: Save, log: ReceiverLog) -> bool:
    if ("self.training", False) in facts(save.path, log):
        return True
    inside = {branch for branch, _ in save.path}
    for (branch, arm), how in log.ended.items():
        node = log.branches.get(branch)
        # Behind `if self.training: … return`.
        if node is not None and branch not in inside and how == save.function and arm == "then":
            if code_of(node.test) == "self.training" and getattr(save.node, "lineno", 0) > node.lineno:
                return True
    return False


def _released(save: Save, log: ReceiverLog) -> bool:
    return any(name == "mark_step_boundary" for name, *_ in log.api_calls)


def _evaluates(node: FunctionNode) -> bool:
    names = {last_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
    if names.intersection(_EVALUATION):
        return not _calls(node, ("mark_step_boundary",))
    return node.name.lstrip("_").startswith(_PREDICTION) and not _calls(node, ("backward", "mark_step_boundary"))


def _calls(node: ast.AST, wanted: tuple[str, ...]) -> bool:
    return any(isinstance(item, ast.Call) and last_name(item.func) in wanted for item in walk(node))


def _is_save(node: ast.AST, names: tuple[str, ...]) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


def _message(where: str) -> str:
    return f"registered {where}: no backward comes to release it, so its memory stays pinned. Register in training only"
