"""Calls: the project's functions and classes are interpreted, everything else goes to the operator table."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cachelint.collect.log import ChildCall, Launch, Save
from cachelint.index.module import ClassInfo, FunctionNode, ModuleInfo, class_info
from cachelint.index.walk import last_name, walk
from cachelint.infer.annotations import Reader, is_enum, is_record
from cachelint.infer.library import ARRAY_MODULE_GETTERS, Library, emptied
from cachelint.infer.places import star_of
from cachelint.infer.symbols import DECISIVE, FAIR, STRONG
from cachelint.infer.values import (
    CHEAP,
    CHILD,
    CONST,
    DEVICE,
    HIGH,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    NONE_VALUE,
    OPAQUE,
    PERSIST,
    SAVED,
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
    join,
    join_all,
    replace,
)

if TYPE_CHECKING:
    from cachelint.infer.machine import Machine

_PROPERTIES = frozenset(("property", "cached_property", "abstractproperty"))


class Calls(Library):
    """The call half of the machine."""

    def ev_call(self: Machine, node: ast.Call) -> Value:  # type: ignore[misc]
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

    def callee(self: Machine, node: ast.expr) -> Value:  # type: ignore[misc]
        """The function expression; ``kernel[grid]`` keeps its kernel in sight."""
        if isinstance(node, ast.Subscript):
            base = self.eval(node.value)
            if isinstance(base.ref, (Func, Ext, Attr)) or base.kinds & UNKNOWN:
                self.eval(node.slice)
                return Value(HOST, ref=Attr(base, "[]"))
            key = self.eval(node.slice)
            return self.item(base, key, node)
        return self.eval(node)

    def call(  # type: ignore[misc]
        self: Machine, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool = False
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

    # -- project functions ---------------------------------------------------------------------------------------------

    def call_function(  # type: ignore[misc]
        self: Machine, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST, star: bool = False
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

    def promised(  # type: ignore[misc]
        self: Machine, target: FunctionNode, annotation: ast.expr, func: Func, result: Value, env: dict[str, Value]
    ) -> Value:
        """What the return annotation says where the body leaves it open (a stub, code outside the project)."""
        parts = result.ref.items if isinstance(result.ref, Seq) and result.ref.rest is None else None
        stub = result.kinds == NONE and not any(isinstance(s, ast.Return) for s in target.body)
        guess = result.kinds == HOST and result.sure < HIGH and result.ref is None
        if not (stub or guess or result.kinds & UNKNOWN or (parts and any(part.kinds & UNKNOWN for part in parts))):
            return result
        why = Why(func.module.path, target.lineno, f"{target.name} is annotated to return {ast.unparse(annotation)}")
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

    def as_promised(self: Machine, value: Value, read: Value, deps: frozenset[str]) -> Value:  # type: ignore[misc]
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

    def worth_following(  # type: ignore[misc]
        self: Machine, args: list[Value], kwargs: dict[str, Value], target: FunctionNode | ast.Lambda
    ) -> bool:
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

    def wrapped(self: Machine, target: FunctionNode | ast.Lambda, result: Value) -> Value:  # type: ignore[misc]
        """What the decorators of a function make of its result."""
        for decorator in getattr(target, "decorator_list", ()):
            name = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name == "contextmanager" and isinstance(result.ref, Seq):
                return result.ref.element() or HOST_VALUE
        return result

    def unfollowed(  # type: ignore[misc]
        self: Machine, args: list[Value], kwargs: dict[str, Value], node: ast.AST, recursive: bool = False
    ) -> Value:
        """A recursive or too deep call: device if anything given is."""
        everything = [carried(value) for value in (*args, *kwargs.values())]
        for value in everything:
            if isinstance(value.ref, Recv):
                self.log.escapes.append(self.event("*", node, sure=False))
        # What a recursive call gives was computed as the other ways out of the function compute it.
        floor = CHEAP if recursive else OPAQUE
        made = self.made(node, "a recursive call", tuple(everything), floor=floor)
        return replace(made, sure=LOW, tags=made.tags if recursive else made.tags | _UNFOLLOWED)

    def bind(  # type: ignore[misc]
        self: Machine, func: Func, args: list[Value], kwargs: dict[str, Value], star: bool = False
    ) -> dict[str, Value]:
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

    def type_tests(  # type: ignore[misc]
        self: Machine, node: FunctionNode | ast.Lambda, module: ModuleInfo | None = None
    ) -> frozenset[str]:
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
                        tensor = (
                            called == "isinstance" and len(item.args) == 2 and "Tensor" in ast.unparse(item.args[1])
                        )
                        if (tensor or called == "is_tensor") and id(item) not in asserted:
                            names.add(item.args[0].id)
            known = self.project.type_tests[id(node)] = frozenset(names)
        return known

    def default_value(self: Machine, node: ast.expr | None, func: Func) -> Value:  # type: ignore[misc]
        """A parameter's default, evaluated in the function's own module."""
        assert node is not None
        if isinstance(node, ast.Constant):
            return NONE_VALUE if node.value is None else Value(HOST, ref=Const(node.value))
        return self.module_expression(node, func.module, "a default")

    def annotated(self: Machine, value: Value, parameter: ast.arg, func: Func) -> Value:  # type: ignore[misc]
        """What the annotation of a helper's parameter says about an unknown argument."""
        if parameter.annotation is None or not value.kinds & UNKNOWN:
            return value
        why = self.why(parameter, f"`{parameter.arg}` is annotated {ast.unparse(parameter.annotation)}")
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

    # -- classes -----------------------------------------------------------------------------------------------------

    def construct(  # type: ignore[misc]
        self: Machine, info: ClassInfo, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> Value:
        """An object of a project class."""
        if is_enum(info):
            return HOST_VALUE
        instance = Inst(info)
        value = Value(HOST, ref=instance, tags=frozenset(("handle",)))
        found = self.find_method(info, "__init__")
        if found is not None:
            method, owner = found
            self.call_function(Func(method, owner.module, owner), [value, *args], kwargs, node, star)
        elif is_record(info):
            names = [
                i.target.id for i in info.node.body if isinstance(i, ast.AnnAssign) and isinstance(i.target, ast.Name)
            ]
            instance.attrs.update(zip(names, args, strict=False))
            instance.attrs.update({k: v for k, v in kwargs.items() if k in names})
        else:
            external = [self.dotted_base(base, owner) for owner in self.mro(info) for base in owner.node.bases]
            if any(name and name.rpartition(".")[2] in ("Tensor", "ndarray") for name in external):
                return self.made(node, f"a {info.name}", (*args, *kwargs.values()), floor=LIVE, kinds=DEVICE)
        return value

    def dotted_base(self: Machine, base: ast.expr, info: ClassInfo) -> str:  # type: ignore[misc]
        """The dotted name of an outside base class, empty for the project's own."""
        if isinstance(base, ast.Subscript):
            base = base.value
        parts = ast.unparse(base).split(".")
        found = self.project.resolve(info.module, parts[0])
        if found is None:
            return ".".join(parts)
        if found.binding is not None or found.module is not None:
            return ""
        return ".".join([found.dotted, *parts[1:]])

    def find_method(self: Machine, info: ClassInfo, name: str) -> tuple[FunctionNode, ClassInfo] | None:  # type: ignore[misc]
        """A method by the (approximate) method resolution order."""
        for owner in self.mro(info):
            node = owner.method(name)
            if node is not None:
                return node, owner
        return None

    def mro(self: Machine, info: ClassInfo) -> list[ClassInfo]:  # type: ignore[misc]
        """The class and its bases in the project, left to right, depth first, each once."""
        known = self.mros.get(id(info))
        if known is None:
            known = []
            self._linearise(info, known, 0)
            self.mros[id(info)] = known
        return known

    def _linearise(self: Machine, info: ClassInfo, out: list[ClassInfo], depth: int) -> None:  # type: ignore[misc]
        if info in out or depth > 12:
            return
        out.append(info)
        for base in info.node.bases:
            found = self.base_class(base, info)
            if found is not None:
                self._linearise(found, out, depth + 1)

    def base_class(self: Machine, base: ast.expr, info: ClassInfo) -> ClassInfo | None:  # type: ignore[misc]
        """The project class that a base expression names."""
        if isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            if info.scope is not None and isinstance(info.scope.get(base.id), ClassInfo):
                return info.scope[base.id]  # type: ignore[return-value]
            found = self.project.resolve(info.module, base.id)
            if found is None or found.binding is None:
                return None
            if isinstance(found.binding, ClassInfo):
                return found.binding
            if isinstance(found.binding, (ast.Name, ast.Attribute)) and found.module is not None:
                value = self.module_expression(found.binding, found.module, base.id)
                return value.ref.info if isinstance(value.ref, Cls) else None
            return None
        if isinstance(base, ast.Attribute):
            value = self.module_expression(base, info.module, base.attr)
            return value.ref.info if isinstance(value.ref, Cls) else None
        return None

    def class_member(self: Machine, info: ClassInfo, name: str, receiver: Value | None, node: ast.AST) -> Value | None:  # type: ignore[misc]
        """A method, property or class attribute; None when no class in the order defines it."""
        for owner in self.mro(info):
            stored = self.class_attrs.get((id(owner), name))
            if stored is not None:
                return stored
            if name in owner.nested:
                return Value(HOST, ref=Cls(owner.nested[name]))
            members = owner.members.get(name)
            if not members:
                continue
            member = members[-1]
            if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return self.method_value(member, owner, receiver, node)
            if is_enum(info):
                return HOST_VALUE
            value_node = member.value if isinstance(member, (ast.Assign, ast.AnnAssign)) else None
            if value_node is not None:
                return self.module_expression(value_node, owner.module, name)
            if isinstance(member, ast.AnnAssign):
                return None
        return None

    def method_value(  # type: ignore[misc]
        self: Machine, member: FunctionNode, owner: ClassInfo, receiver: Value | None, node: ast.AST
    ) -> Value:
        """A method bound to a receiver, by its decorators."""
        from cachelint.infer.machine import is_kernel

        func = Func(member, owner.module, owner, kernel=is_kernel(member))
        names = {last_name(d.func if isinstance(d, ast.Call) else d) for d in member.decorator_list}
        if "staticmethod" in names:
            return Value(HOST, ref=func)
        if "classmethod" in names:
            return Value(HOST, ref=Bound(Value(HOST, ref=Cls(owner)), func))
        if receiver is None:
            return Value(HOST, ref=func)
        if names & _PROPERTIES:
            return self.call_function(func, [receiver], {}, node)
        return Value(HOST, ref=Bound(receiver, func))

    def call_instance(  # type: ignore[misc]
        self: Machine,
        func: Value,
        ref: Inst,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.Call,
        star: bool,
    ) -> Value:
        """``layer(x)``: a child layer's forward is SAVE whatever it computes; other objects run ``__call__``."""
        if self.receiver_is_self:
            self.child_call(ref, "__call__", args, kwargs, node, star)
        found = self.find_method(ref.info, "__call__")
        if found is not None:
            method, owner = found
            return self.call_function(Func(method, owner.module, owner), [func, *args], kwargs, node, star)
        if self.find_method(ref.info, "forward") is not None:
            return self.child_result(ref.info.name, args, kwargs, node)
        return self.opaque_call(func, args, kwargs, node, ref.info.name)

    def child_call(  # type: ignore[misc]
        self: Machine, child: Inst, method: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> None:
        """Note a call of an object's method by the receiver's own methods."""
        log, frame = self.log, self.frame
        owner = frame.env.get(frame.self_name) if frame.self_name else None
        if log.phase in ("forward", "backward") and owner is not None and isinstance(owner.ref, Recv):
            log.child_calls.append(
                ChildCall(
                    child,
                    method,
                    node,
                    tuple(args),
                    frozenset(kwargs),
                    star,
                    frame.module.path,
                    frame.name,
                    log.phase,
                    self.tick(),
                    self.path,
                    frame.loops,
                )
            )

    def child_result(  # type: ignore[misc]
        self: Machine, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> Value:
        """What a child layer returns."""
        return replace(
            self.made(
                node, f"what the child layer {name} returned", (*args, *kwargs.values()), floor=CHILD, kinds=DEVICE
            ),
            cost=CHILD,
        )

    # -- methods of values ---------------------------------------------------------------------------------------------

    def call_attr(  # type: ignore[misc]
        self: Machine, func: Value, ref: Attr, args: list[Value], kwargs: dict[str, Value], node: ast.Call, star: bool
    ) -> Value:
        """``base.name(…)`` where the class of base does not say what name is."""
        base, name = ref.base, ref.name
        if name == "[]":
            return self.launch(base, args, kwargs, node)
        inner = base.ref
        if isinstance(inner, Recv):
            return self.call_receiver_api(name, args, kwargs, node)
        if isinstance(inner, Seq) and not base.kinds & DEVICE:
            return self.call_sequence(base, inner, name, args, kwargs, node)
        if name == "apply" and isinstance(inner, Cls):
            return self.apply_function(inner.info, args, kwargs, node)
        if isinstance(inner, (Func, Bound, Partial)):
            if name in ("__call__", "forward", "__wrapped__"):
                return self.call(base, args, kwargs, node, star)
            return self.launch(base, args, kwargs, node) if _is_kernel(inner) else HOST_VALUE
        if isinstance(inner, Attr) and inner.name == "super":
            return self.call_super(inner.base, name, args, kwargs, node, star)
        return self.call_method(base, name, args, kwargs, node)

    def apply_function(  # type: ignore[misc]
        self: Machine, info: ClassInfo, args: list[Value], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        """``F.apply(…)`` inside another function: what its forward returns, where that can be followed."""
        found = self.find_method(info, "forward") if self.log.phase == "forward" else None
        if found is not None and found[0] is not self.frame.node:
            method, owner = found
            names = [a.arg for a in (*method.args.posonlyargs, *method.args.args)]
            separate = self.find_method(info, "setup_context") is not None and names[:1] != ["ctx"]
            given = args if separate else [Value(HOST, ref=Inst(_CONTEXT)), *args]
            result = self.call_function(Func(method, owner.module, owner), given, kwargs, node)
            if carried(result).kinds & DEVICE:
                return result
        if any(isinstance(value.ref, Recv) for value in (*args, *kwargs.values())):
            self.log.escapes.append(self.event("*", node, sure=False))
        return self.made(
            node, f"the result of {info.name}.apply", (*args, *kwargs.values()), floor=OPAQUE, kinds=DEVICE
        )

    def call_super(  # type: ignore[misc]
        self: Machine,
        receiver: Value,
        name: str,
        args: list[Value],
        kwargs: dict[str, Value],
        node: ast.Call,
        star: bool,
    ) -> Value:
        """``super().name(…)``: the next class in the order after the one that is being interpreted."""
        owner = self.frame.owner
        start = receiver.ref.info if isinstance(receiver.ref, (Inst, Cls)) else self.receiver_class
        if owner is None or start is None:
            return self.opaque_call(receiver, args, kwargs, node, f"super().{name}")
        order = self.mro(start)
        after = order[order.index(owner) + 1 :] if owner in order else []
        for info in after:
            method = info.method(name)
            if method is not None:
                static = any(last_name(d) == "staticmethod" for d in method.decorator_list)
                given = args if static else [receiver, *args]
                return self.call_function(Func(method, info.module, info), given, kwargs, node, star)
        if name == "__init__":
            return NONE_VALUE
        return self.opaque_call(receiver, args, kwargs, node, f"super().{name}")

    def call_sequence(  # type: ignore[misc]
        self: Machine, base: Value, seq: Seq, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        """Methods of lists, tuples, dicts and sets."""
        if seq.shared and name in ("pop", "popleft", "get", "popitem", "values", "items"):
            self.log.fetches.append(self.outside(seq.shared.rpartition(".")[2], node))
        if name in ("append", "add", "appendleft") and args:
            self.grow(seq, args[0], node)
        elif name in ("extend", "update", "extendleft"):
            for value in args:
                if isinstance(value.ref, Seq):
                    for item in value.ref.each():
                        self.grow(seq, item, node, spread=True)
                elif value.kinds != NONE:
                    self.grow(seq, self.element_of(value, node), node, spread=True)
            for value in kwargs.values():
                self.grow(seq, value, node, spread=True)
        elif name == "insert" and len(args) == 2:
            seq.rest, seq.items = seq.element(), None
            self.grow(seq, args[1], node, spread=True)
        elif name == "setdefault" and args:
            value = args[1] if len(args) > 1 else NONE_VALUE
            self.grow(seq, value, node, spread=True)
            return seq.element() or value
        elif name in ("pop", "popleft", "get", "popitem"):
            literal = args[0].const if args else ...
            if seq.places and isinstance(literal, str) and seq.rest is not None:
                found = self.place(seq, literal, node)
                return join(found, args[1]) if len(args) > 1 else found
            if seq.keys is not None and isinstance(literal, (str, int)) and literal in seq.keys and seq.rest is None:
                return seq.keys[literal]
            element = seq.element()
            if element is None:
                if seq.shared:
                    return self.symbol(
                        f"item of {seq.shared}", "result", f"an item of the module's `{seq.shared}`",
                        self.frame.module, node.lineno, cost=PERSIST, deps=frozenset(),
                    )  # fmt: skip
                return args[1] if len(args) > 1 else Value(UNKNOWN | NONE, OPAQUE, sure=LOW)
            return join(element, args[1]) if len(args) > 1 else element
        elif name == "items":
            element = seq.element()
            pair = [HOST_VALUE, element if element is not None else NONE_VALUE]
            if seq.keys is not None and seq.rest is None:
                pairs = [Value(HOST, ref=Seq([Value(HOST, ref=Const(k)), v])) for k, v in seq.keys.items()]
                return Value(HOST, ref=Seq(pairs))
            return Value(HOST, ref=Seq(None, Value(HOST, ref=Seq(pair))))
        elif name == "keys":
            return Value(HOST, ref=Seq(None, HOST_VALUE))
        elif name == "values":
            return Value(HOST, ref=Seq(None, seq.element()))
        elif name in ("copy", "union", "_asdict", "_replace"):
            return Value(HOST, ref=Seq(seq.items and list(seq.items), seq.rest, seq.keys and dict(seq.keys), True))
        elif name in ("index", "count", "sort", "reverse", "clear", "remove", "numel"):
            return HOST_VALUE
        return NONE_VALUE if name in ("append", "extend", "insert", "update", "add") else HOST_VALUE

    def grow(self: Machine, seq: Seq, value: Value, node: ast.AST, spread: bool = False) -> None:  # type: ignore[misc]
        """Something joins a container. Positions stay known outside branches and loops."""
        self.grown(seq, value, node)
        if seq.shared:
            self.log.stores.append(self.outside(seq.shared.rpartition(".")[2], node, value))
        if seq.shared and value.kinds & DEVICE:
            from cachelint.infer.values import WORKSPACE

            value = replace(value, cost=WORKSPACE, roots=frozenset((f"g:{seq.shared}",)))
        if (
            seq.items is not None
            and seq.rest is None
            and not self.frame.loops
            and not self.path
            and not seq.shared
            and len(seq.items) < 40
        ):
            seq.items.append(value)
            return
        seq.put(value)

    def call_receiver_api(  # type: ignore[misc]
        self: Machine, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call
    ) -> Value:
        """The dialect's API on the receiver: saving, marking."""
        log = self.log
        log.api_calls.append((name, node, tuple(args), self.frame.module.path, log.phase, self.tick()))
        if name in log.save_names:
            self.saved(name, args, node)
            return NONE_VALUE
        if name in log.read_back:
            return self.read_saved(node)
        return HOST_VALUE

    def saved(self: Machine, api: str, args: list[Value], node: ast.Call) -> None:  # type: ignore[misc]
        """A call of the save API."""
        exprs: list[ast.expr] = []
        position = 0
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                known = self.positions(self.eval(arg.value), None)
                count = 1 if known is None else len(known)
            else:
                count = 1
            exprs.extend([arg] * count)
            position += count
        for value in args:
            if value.param is not None:
                self.note(value, DEVICE, DECISIVE, node, f"passed to {api}")
        log = self.log
        log.saves.append(
            Save(
                api,
                node,
                tuple(exprs[: len(args)]),
                tuple(args),
                self.frame.module.path,
                self.frame.name,
                log.phase,
                self.tick(),
                self.path,
            )
        )

    def read_saved(self: Machine, node: ast.AST) -> Value:  # type: ignore[misc]
        """``ctx.saved_tensors`` and its like."""
        self.log.unpacks.append(self.event("saved", node))
        values = self.log.saved_values()
        if values is not None:
            if any("starred" in value.tags for value in values):
                return Value(HOST, ref=Seq(None, join_all(values)))
            return Value(
                HOST,
                ref=Seq([replace(v, kinds=v.kinds & ~UNKNOWN | DEVICE) if v.kinds & UNKNOWN else v for v in values]),
            )
        return Value(HOST, ref=Seq(None, Value(DEVICE | NONE, LIVE)))

    # -- the receiver --------------------------------------------------------------------------------------------------

    def receiver_attribute(self: Machine, base: Value, name: str, node: ast.AST) -> Value:  # type: ignore[misc]
        """``ctx.name`` or ``self.name``: API, field, method, or what ``__init__`` set."""
        log = self.log
        current = log.attrs.get(name)
        if current is not None:
            log.reads.append(self.event(name, node, unset="maybe-unset" in current.tags))
            if "maybe-unset" in current.tags and name in log.initial:
                return join(current, log.initial[name])
            return current
        if name in log.read_back and name not in log.save_names:
            found = self.find_method(self.receiver_class, name) if self.receiver_class is not None else None
            if found is not None and not self.is_dialect_base(found[1]):
                pass
            elif (name.startswith("saved_") and name != "saved_tensor") or name in log.own_read_back:
                return self.read_saved(node)
            else:
                return Value(HOST, ref=Attr(base, name))
        if name in log.api:
            if name == "needs_input_grad":
                return Value(HOST, ref=Seq(None, HOST_VALUE))
            found = self.find_method(self.receiver_class, name) if self.receiver_class is not None else None
            # The contract's own base class may be in the project too: its save call is the API all the same.
            if found is None or name in log.save_names or self.is_dialect_base(found[1]):
                return Value(HOST, ref=Attr(base, name))
        if name == "__dict__":
            log.escapes.append(self.event("*", node, sure=False))
            return Value(HOST, ref=Seq(None, join_all(log.attrs.values())))
        if self.receiver_is_self:
            assert self.receiver_class is not None
            member = self.class_member(self.receiver_class, name, base, node)
            if member is not None and isinstance(member.ref, (Func, Bound, Cls)):
                return member
            log.reads.append(self.event(name, node, unset=True))
            if name in log.initial:
                return log.initial[name]
            if member is not None:
                return member
        else:
            log.reads.append(self.event(name, node, unset=True))
        return self.symbol(
            f"self.{name}",
            "self",
            f"attribute `{name}` of the receiver, set elsewhere",
            self.frame.module,
            getattr(node, "lineno", 0),
            cost=PERSIST,
        )

    def init_attribute(self: Machine, info: ClassInfo, name: str, base: Value, node: ast.AST) -> Value | None:  # type: ignore[misc]
        """What a class's ``__init__`` puts in an attribute, judged by the assignment alone."""
        for owner in self.mro(info):
            init = owner.method("__init__")
            if init is None:
                continue
            for item in self.init_assignments(init).get(name, ()):
                if isinstance(item, ast.Assign):
                    return self.init_expression(item.value, init, owner, name, base)
                if isinstance(item, ast.AnnAssign):
                    why = self.why(item, f"annotated {ast.unparse(item.annotation)}")
                    reader = Reader(self.project, owner.module)
                    read = reader.read(item.annotation, base.param or name, f"a:{owner.name}.{name}", why)
                    if read is not None:
                        return replace(read, cost=PERSIST)
                else:
                    return self.held(owner, name, base, item, f"`{name}` is registered with the module")
        return None

    def init_assignments(  # type: ignore[misc]
        self: Machine, init: FunctionNode
    ) -> dict[str, list[ast.Assign | ast.AnnAssign | ast.Call]]:
        """The statements of a constructor by the attribute that they set; read once a process."""
        known = self.project.init_assignments.get(id(init))
        if known is None:
            known = self.project.init_assignments[id(init)] = {}
            for item in walk(init):
                if isinstance(item, ast.Assign):
                    for target in item.targets:
                        if isinstance(target, ast.Attribute) and _is_self(target.value):
                            known.setdefault(target.attr, []).append(item)
                elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Attribute):
                    known.setdefault(item.target.attr, []).append(item)
                elif isinstance(item, ast.Call) and last_name(item.func) in _REGISTER and item.args:
                    first = item.args[0]
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        known.setdefault(first.value, []).append(item)
        return known

    def held(self: Machine, owner: ClassInfo, name: str, base: Value, node: ast.AST, text: str) -> Value:  # type: ignore[misc]
        """A tensor that an object holds beyond this call."""
        root = frozenset((f"a:{owner.name}.{name}",))
        return Value(DEVICE, PERSIST, frozenset((base.param or name,)), root, why=self.why(node, text))

    def init_expression(  # type: ignore[misc]
        self: Machine, node: ast.expr, init: FunctionNode, owner: ClassInfo, name: str, base: Value
    ) -> Value | None:
        """The right-hand side of ``self.name = …`` in a constructor."""
        if isinstance(node, ast.Constant):
            return None if node.value is None else Value(HOST, why=self.why(node, "set to a constant in __init__"))
        if isinstance(node, ast.Name):
            for parameter in (*init.args.args, *init.args.kwonlyargs):
                if parameter.arg == node.id and parameter.annotation is not None:
                    why = self.why(
                        parameter, f"`{name}` comes from a parameter annotated {ast.unparse(parameter.annotation)}"
                    )
                    reader = Reader(self.project, owner.module)
                    read = reader.read(parameter.annotation, base.param or name, f"a:{owner.name}.{name}", why)
                    return None if read is None else replace(read, cost=PERSIST)
            defaults = [None] * (len(init.args.args) - len(init.args.defaults)) + list(init.args.defaults)
            for parameter, default in zip(init.args.args, defaults, strict=True):
                if parameter.arg == node.id and isinstance(default, ast.Constant) and default.value is not None:
                    return Value(HOST, sure=MEDIUM, why=self.why(parameter, f"`{name}` has a literal default"))
            return None
        if _is_empty_container(node):
            return Value(HOST, ref=Seq([], mutable=True) if isinstance(node, ast.List) else Seq(None, None, {}, True))
        if isinstance(node, (ast.Compare, ast.JoinedStr, ast.List, ast.Dict, ast.Tuple, ast.Lambda)):
            return Value(HOST, sure=MEDIUM, why=self.why(node, "a host value in __init__"))
        if isinstance(node, (ast.Call, ast.BinOp, ast.IfExp, ast.BoolOp, ast.UnaryOp)):
            value = self.module_expression(node, owner.module, name)
            if value.kinds & DEVICE:
                return self.held(owner, name, base, node, f"`{name}` is made in __init__: {_text(node)}")
            if value.kinds == HOST and value.sure > LOW and not isinstance(value.ref, Seq):
                return value if value.why is not None else Value(HOST, sure=MEDIUM, ref=value.ref)
        return None

    # -- kernels -----------------------------------------------------------------------------------------------------

    def launch(self: Machine, kernel: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:  # type: ignore[misc]
        """A kernel launch: buffers of ours that it is given are filled with what it computes."""
        ref = kernel.ref
        everything = [*args, *kwargs.values()]
        spec = _kernel_spec(ref)
        deps = frozenset().union(*(value.deps for value in everything)) if everything else frozenset()
        name = _kernel_name(kernel)
        content = Value(DEVICE, OPAQUE, deps, why=self.why(node, f"filled by the kernel {name}"))
        for value in everything if self.log.phase != "backward" else ():
            for part in _buffers(value):
                if self.is_open_buffer(part):
                    for root in _own(part.roots):
                        self.heap[root] = content if root not in self.heap else join(self.heap[root], content)
        if spec is not None:
            self.kernel_evidence(spec, args, kwargs, node)
            self.launched(spec, args, kwargs, node)
        return HOST_VALUE

    def launched(  # type: ignore[misc]
        self: Machine, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> None:
        """Note which value a kernel of the project gets under which of its parameters."""
        spec = func.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        pairs = [pair for pair in (*zip(names, args, strict=False), *kwargs.items()) if pair[1].roots]
        log = self.log
        if pairs:
            log.launches.append(
                Launch(
                    func,
                    tuple(pairs),
                    node,
                    self.frame.module.path,
                    self.frame.name,
                    log.phase,
                    self.tick(),
                    self.path,
                )
            )

    def is_open_buffer(self: Machine, value: Value) -> bool:  # type: ignore[misc]
        """A buffer that holds nothing of the caller's yet: what it is handed to fills it."""
        if not value.roots or not value.kinds & (DEVICE | UNKNOWN):
            return False
        if value.cost != SAVED and not (value.cost == CONST and "blank" in value.tags):
            return False
        if "small" in value.tags and any(root.startswith("p:") for root in value.roots):
            return False  # an input, or something small to pass in its place
        contents = [self.heap[root] for root in value.roots if root in self.heap]
        return all(content.cost not in (LIVE, CHEAP) for content in contents)

    def kernel_evidence(  # type: ignore[misc]
        self: Machine, func: Func, args: list[Value], kwargs: dict[str, Value], node: ast.AST
    ) -> None:
        """Which symbols the kernel uses as pointers and which as scalars: looked up only if nothing better is known."""
        assert not isinstance(func.node, ast.Lambda)
        names = [a.arg for a in (*func.node.args.posonlyargs, *func.node.args.args)]
        pairs = [*zip(names, args, strict=False), *kwargs.items()]
        for name, value in pairs:
            if value.param is None:
                continue
            symbol = self.symbols.get(value.param)
            if symbol is None:
                continue
            why = self.why(node, f"passed to the kernel {func.node.name} as `{name}`")

            def look(symbol: object = symbol, name: str = name, why: object = why) -> None:
                side = kernel_parameter(func, name)
                if side:
                    strength = STRONG if side == DEVICE else FAIR
                    symbol.note(side, strength, why)  # type: ignore[attr-defined]

            symbol.later.append(look)

    def is_dialect_base(self: Machine, info: ClassInfo) -> bool:  # type: ignore[misc]
        """Whether a class of the project is itself the dialect's base (a framework that lints itself)."""
        return f"{info.module.name}.{info.qualname}" in self.dialect_bases

    def opaque_result(self: Machine, node: ast.AST, name: str, inner: list[Value]) -> Value:  # type: ignore[misc]
        """What unseen code returned that was given tensors: most likely tensors, unless it is used otherwise."""
        made = self.made(node, f"the result of {name}, whose code is not here", tuple(inner), floor=OPAQUE)
        line = getattr(node, "lineno", 0)
        value = self.symbol(
            f"{name}():{line}",
            "result",
            f"the result of {name}",
            self.frame.module,
            line,
            cost=made.cost,
            deps=made.deps,
            prior=DEVICE,
        )
        if value.sure == LOW and not value.kinds & DEVICE:
            # Nothing spoke on the first pass, when it was not known yet that tensors are given.
            value = replace(value, kinds=DEVICE | value.kinds & NONE)
        return replace(value, roots=made.roots, why=made.why, sure=min(value.sure, MEDIUM) or MEDIUM)

    def fill_opened(  # type: ignore[misc]
        self: Machine, given: Iterable[Value], named: Callable[[ast.Call], str], node: ast.AST
    ) -> None:
        """Unseen code is given these: it fills the buffers among them that hold nothing yet."""
        if self.log.phase == "backward":
            return  # what backward writes does not make a value of forward any dearer
        for value in given:
            for part in _buffers(value):
                if part.cost in (SAVED, CONST) and self.is_open_buffer(part):
                    name = named(node) if isinstance(node, ast.Call) else "unseen code"
                    content = Value(DEVICE, OPAQUE, part.deps, why=self.why(node, f"filled by {name}"))
                    for root in _own(part.roots):
                        self.heap[root] = content if root not in self.heap else join(self.heap[root], content)

    def call_back(self: Machine, given: Iterable[Value], node: ast.AST) -> None:  # type: ignore[misc]
        """Functions of forward that unseen code is given: it calls them, with what nobody knows."""
        if self.log.phase != "forward":
            return
        for value in given:
            func = value.ref
            if not isinstance(func, Func) or func.env is None or isinstance(func.node, ast.Lambda):
                continue
            if not _stores(func.node) and not _grows(func.node):
                continue  # it keeps nothing
            env = {
                parameter.arg: self.symbol(
                    f"{func.node.name}.{parameter.arg}",
                    "attr",
                    f"parameter `{parameter.arg}` of {func.node.name}",
                    func.module,
                    parameter.lineno,
                    cost=OPAQUE,
                    deps=frozenset(),
                )
                for parameter in (*func.node.args.posonlyargs, *func.node.args.args)
            }
            self.run(func.node, func.module, env, owner=func.owner, closure=func.env)

    def opaque_call(  # type: ignore[misc]
        self: Machine, func: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST, name: str
    ) -> Value:
        """Code that we can't see: device if it is given tensors, otherwise nothing decides."""
        everything = [*args, *kwargs.values()]
        for value in everything:
            if isinstance(value.ref, Recv):
                self.log.escapes.append(self.event("*", node, sure=False))
        self.fill_opened(everything, lambda _: name, node)
        self.call_back(everything, node)
        inner = [carried(value) for value in everything]
        if any(value.kinds & DEVICE for value in inner):
            return self.opaque_result(node, name, inner)
        if not any(value.kinds & UNKNOWN for value in inner):
            return Value(HOST, sure=MEDIUM, why=self.why(node, f"{name} is given host values only"))
        made = self.symbol(
            f"{name}():{getattr(node, 'lineno', 0)}",
            "result",
            f"the result of {name}",
            self.frame.module,
            getattr(node, "lineno", 0),
            cost=OPAQUE,
            deps=frozenset().union(*(value.deps for value in inner)),
        )
        if made.param is not None:
            self.symbols[made.param].given = frozenset().union(*(v.deps for v in inner if v.kinds & UNKNOWN))
        return made


def _stores(node: FunctionNode) -> bool:
    """Whether a function assigns to an attribute or to an item of something."""
    return any(isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) for n in walk(node))


def _grows(node: FunctionNode) -> bool:
    """Whether a function puts something into a container of the function around it."""
    own = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    own |= {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr in ("append", "extend", "add", "insert")
        and isinstance(n.func.value, ast.Name)
        and n.func.value.id not in own
        for n in walk(node)
    )


_UNFOLLOWED = frozenset(("unfollowed",))
_REGISTER = frozenset(("register_buffer", "register_parameter"))
# The context of a function that is only followed for its result.
_CONTEXT = class_info(ast.ClassDef("Context", [], [], [], []), ModuleInfo("<context>", "", "<context>"), "")

_SMALL = 48
"""Lines of a helper that is followed for what it does to a gradient."""


def kernel_parameter(func: Func, name: str) -> int:
    """Whether a kernel uses a parameter as a pointer (DEVICE) or as a scalar (HOST); 0 when it cannot be told."""
    assert not isinstance(func.node, ast.Lambda)
    try:
        node = func.module.whole(func.node)
    except SyntaxError:
        return 0
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if (
            parameter.arg == name
            and parameter.annotation is not None
            and "constexpr" in ast.unparse(parameter.annotation)
        ):
            return HOST
    pointers: set[str] = set()
    bases: dict[str, set[str]] = {}
    for item in walk(node):
        if isinstance(item, ast.Call):
            called = last_name(item.func)
            if called in _POINTER_CALLS and item.args:
                pointers |= _leftmost(item.args[0])
            elif called in ("make_block_ptr", "make_tensor_descriptor"):
                for keyword in item.keywords:
                    if keyword.arg == "base":
                        pointers |= _leftmost(keyword.value)
        elif isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
            bases.setdefault(item.targets[0].id, set()).update(_leftmost(item.value))
    for _ in range(4):
        pointers |= {base for pointer in pointers for base in bases.get(pointer, ())}
    return DEVICE if name in pointers else HOST


_POINTER_CALLS = frozenset(
    [
        "load",
        "store",
        "atomic_add",
        "atomic_max",
        "atomic_min",
        "atomic_cas",
        "atomic_xchg",
        "make_block_ptr",
        "make_tensor_descriptor",
        "_experimental_make_tensor_descriptor",
        "async_load",
    ]
)


def _leftmost(node: ast.expr) -> set[str]:
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and node.args and last_name(node.func) in _POINTER_CALLS:
            node = node.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) == "to":
            node = node.func.value
        elif isinstance(node, ast.IfExp):
            return _leftmost(node.body) | _leftmost(node.orelse)
        elif isinstance(node, ast.Name):
            return {node.id}
        else:
            return set()


def _kernel_spec(ref: object) -> Func | None:
    if isinstance(ref, Func) and not isinstance(ref.node, ast.Lambda):
        return ref
    return None


def _kernel_name(kernel: Value) -> str:
    ref = kernel.ref
    if isinstance(ref, Func) and not isinstance(ref.node, ast.Lambda):
        return ref.node.name
    return ref.dotted if isinstance(ref, Ext) else ref.name if isinstance(ref, Attr) else "?"


def _is_kernel(ref: object) -> bool:
    return isinstance(ref, Func) and ref.kernel


def _own(roots: frozenset[str]) -> list[str]:
    """The storages that this call made: what is filled may on some paths be an input, which holds something already."""
    return [root for root in roots if root.startswith("n")]


def _buffers(value: Value) -> list[Value]:
    ref = value.ref
    if isinstance(ref, Seq):
        return [part for item in ref.each() for part in ([item] if item.ref is None else _buffers_once(item))]
    return [value]


def _buffers_once(value: Value) -> list[Value]:
    return list(value.ref.each()) if isinstance(value.ref, Seq) else [value]


def _plain(value: Value) -> bool:
    return not isinstance(value.ref, (Seq, Inst, Recv, Partial, Bound, Func, Cls, Attr, Mod))


def _const(value: Value) -> object:
    ref = value.ref
    if isinstance(ref, Const):
        return (type(ref.value), ref.value)
    return ref if isinstance(ref, Ext) else None


def _is_empty_container(node: ast.expr) -> bool:
    """``[]``, ``{}``, ``dict()`` and their like."""
    if isinstance(node, ast.Call):
        return not node.args and not node.keywords and last_name(node.func) in ("dict", "list", "OrderedDict")
    return (isinstance(node, ast.List) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else text[:37] + "..."
