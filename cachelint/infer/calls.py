"""Calls: the project's functions and classes are interpreted, everything else goes to the operator table."""

from __future__ import annotations

import ast
from typing import Final

from cachelint.index.module import FunctionNode, ModuleInfo
from cachelint.index.walk import code_of, last_name, walk
from cachelint.infer.annotations import Reader
from cachelint.infer.core import _text
from cachelint.infer.expressions import EXPRESSIONS
from cachelint.infer.library import ARRAY_MODULE_GETTERS, emptied
from cachelint.infer.objects import Objects
from cachelint.infer.places import star_of
from cachelint.infer.symbols import DECISIVE, STRONG
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    HIGH,
    HOST,
    HOST_VALUE,
    LOW,
    MEDIUM,
    NONE,
    NONE_VALUE,
    OPAQUE,
    UNKNOWN,
    UNKNOWN_VALUE,
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
    Value,
    Why,
    carried,
    join_all,
    replace,
)

_SMALL: Final = 48
"""Lines of a helper that is followed for what it does to a gradient."""

_UNFOLLOWED: Final = frozenset(("unfollowed",))


class Calls(Objects):
    """Calls of functions."""

    def ev_call(self, node: ast.Call) -> Value:
        func = self.callee(node.func)
        args: list[Value] = []
        star = False
        by_position: Seq | None = None
        by_name: Seq | None = None
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                inner = self.eval(arg.value)
                known = self.positions(inner, None)
                if known is not None:
                    args.extend(known)
                else:
                    by_position = star_of(inner) if not star and arg is node.args[-1] else None
                    star = True
                    args.append(self.element_of(inner, arg).tagged("starred"))
            else:
                args.append(self.eval(arg))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value.ref, Seq) and value.ref.keys is not None:
                by_name = star_of(value)
                kwargs.update({str(k): v for k, v in value.ref.keys.items()})
            else:
                star = True
        self.forget()
        if id(node) in self.call_hook:
            self.call_hook[id(node)].append((list(args), dict(kwargs)))
            if not self.frame.loops and all(self.call_hook.values()):
                self.helper_steps = 0  # all that was asked for is known: what follows only says what the parameters are
        if by_position is not None or by_name is not None:
            args, kwargs = self.spread(func, args, kwargs, (by_position, by_name), node)
        return self.call(func, args, kwargs, node, star)

    def callee(self, node: ast.expr) -> Value:
        """The function expression; ``kernel[grid]`` keeps its kernel in sight."""
        if isinstance(node, ast.Subscript):
            base = self.eval(node.value)
            if isinstance(base.ref, (Func, Ext, Attr)) or base.kinds & UNKNOWN:
                self.eval(node.slice)
                return Value(HOST, ref=Attr(base, "[]"))
            key = self.eval(node.slice)
            return self.item(base, key, node)
        return self.eval(node)

    def call(
        self, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool = False
    ) -> Value:
        """What a call returns."""
        ref = func.ref
        if isinstance(ref, Ext):
            return self.call_external(ref.dotted, args, kwargs, node)
        if isinstance(ref, Attr):
            return self.call_attr(func, ref, args, kwargs, node, star)
        if isinstance(ref, Func):
            if ref.kernel:
                return self.launch(func, args, kwargs, node)
            return self.call_function(ref, args, kwargs, node, star)
        if isinstance(ref, Bound):
            if self.receiver_is_self and isinstance(ref.receiver.ref, Inst):
                name = getattr(ref.func.node, "name", "")
                self.child_call(ref.receiver.ref, name, args, kwargs, node, star)
                if name == "forward" and self.find_method(ref.receiver.ref.info, "backward") is not None:
                    return self.child_result(ref.receiver.ref.info.name, args, kwargs, node)
            return self.call_function(ref.func, [ref.receiver, *args], kwargs, node, star)
        if isinstance(ref, Cls):
            return self.construct(ref.info, args, kwargs, node, star)
        if isinstance(ref, Inst):
            return self.call_instance(func, ref, args, kwargs, node, star)
        if isinstance(ref, Partial):
            return self.call(ref.func, [*ref.args, *args], {**ref.kwargs, **kwargs}, node, star)
        if func.param is not None:
            self.note(func, HOST, DECISIVE, node, "called like a function")
            symbol = self.symbols.get(func.param)
            if symbol is not None:
                symbol.called = True
        return self.opaque_call(func, args, kwargs, node, _text(node.func))

    def call_function(
        self, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST, star: bool = False
    ) -> Value:
        """Interpret a function of the project with these arguments."""
        if func.kernel:
            return self.launch(Value(HOST, ref=func), args, kwargs, node)
        target = func.node
        if id(target) in self.answers:
            for value in args:
                self.note(value, DEVICE, STRONG, node, "handed to forward")
            return self.answers[id(target)]
        if getattr(target, "name", "") in ARRAY_MODULE_GETTERS:
            return Value(HOST, ref=Ext("numpy"))
        late = self.steps > self.helper_steps and not any(isinstance(value.ref, Recv) for value in args)
        if late or id(target) in self.stack or len(self.stack) >= self.depth_limit:
            # Late in a long forward only what touches the receiver is worth the time.
            if getattr(target, "name", "") == "prepare_for_saving" and args:
                return emptied(join_all([carried(value) for value in args]) or args[0])
            return self.unfollowed(args, kwargs, node, recursive=id(target) in self.stack and not late)
        if self.log.phase == "backward" and func.env is None and not self.worth_following(args, kwargs, target):
            return self.made(node, "the result of a helper", (*args, *kwargs.values()), floor=CONST)
        env = self.bind(func, args, kwargs, star)
        names = [a.arg for a in (*target.args.posonlyargs, *target.args.args)]
        is_method = func.owner is not None and names and isinstance(env[names[0]].ref, (Recv, Inst, Cls))
        key = None
        closed = func.env is None
        if closed and all(_plain(value) for value in env.values()):
            key = (id(target), tuple((k, v.kinds, v.cost, v.deps, v.roots, v.param, _const(v)) for k, v in env.items()))
            hit = self.memo.get(key)
            if hit is not None:
                return hit
        result = self.run(
            target,
            func.module,
            env,
            owner=func.owner,
            closure=func.env,
            self_name=names[0] if is_method else "",
        )
        result = self.wrapped(target, result)
        if isinstance(target, (ast.FunctionDef, ast.AsyncFunctionDef)) and target.returns is not None:
            result = self.promised(target, target.returns, func, result, env)
        if key is not None:
            self.memo[key] = result
        return result

    def promised(
        self, target: FunctionNode, annotation: ast.expr, func: Func, result: Value, env: dict[str, Value]
    ) -> Value:
        """What the return annotation says where the body leaves it open (a stub, code outside the project)."""
        parts = result.ref.items if isinstance(result.ref, Seq) and result.ref.rest is None else None
        stub = result.kinds == NONE and not any(isinstance(s, ast.Return) for s in target.body)
        guess = result.kinds == HOST and result.sure < HIGH and result.ref is None
        if not (stub or guess or result.kinds & UNKNOWN or (parts and any(part.kinds & UNKNOWN for part in parts))):
            return result
        why = Why(func.module.path, target.lineno, f"{target.name} is annotated to return {code_of(annotation)}")
        read = Reader(self.project, func.module).read(annotation, "", "n0", why)
        if read is None:
            return result
        deps = frozenset().union(*(value.deps for value in env.values())) if env else frozenset()
        if guess and not read.kinds & DEVICE:
            return result
        if parts is None:
            return self.as_promised(UNKNOWN_VALUE if guess else result, read, deps)
        if isinstance(read.ref, Seq) and read.ref.items is not None and len(read.ref.items) == len(parts):
            pairs = zip(parts, read.ref.items, strict=True)
            return replace(result, ref=Seq([self.as_promised(a, b, deps) for a, b in pairs]))
        return result

    def as_promised(self, value: Value, read: Value, deps: frozenset[str]) -> Value:
        """``read``, made by code that we can't see; a value that is known stays as it is."""
        if not value.kinds & UNKNOWN and value.kinds != NONE:
            return value
        if value.param is not None and not isinstance(read.ref, (Seq, Inst)):
            symbol = self.symbols.get(value.param)
            if symbol is not None and read.why is not None:
                symbol.note(DEVICE if read.kinds & DEVICE else HOST, STRONG, read.why)
        cost = max(value.cost, OPAQUE)
        ref = read.ref
        if isinstance(ref, Seq):
            items = None if ref.items is None else [self.as_promised(UNKNOWN_VALUE, i, deps) for i in ref.items]
            rest = None if ref.rest is None else self.as_promised(UNKNOWN_VALUE, ref.rest, deps)
            ref = Seq(items, rest)
        elif isinstance(ref, Inst) and ref.built_here:
            ref = Inst(ref.info, {k: self.as_promised(UNKNOWN_VALUE, v, deps) for k, v in ref.attrs.items()})
        roots = value.roots or (self.fresh() if read.kinds & DEVICE else value.roots)
        return Value(read.kinds, cost, deps | value.deps, roots, value.param, ref, read.why, MEDIUM, read.tags)

    def worth_following(self, args: list[Value], kwargs: dict[str, Value], target: FunctionNode | ast.Lambda) -> bool:
        """In backward only the receiver's reads, evidence about symbols, and what small helpers do to gradients matter."""
        small = (target.end_lineno or 0) - target.lineno <= _SMALL
        for value in (*args, *kwargs.values()):
            ref = value.ref
            if small and "grad" in value.roots:
                return True
            if value.kinds & UNKNOWN or isinstance(ref, (Recv, Func, Bound, Partial)):
                return True
            if isinstance(ref, Inst) and ref.built_here:
                return True
            if isinstance(ref, Seq) and any(v.kinds & UNKNOWN or isinstance(v.ref, Recv) for v in ref.each()):
                return True
        return False

    def wrapped(self, target: FunctionNode | ast.Lambda, result: Value) -> Value:
        """What the decorators of a function make of its result."""
        for decorator in getattr(target, "decorator_list", ()):
            name = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name == "contextmanager" and isinstance(result.ref, Seq):
                return result.ref.element() or HOST_VALUE
        return result

    def unfollowed(self, args: list[Value], kwargs: dict[str, Value], node: ast.AST, recursive: bool = False) -> Value:
        """A recursive or too deep call: device if anything given is."""
        everything = [carried(value) for value in (*args, *kwargs.values())]
        for value in everything:
            if isinstance(value.ref, Recv):
                self.log.escapes.append(self.event("*", node, sure=False))
        # What a recursive call gives was computed as the other ways out of the function compute it.
        floor = CHEAP if recursive else OPAQUE
        made = self.made(node, "a recursive call", tuple(everything), floor=floor)
        return replace(made, sure=LOW, tags=made.tags if recursive else made.tags | _UNFOLLOWED)

    def bind(self, func: Func, args: list[Value], kwargs: dict[str, Value], star: bool = False) -> dict[str, Value]:
        """Bind arguments to parameters; annotations and defaults speak for those that are unknown or not given."""
        spec = func.node.args
        env: dict[str, Value] = {}
        positional = [*spec.posonlyargs, *spec.args]
        defaults = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        given = list(args)
        for number, parameter in enumerate(positional):
            if number < len(given) and "starred" not in given[number].tags:
                value = given[number]
            elif parameter.arg in kwargs:
                value = kwargs[parameter.arg]
            elif star and any("starred" in v.tags for v in given):
                value = next(v for v in given if "starred" in v.tags)
            elif defaults[number] is not None:
                value = self.default_value(defaults[number], func)
            else:
                value = Value(UNKNOWN, sure=LOW)
            env[parameter.arg] = self.annotated(value, parameter, func)
        tested = (
            self.type_tests(func.node, func.module) if any(value.param is not None for value in env.values()) else ()
        )
        for name in tested:
            if name in env and env[name].param is not None:
                env[name] = env[name].tagged("tested")
        for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if parameter.arg in kwargs:
                value = kwargs[parameter.arg]
            elif default is not None:
                value = self.default_value(default, func)
            else:
                value = Value(UNKNOWN, sure=LOW)
            env[parameter.arg] = self.annotated(value, parameter, func)
        if spec.vararg is not None:
            rest = given[len(positional) :]
            if any("starred" in value.tags for value in rest):
                env[spec.vararg.arg] = Value(HOST, ref=Seq(None, join_all(rest)))
            else:
                env[spec.vararg.arg] = Value(HOST, ref=Seq(rest))
        if spec.kwarg is not None:
            known = {a.arg for a in (*positional, *spec.kwonlyargs)}
            keys: dict[object, Value] = {k: v for k, v in kwargs.items() if k not in known}
            env[spec.kwarg.arg] = Value(HOST, ref=Seq(None, None, keys, True))
        return env

    def type_tests(self, node: FunctionNode | ast.Lambda, module: ModuleInfo | None = None) -> frozenset[str]:
        """Names whose type a function tests itself: how it goes on to use them says nothing about a caller's value."""
        known = self.project.type_tests.get(id(node))
        if known is None:
            names = set()
            home = self.frame.module if module is None else module
            if not isinstance(node, ast.Lambda) and home.mentions(node, "is_tensor", "isinstance"):
                asserted = {id(c) for s in walk(node) if isinstance(s, ast.Assert) for c in walk(s)}
                for item in walk(node):
                    if isinstance(item, ast.Call) and item.args and isinstance(item.args[0], ast.Name):
                        called = last_name(item.func)
                        tensor = called == "isinstance" and len(item.args) == 2 and "Tensor" in code_of(item.args[1])
                        if (tensor or called == "is_tensor") and id(item) not in asserted:
                            names.add(item.args[0].id)
            known = self.project.type_tests[id(node)] = frozenset(names)
        return known

    def default_value(self, node: ast.expr | None, func: Func) -> Value:
        """A parameter's default, evaluated in the function's own module."""
        assert node is not None
        if isinstance(node, ast.Constant):
            return NONE_VALUE if node.value is None else Value(HOST, ref=Const(node.value))
        return self.module_expression(node, func.module, "a default")

    def annotated(self, value: Value, parameter: ast.arg, func: Func) -> Value:
        """What the annotation of a helper's parameter says about an unknown argument."""
        if parameter.annotation is None or not value.kinds & UNKNOWN:
            return value
        why = self.why(parameter, f"`{parameter.arg}` is annotated {code_of(parameter.annotation)}")
        reader = Reader(self.project, func.module)
        root = next(iter(value.roots), "n0")
        read = reader.read(parameter.annotation, value.param or parameter.arg, root, why)
        if read is None:
            return value
        if value.param is not None and value.ref is None:
            symbol = self.symbols.get(value.param)
            if symbol is not None and not isinstance(read.ref, Seq):
                for side in (DEVICE, HOST):  # a union of both says that it may be either
                    if read.kinds & side:
                        symbol.note(side, STRONG, why)
        none = value.kinds & NONE
        return replace(
            read, kinds=read.kinds | none, deps=value.deps, cost=value.cost, roots=value.roots, param=value.param
        )


def _plain(value: Value) -> bool:
    return not isinstance(value.ref, (Seq, Inst, Recv, Partial, Bound, Func, Cls, Attr, Mod))


def _const(value: Value) -> object:
    ref = value.ref
    if isinstance(ref, Const):
        return (type(ref.value), ref.value)
    return ref if isinstance(ref, Ext) else None


EXPRESSIONS[ast.Call] = Calls.ev_call
