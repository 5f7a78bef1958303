"""What a condition tells about names and attributes."""

from __future__ import annotations

import ast
from typing import Final

from cachelint.index.walk import last_name, walk
from cachelint.infer.classes import Classes
from cachelint.infer.symbols import WEAK
from cachelint.infer.values import (
    DEVICE,
    HIGH,
    HOST,
    LIVE,
    NONE,
    NONE_VALUE,
    UNKNOWN,
    Cls,
    Inst,
    Recv,
    Seq,
    Test,
    Value,
    replace,
)

_TESTED: Final = frozenset(("tested",))


class Conditions(Classes):
    """Tests, and what is known on either side of them."""

    def condition(self, test: ast.expr) -> bool | None:
        """Evaluate a test: True or False where it is a literal outcome, else None."""
        value = self.eval(test)
        self.truth(value, test)
        if isinstance(test, ast.Constant):
            return bool(test.value)
        if isinstance(test, ast.Name) and isinstance(value.const, bool) and test.id == "TYPE_CHECKING":
            return value.const
        return self.known_truth(test)

    def known_truth(self, test: ast.expr) -> bool | None:
        """A test that the arguments of this call decide: ``x is None`` when x is None or surely is not."""
        if self.frame.depth == 0:
            return None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.known_truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None and isinstance(test.left, ast.Name):
                value = self.frame.env.get(test.left.id)
                if value is not None and value.kinds == NONE:
                    return isinstance(test.ops[0], ast.Is)
                if value is not None and isinstance(value.ref, Seq) and not value.kinds & (NONE | UNKNOWN):
                    return isinstance(test.ops[0], ast.IsNot)
        if isinstance(test, ast.Call) and test.args and isinstance(test.args[0], ast.Name) and _asks_for_tensor(test):
            value = self.frame.env.get(test.args[0].id)
            if value is not None and value.kinds == DEVICE and value.sure == HIGH and value.ref is None:
                return True
        return None

    def truth(self, value: Value, node: ast.AST) -> None:
        """Evidence from use as a condition."""
        if value.param is not None:
            self.note(value, HOST, WEAK, node, "used as a condition")

    def narrow(self, test: ast.expr, truth: bool) -> None:
        """What the outcome of a test tells about names and receiver fields."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not truth)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is truth:
                for part in test.values:
                    self.narrow(part, truth)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None:
                op = test.ops[0]
                is_none = isinstance(op, (ast.Is, ast.Eq)) is truth
                if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
                    self.refine(test.left, NONE if is_none else ~NONE)
        elif isinstance(test, ast.Call):
            self.narrow_call(test, truth)
        elif isinstance(test, (ast.Name, ast.Attribute)):
            flag = self.peek(test)
            if flag is not None and isinstance(flag.ref, Test):
                if self.peek(flag.ref.call.args[0]) is flag.ref.subject:  # the name has not been bound anew since
                    self.narrow_call(flag.ref.call, truth)
            elif truth:
                self.refine(test, ~NONE)

    def narrow_call(self, test: ast.Call, truth: bool) -> None:
        """``isinstance(x, …)`` and ``torch.is_tensor(x)``."""
        name = last_name(test.func)
        if name in ("is_tensor", "is_array") and test.args:
            self.refine_type(test.args[0], DEVICE, truth, test)
        elif name == "isinstance" and len(test.args) == 2:
            kinds = test.args[1]
            names = [last_name(k) for k in kinds.elts] if isinstance(kinds, ast.Tuple) else [last_name(kinds)]
            tensors = [n for n in names if n.endswith("Tensor") or n in ("Parameter", "ndarray")]
            numbers = [n for n in names if n in ("int", "float", "bool", "str", "Number", "complex")]
            if tensors and len(tensors) == len(names):
                # What is no DTensor may still be a tensor.
                if truth or "Tensor" in tensors or "ndarray" in tensors:
                    self.refine_type(test.args[0], DEVICE, truth, test)
            elif numbers and len(numbers) == len(names):
                self.refine_type(test.args[0], HOST, truth, test)
            elif truth and names and all(n in ("tuple", "list") for n in names):
                value = self.eval(test.args[0])
                if value.kinds & UNKNOWN and value.ref is None:
                    self.rebind(test.args[0], Value(HOST, ref=Seq(None, self.element_of(value, test))))
            elif truth and names and all(self.is_tensor_class(k) for k in (getattr(kinds, "elts", None) or [kinds])):
                self.refine_type(test.args[0], DEVICE, truth, test)

    def is_tensor_class(self, node: ast.expr) -> bool:
        """Whether an expression names a class of the project that is a subclass of a tensor's."""
        ref = self.eval(node).ref
        bases = [base for owner in self.mro(ref.info) for base in owner.node.bases] if isinstance(ref, Cls) else []
        return any(last_name(base) in ("Tensor", "Parameter", "ndarray") for base in bases)

    def refine(self, target: ast.expr, mask: int) -> None:
        """Keep only some kinds of a name or a receiver field."""
        value = self.peek(target)
        if value is None:
            return
        kinds = value.kinds & mask
        if mask == NONE:
            if value.kinds & (UNKNOWN | NONE):
                self.rebind(target, NONE_VALUE)
        elif kinds and kinds != value.kinds:
            self.rebind(target, replace(value, kinds=kinds))

    def refine_type(self, target: ast.expr, side: int, truth: bool, node: ast.AST) -> None:
        """A type test on a name: inside the branch the value is on ``side``, or is not."""
        value = self.peek(target)
        if value is None:
            return
        if truth:
            if value.kinds & UNKNOWN:
                self.note(
                    value, side, WEAK, node, "its type is tested for a " + ("tensor" if side == DEVICE else "number")
                )
                self.rebind(target, replace(value, kinds=side, sure=HIGH, tags=value.tags | _TESTED))
            elif side == DEVICE and value.kinds & DEVICE:
                held = value.kinds & HOST and isinstance(value.ref, (Seq, Inst))  # by what it is where it is no tensor
                self.rebind(target, replace(value, kinds=side, ref=None if held else value.ref, sure=HIGH))
            elif value.kinds & side:
                self.rebind(target, replace(value, kinds=side))
            else:
                self.rebind(target, replace(value, kinds=side, ref=None))
        elif side == DEVICE:
            self.rebind(target, replace(value, kinds=(value.kinds & (HOST | NONE)) or HOST, cost=LIVE))
        elif value.kinds & ~HOST:
            self.rebind(target, replace(value, kinds=value.kinds & ~HOST))

    def peek(self, target: ast.expr) -> Value | None:
        """The present value of a name or a receiver field, without counting it as a read."""
        if isinstance(target, ast.Name):
            return self.frame.env.get(target.id)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            base = self.frame.env.get(target.value.id)
            if base is not None and isinstance(base.ref, Recv):
                return self.log.attrs.get(target.attr)
            if base is not None and isinstance(base.ref, Inst):
                known = self.frame.env.get(f"{target.value.id}.{target.attr}")
                return known or self.attribute(base, target.attr, target)
        return None

    def rebind(self, target: ast.expr, value: Value) -> None:
        """Put a narrowed value where :meth:`peek` found it."""
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = value
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            base = self.frame.env.get(target.value.id)
            if base is not None and isinstance(base.ref, Recv):
                self.log.attrs[target.attr] = value
            elif base is not None and isinstance(base.ref, Inst):
                self.frame.env[f"{target.value.id}.{target.attr}"] = value
                self.frame.told = True

    def forget(self) -> None:
        """Give up what tests told of the attributes of objects: code has run that may have set them."""
        if self.frame.told:
            self.frame.env = {name: value for name, value in self.frame.env.items() if "." not in name}

    def guard_fields(self, test: ast.expr) -> list[str]:
        """Receiver fields that a test reads."""
        return [
            item.attr
            for item in walk(test)
            if isinstance(item, ast.Attribute)
            and isinstance(item.value, ast.Name)
            and (value := self.frame.env.get(item.value.id)) is not None
            and isinstance(value.ref, Recv)
        ]


def _asks_for_tensor(test: ast.Call) -> bool:
    """``torch.is_tensor(x)`` or ``isinstance(x, torch.Tensor)``."""
    name = last_name(test.func)
    return name == "is_tensor" or (name == "isinstance" and len(test.args) == 2 and last_name(test.args[1]) == "Tensor")
