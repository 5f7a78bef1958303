"""Names: local, closed over, of a module, built in, or outside the project."""

from __future__ import annotations

import ast
import builtins
from typing import Final

from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo
from cachelint.index.walk import code_of
from cachelint.infer.core import Core, Frame
from cachelint.infer.optable import operators
from cachelint.infer.values import (
    DEVICE,
    HOST,
    LOW,
    NONE_VALUE,
    PERSIST,
    UNKNOWN,
    Cls,
    Const,
    Ext,
    Func,
    Mod,
    Seq,
    Value,
    Why,
    external,
    replace,
)

_BUILTINS: Final = frozenset((*dir(builtins), "__file__", "__name__", "__class__"))
_DEVICE_JIT: Final = frozenset(("triton", "tilelang", "gluon", "cute", "wp", "ct", "cuda", "helion", "T", "tl"))


class Scopes(Core):
    """What a bare name means."""

    def name(self, name: str, node: ast.AST) -> Value:
        """The value of a bare name: local, closed over, of the module, or a builtin."""
        frame = self.frame
        found = frame.env.get(name)
        if found is not None:
            return found
        if frame.closure is not None:
            found = frame.closure.find(name)
            if found is not None:
                return found
        found = self.global_name(frame.module, name)
        if found is not None:
            if "side-channel" in found.tags:
                self.log.fetches.append(self.outside(name, node))
            return found
        if name in _BUILTINS:
            return external(name)
        # A name of an enclosing function that is not interpreted, or of a module that is not here.
        value = self.symbol(
            f"free {name}", "free", f"the name `{name}`", frame.module, getattr(node, "lineno", 0), deps=frozenset()
        )
        return replace(value, ref=Ext(name))

    def global_name(self, module: ModuleInfo, name: str) -> Value | None:
        """The value of a module-level name, None when the module does not bind it."""
        key = (module.path, name)
        if key in self.module_values:
            return self.module_values[key]
        self.module_values[key] = Value(UNKNOWN, sure=LOW)  # a cycle of definitions ends here
        value = self._global(module, name)
        self.module_values[key] = value
        return value

    def _global(self, module: ModuleInfo, name: str) -> Value | None:
        found = self.project.resolve(module, name)
        if found is None:
            return None
        if isinstance(found.binding, ast.expr) and found.module is module:
            best = self._best_alternative(module, name)
            if best is not None:
                return best
        return self.from_resolved(found.binding, found.module, found.dotted, name)

    def _best_alternative(self, module: ModuleInfo, name: str) -> Value | None:
        """Of several module-level assignments (``if torch_has_it: f = torch.ops… else: f = _f``) the one with code."""
        bindings = module.lookup(name)
        if len(bindings) < 2:
            return None
        for binding in bindings:
            if isinstance(binding, (ast.Name, ast.Attribute)):
                value = self.module_expression(binding, module, name)
                if isinstance(value.ref, (Func, Cls)):
                    return value
        return None

    def from_resolved(self, binding: object, module: ModuleInfo | None, dotted: str, name: str) -> Value:
        """The value behind a resolved name."""
        if isinstance(binding, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert module is not None
            own = f"{module.name}.{binding.name}"
            if operators().names(own):
                return Value(HOST, ref=Ext(own))
            return Value(HOST, ref=Func(binding, module, kernel=is_kernel(binding)))
        if isinstance(binding, ClassInfo):
            return Value(HOST, ref=Cls(binding))
        if isinstance(binding, ast.expr) and module is not None:
            return self.module_expression(binding, module, name)
        if module is not None:
            return Value(HOST, ref=Mod(module))
        return external(dotted)

    def module_expression(self, node: ast.expr, module: ModuleInfo, name: str) -> Value:
        """What a module-level assignment binds. Containers and tensors there are shared between calls."""
        if isinstance(node, ast.Constant):
            return NONE_VALUE if node.value is None else Value(HOST, ref=Const(node.value))
        before = self.frame
        self.frame = Frame({}, module, "<module>")
        phase, self.log.phase = self.log.phase, "module"
        try:
            value = self.eval(node)
        finally:
            self.log.phase = phase
            self.frame = before
        if isinstance(value.ref, Seq):
            value.ref.shared = f"{module.name}.{name}"
        elif value.kinds & DEVICE:
            where = Why(module.path, node.lineno, f"`{name}` is a tensor of the module, shared by every call")
            return Value(
                value.kinds,
                PERSIST,
                roots=frozenset((f"g:{module.path}:{name}",)),
                why=where,
                tags=frozenset(("global",)),
            )
        elif value.param is not None:
            return replace(value, roots=frozenset((f"g:{module.path}:{name}",)))
        return value


def is_kernel(node: FunctionNode) -> bool:
    """Whether a function is device code (``@triton.jit`` and its like): launched, never interpreted."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        text = code_of(target)
        last = text.rpartition(".")[2]
        if last in ("autotune", "heuristics") or (
            last in ("jit", "kernel") and _DEVICE_JIT.intersection(text.split("."))
        ):
            return True
    return False
