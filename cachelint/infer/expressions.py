"""Expressions: the value of each form."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

from cachelint.index.walk import walk
from cachelint.infer.attributes import Attributes
from cachelint.infer.symbols import DECISIVE, FAIR, HINT, STRONG, WEAK
from cachelint.infer.values import (
    CHEAP,
    DEVICE,
    EXPENSIVE,
    HOST,
    HOST_VALUE,
    NONE,
    NONE_VALUE,
    UNKNOWN,
    Cls,
    Const,
    Ext,
    Func,
    Recv,
    Seq,
    Value,
    const,
    join,
    replace,
)

_NUMBERS: Final = (int, float, complex)
_COMMON: Final = frozenset((int, bool, str))
_CONSTANTS: Final[dict[tuple[type, object], Value]] = {}
"""The values of literals seen before: most are the same few."""


class Expressions(Attributes):
    """One handler for each kind of node."""

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            return HOST_VALUE
        value: Value = handler(self, node)
        return value

    def ev_name(self, node: ast.Name) -> Value:
        name = node.id
        found = self.frame.env.get(name)  # what most names are
        return self.name(name, node) if found is None else found

    def ev_constant(self, node: ast.Constant) -> Value:
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

    def ev_joined(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value)
        return HOST_VALUE

    def ev_tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
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

    def ev_dict(self, node: ast.Dict) -> Value:
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

    def ev_binop(self, node: ast.BinOp) -> Value:
        return self.binary(self.eval(node.left), self.eval(node.right), node.op, node)

    def binary(self, left: Value, right: Value, op: ast.operator, node: ast.AST) -> Value:
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

    def join_sequences(self, left: Value, right: Value, op: ast.operator) -> Value:
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

    def ev_unary(self, node: ast.UnaryOp) -> Value:
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

    def ev_boolop(self, node: ast.BoolOp) -> Value:
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

    def ev_compare(self, node: ast.Compare) -> Value:
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

    def compared(self, left: Value, right: Value, op: ast.cmpop, node: ast.AST) -> None:
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

    def ev_ifexp(self, node: ast.IfExp) -> Value:
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

    def ev_walrus(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value, node)
        return value

    def ev_lambda(self, node: ast.Lambda) -> Value:
        self.look_inside(node, [node.body, *defaults(node)])
        return Value(HOST, ref=Func(node, self.frame.module, self.frame.owner, self.frame))

    def look_inside(self, node: ast.AST, body: Iterable[ast.AST]) -> None:
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

    def literal_names(self, node: ast.expr) -> list[str]:
        """The strings that a name expression may be, where they can be listed: f-strings and loops give none."""
        value = self.eval(node)
        return [value.const] if isinstance(value.const, str) else []

    def ev_starred(self, node: ast.Starred) -> Value:
        return self.element_of(self.eval(node.value), node)

    def ev_await(self, node: ast.Await) -> Value:
        return self.eval(node.value)

    def ev_yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        self.frame.generator = True
        if node.value is not None:
            value = self.eval(node.value)
            self.frame.yields.append(self.element_of(value, node) if isinstance(node, ast.YieldFrom) else value)
        return HOST_VALUE

    def ev_slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                value = self.eval(part)
                self.note(value, HOST, WEAK, node, "a slice bound")
        return HOST_VALUE

    def ev_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        saved = dict(self.frame.env)
        result = self.comprehend(node, 0)
        self.frame.env = saved
        return result

    def comprehend(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, level: int) -> Value:
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


def defaults(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    """The default values of a function's parameters, which the scope around it evaluates."""
    return [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]


EXPRESSIONS: Final[dict[type, Any]] = {
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
"""The handlers by the type of the node. That of calls is added where it is written."""
