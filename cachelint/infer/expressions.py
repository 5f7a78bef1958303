"""Expressions: the value of each form, and what a condition tells about names."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cachelint.index.walk import last_name, walk
from cachelint.infer.annotations import Reader
from cachelint.infer.names import suggests
from cachelint.infer.optable import operators
from cachelint.infer.symbols import DECISIVE, FAIR, HINT, STRONG, WEAK
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    EXPENSIVE,
    HIGH,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    NONE,
    NONE_VALUE,
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
    Test,
    Value,
    Why,
    const,
    external,
    join,
    replace,
)

if TYPE_CHECKING:
    from cachelint.infer.machine import Machine

_TORCH_DTYPES = frozenset(
    [
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "half",
        "float",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "long",
        "int",
        "short",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
        "strided",
        "sparse_coo",
        "contiguous_format",
        "preserve_format",
        "channels_last",
        "inf",
        "nan",
        "pi",
        "e",
        "newaxis",
    ]
)
_NUMBERS = (int, float, complex)
_COMMON = frozenset((int, bool, str))
_CONSTANTS: dict[tuple[type, object], Value] = {}
"""The values of literals seen before: most are the same few."""


class Expressions:
    """The expression half of the machine."""

    def eval(self: Machine, node: ast.expr) -> Value:  # type: ignore[misc]
        """The value of an expression."""
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            return HOST_VALUE
        value: Value = handler(self, node)
        return value

    def ev_name(self: Machine, node: ast.Name) -> Value:  # type: ignore[misc]
        name = node.id
        found = self.frame.env.get(name)  # what most names are
        return self.name(name, node) if found is None else found

    def ev_constant(self: Machine, node: ast.Constant) -> Value:  # type: ignore[misc]
        literal = node.value
        if literal is None:
            return NONE_VALUE
        key = (type(literal), literal)
        known = _CONSTANTS.get(key)
        if known is None:
            known = Value(HOST, ref=Const(literal))
            if type(literal) in _COMMON and len(_CONSTANTS) < 10_000:
                _CONSTANTS[key] = known
        return known

    def ev_joined(self: Machine, node: ast.JoinedStr) -> Value:  # type: ignore[misc]
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value)
        return HOST_VALUE

    def ev_tuple(self: Machine, node: ast.Tuple | ast.List | ast.Set) -> Value:  # type: ignore[misc]
        items: list[Value] = []
        rest: Value | None = None
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = self.eval(element.value)
                known = self.positions(inner, None)
                if known is not None and rest is None:
                    items.extend(known)
                else:
                    part = self.element_of(inner, element)
                    if part.kinds == NONE and isinstance(inner.ref, Seq) and inner.ref.element() is None:
                        continue  # empty
                    rest = part if rest is None else join(rest, part)
            elif rest is None:
                items.append(self.eval(element))
            else:
                rest = join(rest, self.eval(element))
        mutable = not isinstance(node, ast.Tuple)
        return Value(HOST, ref=Seq(items, rest, mutable=mutable))

    def ev_dict(self: Machine, node: ast.Dict) -> Value:  # type: ignore[misc]
        keys: dict[object, Value] = {}
        seq = Seq(None, None, keys, True)
        for key, value_node in zip(node.keys, node.values, strict=True):
            value = self.eval(value_node)
            if key is None:
                seq.put(self.element_of(value, value_node))
                continue
            literal = self.eval(key).const
            if isinstance(literal, (str, int)):
                keys[literal] = value
            else:
                seq.put(value)
        return Value(HOST, ref=seq)

    # -- operators ---------------------------------------------------------------------------------------------------

    def ev_binop(self: Machine, node: ast.BinOp) -> Value:  # type: ignore[misc]
        return self.binary(self.eval(node.left), self.eval(node.right), node.op, node)

    def binary(self: Machine, left: Value, right: Value, op: ast.operator, node: ast.AST) -> Value:  # type: ignore[misc]
        """An arithmetic operator."""
        if isinstance(op, ast.MatMult):
            for side in (left, right):
                self.note(side, DEVICE, STRONG, node, "an operand of @")
            return self.made(node, "a matrix product", (left, right), floor=5)
        if isinstance(left.ref, Seq) or isinstance(right.ref, Seq):
            return self.join_sequences(left, right, op)
        if (left.kinds | right.kinds) & (DEVICE | UNKNOWN):
            if isinstance(op, ast.Div) and "exp" in left.tags and "sum of exp" in right.tags:
                return self.made(node, "a softmax, written out", (left, right), floor=EXPENSIVE)
            if isinstance(op, ast.Mod) and isinstance(left.const, str):
                return HOST_VALUE
            return self.made(node, "elementwise arithmetic", (left, right), floor=CHEAP)
        a, b = left.const, right.const
        if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
            if isinstance(op, ast.Add):
                return const(a + b)
            return const(a - b) if isinstance(op, ast.Sub) else const(a * b)
        if not left.deps and not right.deps and left.why is None and right.why is None:
            return HOST_VALUE
        return Value(HOST, deps=left.deps | right.deps, why=left.why or right.why, sure=min(left.sure, right.sure))

    def join_sequences(self: Machine, left: Value, right: Value, op: ast.operator) -> Value:  # type: ignore[misc]
        """``[a] + [b]``, ``(None,) * 7``, ``"%s" % (x,)``."""
        a, b = left.ref, right.ref
        if isinstance(op, ast.Mod):
            return HOST_VALUE
        if isinstance(op, ast.Mult):
            seq, times = (a, right.const) if isinstance(a, Seq) else (b, left.const)
            assert isinstance(seq, Seq)
            if (
                isinstance(times, int)
                and seq.items is not None
                and seq.rest is None
                and 0 <= times * len(seq.items) <= 64
            ):
                return Value(HOST, ref=Seq(seq.items * times, mutable=seq.mutable))
            return Value(HOST, ref=Seq(None, seq.element(), mutable=seq.mutable))
        if isinstance(a, Seq) and isinstance(b, Seq) and a.items is not None and b.items is not None:
            if a.rest is None:
                return Value(HOST, ref=Seq([*a.items, *b.items], b.rest, mutable=a.mutable))
        parts = [
            self.element_of(side, ast.Pass()) if isinstance(side.ref, Seq) or side.kinds & UNKNOWN else side
            for side in (left, right)
        ]
        if (left.kinds | right.kinds) & DEVICE:
            return self.made(ast.Pass(), "arithmetic", (left, right), floor=CHEAP)
        return Value(HOST, ref=Seq(None, join(parts[0], parts[1]), mutable=True))

    def ev_unary(self: Machine, node: ast.UnaryOp) -> Value:  # type: ignore[misc]
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            self.truth(value, node)
            return HOST_VALUE
        literal = value.const
        if isinstance(node.op, ast.USub) and isinstance(literal, (int, float)):
            return const(-literal)
        if value.kinds & (DEVICE | UNKNOWN):
            return self.made(node, "elementwise arithmetic", (value,), floor=CHEAP)
        return replace(value, ref=None, param=None)

    def ev_boolop(self: Machine, node: ast.BoolOp) -> Value:  # type: ignore[misc]
        saved = dict(self.frame.env)
        result: Value | None = None
        last = len(node.values) - 1
        for number, part in enumerate(node.values):
            value = self.eval(part)
            if number < last:
                self.truth(value, part)
                self.narrow(part, isinstance(node.op, ast.And))
                if isinstance(node.op, ast.Or):
                    value = replace(value, kinds=value.kinds & ~NONE) if value.kinds & ~NONE else value
                elif value.kinds & DEVICE == 0 and value.kinds & UNKNOWN:
                    value = HOST_VALUE  # `flag and x`: what is falsy is a flag
                if value.kinds == NONE and isinstance(node.op, ast.Or):
                    continue
            result = value if result is None else join(result, value)
        self.frame.env = saved
        return HOST_VALUE if result is None else result

    def ev_compare(self: Machine, node: ast.Compare) -> Value:  # type: ignore[misc]
        left = self.eval(node.left)
        values = [left]
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node)
            values.append(right)
            self.compared(values[-2], right, op, node)
        if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return HOST_VALUE
        if any(value.kinds & DEVICE for value in values):
            return self.made(node, "a comparison", tuple(values), floor=CHEAP)
        if any(value.kinds & UNKNOWN for value in values):
            if any(isinstance(value.const, (str, bool)) for value in values):
                return HOST_VALUE
            return self.made(node, "a comparison", tuple(values), floor=CHEAP)
        return HOST_VALUE

    def compared(self: Machine, left: Value, right: Value, op: ast.cmpop, node: ast.AST) -> None:  # type: ignore[misc]
        """Evidence from a comparison."""
        for one, other in ((left, right), (right, left)):
            if one.param is None:
                continue
            literal = other.const
            if isinstance(literal, str):
                self.note(one, HOST, DECISIVE, node, f"compared with the string {literal!r}")
            elif isinstance(literal, bool) and isinstance(op, (ast.Is, ast.IsNot, ast.Eq)):
                self.note(one, HOST, FAIR, node, f"compared with {literal}")
            elif isinstance(op, (ast.In, ast.NotIn)) and one is left:
                self.note(one, HOST, FAIR, node, "tested for membership")
            elif isinstance(other.ref, (Cls, Ext)) and isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
                self.note(one, HOST, FAIR, node, "compared with a named constant")
            elif other.kinds == HOST and isinstance(op, (ast.Eq, ast.NotEq)):
                self.note(one, HOST, HINT, node, "compared with a host value")

    def ev_ifexp(self: Machine, node: ast.IfExp) -> Value:  # type: ignore[misc]
        truth = self.condition(node.test)
        if truth is True:
            return self.eval(node.body)
        if truth is False:
            return self.eval(node.orelse)
        saved, attrs = dict(self.frame.env), dict(self.log.attrs)
        self.narrow(node.test, True)
        path = self.path
        self.log.branches[id(node)] = node
        self.path = (*path, (id(node), "then"))
        yes = self.eval(node.body)
        self.frame.env, self.log.attrs = dict(saved), dict(attrs)
        self.narrow(node.test, False)
        self.path = (*path, (id(node), "else"))
        no = self.eval(node.orelse)
        self.path = path
        self.frame.env, self.log.attrs = saved, attrs
        return join(yes, no)

    def ev_walrus(self: Machine, node: ast.NamedExpr) -> Value:  # type: ignore[misc]
        value = self.eval(node.value)
        self.assign(node.target, value, node)
        return value

    def ev_lambda(self: Machine, node: ast.Lambda) -> Value:  # type: ignore[misc]
        from cachelint.infer.machine import Chain

        self.look_inside(node, [node.body, *defaults(node)])
        return Value(HOST, ref=Func(node, self.frame.module, self.frame.owner, Chain(self.frame)))

    def look_inside(self: Machine, node: ast.AST, body: Iterable[ast.AST]) -> None:  # type: ignore[misc]
        """Reads of the receiver and captured tensors inside a nested scope that may never be interpreted."""
        names = {name for name, value in self.frame.env.items() if isinstance(value.ref, Recv)}
        for statement in body:
            for item in walk(statement):
                if (
                    isinstance(item, ast.Attribute)
                    and isinstance(item.value, ast.Name)
                    and item.value.id in names
                    and isinstance(item.ctx, ast.Load)
                ):
                    self.attribute(self.frame.env[item.value.id], item.attr, item)
                elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
                    captured = self.frame.env.get(item.id)
                    if captured is not None and captured.kinds & (DEVICE | UNKNOWN):
                        self.captures.append((getattr(node, "name", "<lambda>"), item.id, captured))

    def ev_starred(self: Machine, node: ast.Starred) -> Value:  # type: ignore[misc]
        return self.element_of(self.eval(node.value), node)

    def ev_await(self: Machine, node: ast.Await) -> Value:  # type: ignore[misc]
        return self.eval(node.value)

    def ev_yield(self: Machine, node: ast.Yield | ast.YieldFrom) -> Value:  # type: ignore[misc]
        self.frame.generator = True
        if node.value is not None:
            value = self.eval(node.value)
            self.frame.yields.append(self.element_of(value, node) if isinstance(node, ast.YieldFrom) else value)
        return HOST_VALUE

    def ev_slice(self: Machine, node: ast.Slice) -> Value:  # type: ignore[misc]
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                value = self.eval(part)
                self.note(value, HOST, WEAK, node, "a slice bound")
        return HOST_VALUE

    def ev_comprehension(  # type: ignore[misc]
        self: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Value:
        saved = dict(self.frame.env)
        result = self.comprehend(node, 0)
        self.frame.env = saved
        return result

    def comprehend(  # type: ignore[misc]
        self: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, level: int
    ) -> Value:
        if level == len(node.generators):
            if isinstance(node, ast.DictComp):
                self.eval(node.key)
                each = self.eval(node.value)
                return Value(HOST, ref=Seq(None, each, {}, mutable=True, places=self.has_places(each)))
            return Value(HOST, ref=Seq([self.eval(node.elt)], mutable=True))
        part = node.generators[level]
        iterable = self.eval(part.iter)
        items = self.positions(iterable, None)
        single = len(node.generators) == 1 and not isinstance(node, ast.DictComp)
        if items is not None and single and not part.ifs and len(items) <= 16:
            made = []
            for item in items:
                self.assign(part.target, item, node)
                inner = self.comprehend(node, level + 1)
                made.extend(inner.ref.items or [] if isinstance(inner.ref, Seq) else [inner])
            return Value(HOST, ref=Seq(made, mutable=True))
        if items is not None and not items:
            return Value(HOST, ref=Seq([], mutable=True))
        self.assign(part.target, self.element_of(iterable, node), node)
        for test in part.ifs:
            self.condition(test)
            self.narrow(test, True)
        inner = self.comprehend(node, level + 1)
        element = inner.ref.element() if isinstance(inner.ref, Seq) else inner
        return Value(HOST, ref=Seq(None, element, mutable=True))

    # -- conditions ----------------------------------------------------------------------------------------------------

    def condition(self: Machine, test: ast.expr) -> bool | None:  # type: ignore[misc]
        """Evaluate a test: True or False where it is a literal outcome, else None."""
        value = self.eval(test)
        self.truth(value, test)
        if isinstance(test, ast.Constant):
            return bool(test.value)
        if isinstance(test, ast.Name) and isinstance(value.const, bool) and test.id == "TYPE_CHECKING":
            return value.const
        return self.known_truth(test)

    def known_truth(self: Machine, test: ast.expr) -> bool | None:  # type: ignore[misc]
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

    def truth(self: Machine, value: Value, node: ast.AST) -> None:  # type: ignore[misc]
        """Evidence from use as a condition."""
        if value.param is not None:
            self.note(value, HOST, WEAK, node, "used as a condition")

    def narrow(self: Machine, test: ast.expr, truth: bool) -> None:  # type: ignore[misc]
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

    def narrow_call(self: Machine, test: ast.Call, truth: bool) -> None:  # type: ignore[misc]
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

    def is_tensor_class(self: Machine, node: ast.expr) -> bool:  # type: ignore[misc]
        """Whether an expression names a class of the project that is a subclass of a tensor's."""
        ref = self.eval(node).ref
        bases = [base for owner in self.mro(ref.info) for base in owner.node.bases] if isinstance(ref, Cls) else []
        return any(last_name(base) in ("Tensor", "Parameter", "ndarray") for base in bases)

    def refine(self: Machine, target: ast.expr, mask: int) -> None:  # type: ignore[misc]
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

    def refine_type(self: Machine, target: ast.expr, side: int, truth: bool, node: ast.AST) -> None:  # type: ignore[misc]
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

    def peek(self: Machine, target: ast.expr) -> Value | None:  # type: ignore[misc]
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

    def rebind(self: Machine, target: ast.expr, value: Value) -> None:  # type: ignore[misc]
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

    def forget(self: Machine) -> None:  # type: ignore[misc]
        """Give up what tests told of the attributes of objects: code has run that may have set them."""
        if self.frame.told:
            self.frame.env = {name: value for name, value in self.frame.env.items() if "." not in name}

    def guard_fields(self: Machine, test: ast.expr) -> list[str]:  # type: ignore[misc]
        """Receiver fields that a test reads."""
        return [
            item.attr
            for item in walk(test)
            if isinstance(item, ast.Attribute)
            and isinstance(item.value, ast.Name)
            and (value := self.frame.env.get(item.value.id)) is not None
            and isinstance(value.ref, Recv)
        ]

    # -- attributes ----------------------------------------------------------------------------------------------------

    def ev_attribute(self: Machine, node: ast.Attribute) -> Value:  # type: ignore[misc]
        if self.frame.told and isinstance(node.value, ast.Name):
            known = self.frame.env.get(f"{node.value.id}.{node.attr}")
            if known is not None:
                return known
        return self.attribute(self.eval(node.value), node.attr, node)

    def attribute(self: Machine, base: Value, name: str, node: ast.AST) -> Value:  # type: ignore[misc]
        """``base.name``."""
        ref = base.ref
        if ref is not None:
            handler = _ATTRIBUTES.get(type(ref))
            if handler is not None:
                found: Value | None = handler(self, base, ref, name, node)
                if found is not None:
                    return found
        return self.plain_attribute(base, name, node)

    def at_recv(self: Machine, base: Value, ref: Recv, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        return self.receiver_attribute(base, name, node)

    def at_mod(self: Machine, base: Value, ref: Mod, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
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

    def at_ext(self: Machine, base: Value, ref: Ext, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        return external(f"{ref.dotted}.{name}", base.tags)

    def at_cls(self: Machine, base: Value, ref: Cls, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        stored = self.class_attrs.get((id(ref.info), name))
        if stored is not None:
            self.log.fetches.append(self.outside(f"{ref.info.name}.{name}", node))
            return stored
        return self.class_member(ref.info, name, None, node)

    def at_inst(self: Machine, base: Value, ref: Inst, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
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

    def fill_from_methods(self: Machine, ref: Inst, name: str, base: Value) -> None:  # type: ignore[misc]
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

    def at_seq(self: Machine, base: Value, ref: Seq, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        if name in operators().host_attrs and base.kinds & (DEVICE | UNKNOWN):
            return None
        return Value(HOST, ref=Attr(base, name))

    def at_func(self: Machine, base: Value, ref: Func | Bound | Partial, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        return Value(HOST, ref=Attr(base, name))

    def at_const(self: Machine, base: Value, ref: Const, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        return None if base.kinds & DEVICE else Value(HOST, ref=Attr(base, name))

    def plain_attribute(self: Machine, base: Value, name: str, node: ast.AST) -> Value:  # type: ignore[misc]
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

    def declared_attribute(self: Machine, base: Value, name: str, node: ast.AST) -> Value | None:  # type: ignore[misc]
        """What the body of a subclass of Tensor says about an attribute of its objects."""
        info = self.tensor_classes.get(base.param or "")
        for owner in self.mro(info) if info is not None else ():
            for member in owner.members.get(name, ()):
                if isinstance(member, ast.AnnAssign):
                    told = self.why(node, f"`{name}` of a {owner.name} is annotated {ast.unparse(member.annotation)}")
                    read = Reader(self.project, owner.module).read(member.annotation, name, f"a:{name}", told)
                    return None if read is None else replace(read, deps=base.deps, cost=PERSIST, param=None)
        return None

    def result_part(self: Machine, base: Value, position: int, node: ast.AST) -> Value:  # type: ignore[misc]
        """One of the results of an operator that returns several: each has its own storage."""
        roots = frozenset(f"{root}#{position}" for root in base.roots)
        return replace(base, roots=roots, param=None, ref=None, tags=base.tags - _MULTI)

    def handle_attribute(self: Machine, base: Value, name: str, node: ast.AST) -> Value:  # type: ignore[misc]
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

    def tensor_use(  # type: ignore[misc]
        self: Machine, base: Value, node: ast.AST, text: str, strength: int = STRONG
    ) -> None:
        """Something only a tensor or an array has is used."""
        if base.param is not None:
            symbol = self.symbols.get(base.param)
            if symbol is not None:
                symbol.tensor_use += 1
            self.note(base, DEVICE, strength, node, text)

    def ev_subscript(self: Machine, node: ast.Subscript) -> Value:  # type: ignore[misc]
        base = self.eval(node.value)
        key = self.eval(node.slice)
        return self.item(base, key, node)

    def item(self: Machine, base: Value, key: Value, node: ast.Subscript) -> Value:  # type: ignore[misc]
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

    def tensor_item(self: Machine, base: Value, key: Value, node: ast.Subscript) -> Value:  # type: ignore[misc]
        """Basic indexing makes a view, indexing with a tensor a copy."""
        if "multi" in base.tags and isinstance(key.const, int):
            return self.result_part(base, key.const, node)
        keys = key.ref.items or [] if isinstance(key.ref, Seq) else [key]
        if any(part.kinds & DEVICE for part in keys):
            return self.made(node, "a gather", (base, *keys), floor=CHEAP)
        return replace(base, param=None, ref=None, kinds=(base.kinds & ~NONE), why=self.why(node, "a view", base.why))

    def looks_like_tensor_index(self: Machine, key: ast.expr) -> bool:  # type: ignore[misc]
        """``x[:, 0]``, ``x[..., None]``: forms that lists don't take."""
        if isinstance(key, ast.Tuple):
            return any(isinstance(e, (ast.Slice, ast.Constant)) for e in key.elts) and len(key.elts) > 1
        return isinstance(key, ast.Constant) and (key.value is None or key.value is Ellipsis)

    def sequence_item(self: Machine, ref: Seq, key: Value, node: ast.Subscript) -> Value:  # type: ignore[misc]
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

    def sequence_slice(self: Machine, ref: Seq, key: ast.Slice) -> Value:  # type: ignore[misc]
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

    # -- derived values ------------------------------------------------------------------------------------------------

    def made(  # type: ignore[misc]
        self: Machine,
        node: ast.AST,
        what: str,
        args: tuple[Value, ...],
        floor: int,
        kinds: int | None = None,
        small: bool = False,
    ) -> Value:
        """A new value computed from ``args``: device if any of them is, at least as costly as any, own storage."""
        cost = floor
        deps: frozenset[str] = frozenset()
        seen = 0
        why: Why | None = None
        sure = HIGH
        tags: frozenset[str] = frozenset()
        always_small, small = small, False
        for arg in args:
            value = arg
            if isinstance(arg.ref, (Seq, Inst)):
                from cachelint.infer.values import carried

                value = carried(arg)
            deps = deps | value.deps if value.deps else deps
            part = value.kinds & (DEVICE | UNKNOWN)
            if part:
                small = "small" in value.tags and (small or not seen)
                seen |= part
                actual = self.true_cost(value)
                # What a parameter, a workspace or a constant holds is still at hand when backward runs.
                if actual > cost and actual != PERSIST and floor < EXPENSIVE:
                    cost, why = actual, value.why
                sure = min(sure, value.sure) if value.kinds & UNKNOWN else sure
                if "foreign-only" not in value.tags and value.tags & _TAINTS:
                    tags |= value.tags & _TAINTS
                if why is None:
                    why = value.why
        if kinds is None:
            # Device wins: an unknown operand beside a tensor still gives a tensor.
            kinds = DEVICE if seen & DEVICE else UNKNOWN if seen else HOST
        if kinds == HOST:
            return Value(HOST, deps=deps, why=why, sure=sure)
        if (always_small or small) and kinds & DEVICE and floor == CHEAP:
            tags |= _SMALL
        made = Value(
            kinds,
            cost,
            deps,
            self.fresh(),
            None,
            None,
            self.why(node, what, why),
            HIGH if kinds & DEVICE else sure,
            tags,
        )
        return self.allocated(made, what)

    def true_cost(self: Machine, value: Value) -> int:  # type: ignore[misc]
        """The cost of a value, with what its buffers were filled with."""
        cost = value.cost
        if self.heap:
            for root in value.roots:
                content = self.heap.get(root)
                if content is not None:
                    cost = max(CONST if cost == SAVED else cost, content.cost)
        if cost == SAVED:  # a buffer nobody filled
            return CONST
        return cost


_SMALL = frozenset(("small",))
# Attributes of tensors that configurations and graphs often have too.
_COMMON_ATTRS = frozenset(("dtype", "device", "layout"))
_RESULTS = {"values": 0, "indices": 1}
"""Names of the results of operators that return several, by position."""
_MULTI = frozenset(("multi",))
_SHAPE = frozenset(("shape",))
_ATTRIBUTE_TAGS = {"shape": _SHAPE, "dtype": frozenset(("dtype",))}
_TESTED = frozenset(("tested",))
_DATA = frozenset(("data",))
_FOREIGN = frozenset(("foreign",))
_TAINTS = frozenset(("child",))


def _asks_for_tensor(test: ast.Call) -> bool:
    """``torch.is_tensor(x)`` or ``isinstance(x, torch.Tensor)``."""
    name = last_name(test.func)
    return name == "is_tensor" or (name == "isinstance" and len(test.args) == 2 and last_name(test.args[1]) == "Tensor")


def _source(node: ast.expr) -> str:
    text = ast.unparse(node)
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


def defaults(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    """The default values of a function's parameters, which the scope around it evaluates."""
    return [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]


_EXPRESSIONS: dict[type, Any] = {
    ast.Call: lambda machine, node: machine.ev_call(node),
    ast.Name: Expressions.ev_name,
    ast.Constant: Expressions.ev_constant,
    ast.Attribute: Expressions.ev_attribute,
    ast.JoinedStr: Expressions.ev_joined,
    ast.Tuple: Expressions.ev_tuple,
    ast.List: Expressions.ev_tuple,
    ast.Set: Expressions.ev_tuple,
    ast.Dict: Expressions.ev_dict,
    ast.BinOp: Expressions.ev_binop,
    ast.UnaryOp: Expressions.ev_unary,
    ast.BoolOp: Expressions.ev_boolop,
    ast.Compare: Expressions.ev_compare,
    ast.IfExp: Expressions.ev_ifexp,
    ast.NamedExpr: Expressions.ev_walrus,
    ast.Lambda: Expressions.ev_lambda,
    ast.Starred: Expressions.ev_starred,
    ast.Await: Expressions.ev_await,
    ast.Yield: Expressions.ev_yield,
    ast.YieldFrom: Expressions.ev_yield,
    ast.Slice: Expressions.ev_slice,
    ast.ListComp: Expressions.ev_comprehension,
    ast.SetComp: Expressions.ev_comprehension,
    ast.GeneratorExp: Expressions.ev_comprehension,
    ast.DictComp: Expressions.ev_comprehension,
    ast.Subscript: Expressions.ev_subscript,
}
_ATTRIBUTES: dict[type, Any] = {
    Recv: Expressions.at_recv,
    Mod: Expressions.at_mod,
    Ext: Expressions.at_ext,
    Cls: Expressions.at_cls,
    Inst: Expressions.at_inst,
    Seq: Expressions.at_seq,
    Func: Expressions.at_func,
    Bound: Expressions.at_func,
    Partial: Expressions.at_func,
    Const: Expressions.at_const,
}
