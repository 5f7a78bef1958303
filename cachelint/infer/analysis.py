"""Interpret one type: constructor, forward, setup_context, backward; settle what was unknown; interpret again."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from typing import Any

from cachelint.collect.log import ReceiverLog
from cachelint.collect.types import Method, Unit
from cachelint.index.module import FunctionNode
from cachelint.index.project import Project
from cachelint.index.walk import code_of
from cachelint.infer import callers
from cachelint.infer.annotations import Reader
from cachelint.infer.core import Exhausted, decided
from cachelint.infer.machine import Machine
from cachelint.infer.names import suggests
from cachelint.infer.symbols import DECISIVE, FAIR, HINT, STRONG, WEAK, Outcome, Symbol, settle
from cachelint.infer.values import (
    DEVICE,
    HOST,
    HOST_VALUE,
    LIVE,
    LOW,
    MEDIUM,
    NONE,
    PERSIST,
    UNKNOWN,
    Cls,
    Func,
    Inst,
    Recv,
    Seq,
    Value,
    Why,
    carried,
    join,
    join_all,
    replace,
)


@dataclass
class Analysis:
    """What interpretation found out about one type."""

    unit: Unit
    machine: Machine
    forward_result: Value | None
    parameters: tuple[str, ...]

    @property
    def log(self) -> ReceiverLog:
        """The receiver's record."""
        return self.machine.log


def analyse(unit: Unit, project: Project) -> Analysis:
    """Interpret a type: once to gather evidence, again with what the evidence showed."""
    if unit.trainer:
        return Analysis(unit, Machine(project), None, ())  # listed, not judged
    first = _interpret(unit, project, {})
    settled = _settle(unit, first, project)
    if not settled or _substituted(first, settled) or not _undecided(first):
        return first
    return _interpret(unit, project, settled, first)


def _undecided(first: Analysis) -> bool:
    """Whether anything that is kept or saved is unknown after the first pass, or any evidence turned a symbol around."""
    log = first.log
    for write in log.writes:
        if carried(write.value).kinds & UNKNOWN:
            return True
    if log.fetches and any(s.value is not None and carried(s.value).kinds & UNKNOWN for s in log.stores):
        return True
    return any(value.kinds & UNKNOWN for save in log.saves for value in save.values) or first.machine.exhausted


def _substituted(first: Analysis, settled: dict[str, Outcome]) -> bool:
    """Put the outcome in place of every symbol that is kept or saved as it is.

    Most of what is unknown after the first pass is a parameter kept unchanged: no second pass is needed to say what it
    is. False, and nothing changed, where something derived from an unknown value is kept.
    """
    log = first.log
    if first.machine.exhausted or log.fetches or log.stores:
        return False
    if any(b.value.kinds & UNKNOWN and b.value.param is None for b in log.bindings):
        return False  # a local that is derived from something unknown: the rules about lifetimes want to know
    writes = [(write, _known(write.value, settled)) for write in log.writes]
    saves = [(save, [_known(value, settled) for value in save.values]) for save in log.saves]
    if any(value is None for _, value in writes) or any(value is None for _, row in saves for value in row):
        return False
    log.writes = [dataclasses.replace(w, value=v) if v is not w.value else w for w, v in writes if v is not None]
    log.saves = [dataclasses.replace(s, values=tuple(v for v in row if v is not None)) for s, row in saves]
    first.machine.settled = settled
    return True


def _known(value: Value, settled: dict[str, Outcome], depth: int = 0) -> Value | None:
    """The value with its symbols replaced by what they turned out to be, None where that does not decide it."""
    ref = value.ref
    if isinstance(ref, Seq) and not value.kinds & UNKNOWN and depth < 4:
        if not any(carried(item).kinds & UNKNOWN for item in ref.each()):
            return value
        items = None if ref.items is None else [_known(item, settled, depth + 1) for item in ref.items]
        rest = None if ref.rest is None else _known(ref.rest, settled, depth + 1)
        if ref.keys or (items is not None and None in items) or (ref.rest is not None and rest is None):
            return None
        known = None if items is None else [item for item in items if item is not None]
        return replace(value, ref=Seq(known, rest, None, ref.mutable, ref.shared))
    if not carried(value).kinds & UNKNOWN:
        return value
    outcome = settled.get(value.param) if value.param is not None else None
    if outcome is None or not outcome.kinds or value.cost != LIVE or isinstance(ref, (Seq, Inst)):
        return None
    known_value = decided(value, outcome)
    return replace(known_value, kinds=known_value.kinds | NONE) if value.kinds & NONE else known_value


# -- one pass --------------------------------------------------------------------------------------------------------


def _interpret(unit: Unit, project: Project, settled: dict[str, Outcome], before: Analysis | None = None) -> Analysis:
    machine = Machine(project, settled)
    spec = unit.dialect
    machine.log = ReceiverLog(frozenset(spec.api), frozenset(spec.save), frozenset(spec.read_back))
    machine.log.own_read_back = frozenset(unit.own_read_back)
    machine.receiver_class = unit.info
    machine.receiver_is_self = unit.receiver_is_self
    machine.dialect_bases = frozenset(spec.bases)
    receiver = Value(HOST, ref=Recv(machine.log))
    analysis = Analysis(unit, machine, None, ())
    try:
        _init(unit, machine, receiver)
        _forward(unit, machine, receiver, analysis)
        machine.storages = machine.counter
        again = before is not None and before.machine.storages != machine.storages and not unit.receiver_is_self
        if before is None or before.machine.exhausted or again:
            _backward(unit, machine, receiver, analysis)
        else:
            _carry_backward(before.machine.log, machine.log)
    except Exhausted:
        pass
    except RecursionError:
        machine.exhausted = True
    return analysis


def _carry_backward(source: ReceiverLog, target: ReceiverLog) -> None:
    """What backward reads does not depend on what the symbols turned out to be: it is taken over, not run again.

    Under a ctx only where both passes counted the same storages in forward: else a number means another one in the events
    of backward, and what was saved is taken for something else.
    """
    for name in (
        "writes",
        "reads",
        "saves",
        "unpacks",
        "mutations",
        "returns",
        "deletes",
        "escapes",
        "child_calls",
        "launches",
        "stores",
        "fetches",
        "hooks",
    ):
        getattr(target, name).extend(event for event in getattr(source, name) if event.phase == "backward")
    target.api_calls.extend(call for call in source.api_calls if call[4] == "backward")
    target.entries.extend(entry for entry in source.entries if entry[1] == "backward")
    target.ended.update(source.ended)
    target.branches.update(source.branches)


def _init(unit: Unit, machine: Machine, receiver: Value) -> None:
    if not unit.receiver_is_self or unit.info is None:
        return
    found = machine.find_method(unit.info, "__init__")
    if found is None:
        return
    node, owner = found
    machine.log.phase = "init"
    names = [*node.args.posonlyargs, *node.args.args]
    env = {names[0].arg: receiver} if names else {}
    env.update(_parameters(Method(node, owner, owner.module), machine, skip=1, prefix="__init__.", layer=False))
    try:
        machine.run(node, owner.module, env, owner=owner, self_name=names[0].arg if names else "", entry=True)
    except Exhausted:
        machine.steps = 0
        machine.exhausted = False
    log = machine.log
    log.initial = {name: _persistent(name, value) for name, value in log.attrs.items()}
    for name, value in log.initial.items():
        _own(name, value, machine, 0)
    log.attrs = {}
    log.returns.clear()


def _own(name: str, value: Value, machine: Machine, depth: int) -> None:
    """Remember the containers that the constructor makes: what forward puts into them is kept in the attribute."""
    if isinstance(value.ref, Seq) and depth < 4:
        machine.owned[id(value.ref)] = name
        for item in value.ref.each():
            _own(name, item, machine, depth + 1)


def _persistent(name: str, value: Value) -> Value:
    if value.kinds & (DEVICE | UNKNOWN) and value.ref is None:
        why = value.why or None
        return replace(
            value,
            cost=PERSIST,
            deps=frozenset((f"self.{name}",)),
            roots=frozenset((f"a:self.{name}",)),
            why=why,
            tags=value.tags | {"initial"},
        )
    if isinstance(value.ref, (Inst, Seq)):
        _persist_inside(value.ref, f"self.{name}", 0)
    if isinstance(value.ref, Inst):
        return replace(value, ref=value.ref, tags=value.tags | {"initial", "handle"})
    return value.tagged("initial")


def _persist_inside(ref: Inst | Seq, path: str, depth: int) -> None:
    """What an object or list of the constructor holds outlives the call too: a parameter's value, random or not."""
    if depth > 4:
        return

    def kept(name: str, value: Value) -> Value:
        if isinstance(value.ref, (Inst, Seq)):
            _persist_inside(value.ref, name, depth + 1)
        elif value.ref is None and value.kinds & (DEVICE | UNKNOWN) and value.cost != PERSIST:
            return replace(value, cost=PERSIST, deps=frozenset((path,)), roots=frozenset((f"a:{name}",)))
        return value

    if isinstance(ref, Inst):
        ref.attrs = {name: kept(f"{path}.{name}", value) for name, value in ref.attrs.items()}
        return
    if ref.items is not None:
        ref.items = [kept(f"{path}[{number}]", value) for number, value in enumerate(ref.items)]
    if ref.keys is not None:
        ref.keys = {key: kept(f"{path}[{key!r}]", value) for key, value in ref.keys.items()}
    if ref.rest is not None:
        ref.rest = kept(f"{path}[]", ref.rest)


def _forward(unit: Unit, machine: Machine, receiver: Value, analysis: Analysis) -> None:
    log = machine.log
    log.phase = "forward"
    results: list[Value] = []
    bound: dict[str, Value] = {}
    after: dict[str, Value] = {}
    separate = bool(unit.setup) and not _takes_receiver(unit)
    for method in unit.forward:
        log.attrs = {}
        env, skip, self_name = _receiver_env(unit, method, receiver, with_receiver=not separate)
        bound = _parameters(method, machine, skip, layer=unit.receiver_is_self, dialect=unit.dialect.name)
        env.update(bound)
        result = machine.run(
            method.node, method.module, env, owner=method.owner, self_name=self_name, entry=True, name=method.node.name
        )
        results.append(result)
        after = log.attrs if not after else _join_attrs(after, log.attrs)
    if not analysis.parameters:
        analysis.parameters = tuple(bound)
    log.attrs = after
    analysis.forward_result = join_all(results)
    if unit.wrapper is not None and analysis.forward_result is not None:
        _wrapper(unit, unit.wrapper, machine, receiver, analysis.forward_result)
    for method in unit.setup:
        _setup(unit, machine, receiver, method, bound, analysis)


def _wrapper(unit: Unit, method: Method, machine: Machine, receiver: Value, result: Value) -> None:
    """The ``__call__`` around forward: what it keeps, with forward's result where it calls forward.

    Only its writes and reads count: its ways out and its locals are no part of forward's.
    """
    log = machine.log
    kept: list[list[Any]] = [log.returns, log.exits, log.bindings, log.allocations]
    lengths, written = [len(events) for events in kept], len(log.writes)
    machine.answers = {id(m.node): result for m in unit.forward}
    env, skip, self_name = _receiver_env(unit, method, receiver, with_receiver=True)
    env.update(_parameters(method, machine, skip, layer=True))
    machine.run(method.node, method.module, env, owner=method.owner, self_name=self_name, entry=True)
    machine.answers = {}
    for write in log.writes[written:]:
        write.outer = True
    for events, length in zip(kept, lengths, strict=True):
        del events[length:]


def _setup(
    unit: Unit, machine: Machine, receiver: Value, method: Method, bound: dict[str, Value], analysis: Analysis
) -> None:
    """``setup_context(ctx, inputs, output)``, with keyword-only inputs where the operator has some."""
    names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args, *method.node.args.kwonlyargs)]
    output = analysis.forward_result
    if output is None:
        output = Value(DEVICE, LIVE, roots=frozenset(("output",)))
    output = _as_output(output, machine)
    keywords = dict(bound)
    inputs: list[Value] = []
    if unit.operator is not None or unit.forward:
        node = unit.forward[0].node
        positional = {a.arg for a in (*node.args.posonlyargs, *node.args.args)}
        inputs = [value for name, value in bound.items() if name in positional]
        keywords = {name: value for name, value in bound.items() if name not in positional}
        if node.args.vararg is not None and node.args.vararg.arg in bound:
            star = bound[node.args.vararg.arg]
            places = isinstance(star.ref, Seq) and star.ref.places
            inputs = [value for value in inputs if value is not star]
            inputs_value = Value(HOST, ref=Seq(inputs, machine.element_of(star, node), places=places))
        else:
            inputs_value = Value(HOST, ref=Seq(inputs))
    else:
        item = machine.symbol("inputs[]", "star", "an input", method.module, method.node.lineno)
        inputs_value = Value(HOST, ref=Seq(None, item, places=True))
    env = {names[0]: receiver} if names else {}
    for name in names[1:]:
        if name in ("output", "outputs", "out", "result"):
            env[name] = output
        elif name.startswith("keyword"):
            env[name] = Value(HOST, ref=Seq(None, None, {**keywords}))
        elif name in ("inputs", "args", "input"):
            env[name] = inputs_value
        else:
            env[name] = output if name == names[-1] else inputs_value
    machine.run(method.node, method.module, env, owner=method.owner, entry=True, name=method.node.name)


def _as_output(value: Value, machine: Machine) -> Value:
    ref = value.ref
    if isinstance(ref, Seq):
        items = [_as_output(item, machine) for item in ref.items] if ref.items is not None else None
        rest = _as_output(ref.rest, machine) if ref.rest is not None else None
        return replace(value, ref=Seq(items, rest, ref.keys))
    if value.kinds & UNKNOWN:
        return Value(DEVICE, LIVE, value.deps, value.roots or machine.fresh(), tags=frozenset(("output",)))
    return value.tagged("output") if value.kinds & DEVICE else value


def _backward(unit: Unit, machine: Machine, receiver: Value, analysis: Analysis) -> None:
    log = machine.log
    log.phase = "backward"
    fields: dict[str, Value] = {}
    for write in log.writes:
        if write.phase == "forward":
            known = fields.get(write.field)
            fields[write.field] = write.value if known is None or known is write.value else join(known, write.value)
    for method in unit.backward:
        log.attrs = dict(fields)
        env, skip, self_name = _receiver_env(unit, method, receiver, with_receiver=True)
        env.update(_backward_parameters(unit, method, skip, analysis, machine))
        machine.run(
            method.node, method.module, env, owner=method.owner, self_name=self_name, entry=True, name=method.node.name
        )


def _backward_parameters(
    unit: Unit, method: Method, skip: int, analysis: Analysis, machine: Machine
) -> dict[str, Value]:
    """Gradients are tensors; further parameters of a layer's backward are its live inputs."""
    args = method.node.args
    gradient = Value(DEVICE, LIVE, roots=frozenset(("grad",)))
    live = _live_inputs(analysis, machine)
    env: dict[str, Value] = {}
    names = [a.arg for a in (*args.posonlyargs, *args.args)][skip:]
    many = unit.dialect.name == "chainer"
    switches = options(method.node) if unit.receiver_is_self and not many else frozenset()
    env.update({name: HOST_VALUE for name in names[1:] if name in switches})
    names = [*names[:1], *(name for name in names[1:] if name not in switches)]
    for position, name in enumerate(names):
        value = gradient
        if unit.receiver_is_self and not many and position > 0:
            value = live[position - 1] if position - 1 < len(live) else Value(UNKNOWN, sure=LOW)
        if many:
            value = Value(HOST, ref=Seq(None, gradient))
            if name in ("indexes", "target_input_indexes", "target_indexes"):
                value = Value(HOST, ref=Seq(None, HOST_VALUE))
            elif name in ("inputs", "x"):
                value = Value(HOST, ref=Seq(None, join_all(live) or gradient))
        elif name in ("grads",) and len(names) == 1:
            value = Value(HOST, ref=Seq(None, gradient, mutable=True))
        env[name] = value
    if args.vararg is not None:
        rest = gradient
        if unit.receiver_is_self and names:
            env[args.vararg.arg] = Value(HOST, ref=Seq(live)) if live else Value(HOST, ref=Seq(None, gradient))
            return env
        env[args.vararg.arg] = Value(HOST, ref=Seq(None, rest))
    for keyword in args.kwonlyargs:
        env[keyword.arg] = HOST_VALUE
    if args.kwarg is not None:
        env[args.kwarg.arg] = Value(HOST, ref=Seq(None, None, {}))
    return env


def options(node: FunctionNode) -> frozenset[str]:
    """Parameters with a number, a string or a truth value as their default: switches, and no live inputs."""
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    given = zip(reversed(positional), reversed(args.defaults), strict=False)
    return frozenset(
        parameter.arg
        for parameter, default in given
        if isinstance(default, ast.Constant) and default.value is not None and default.value is not ...
    )


def _live_inputs(analysis: Analysis, machine: Machine) -> list[Value]:
    values = []
    for name in analysis.parameters:
        values.append(
            Value(DEVICE, LIVE, frozenset((name,)), frozenset((f"p:{name}",)), name)
            if name not in machine.settled or machine.settled[name].kinds & DEVICE
            else Value(machine.settled[name].kinds, LIVE, frozenset((name,)))
        )
    return values


def _join_attrs(a: dict[str, Value], b: dict[str, Value]) -> dict[str, Value]:
    result = dict(a)
    for name, value in b.items():
        result[name] = join(result[name], value) if name in result else value
    return result


def _takes_receiver(unit: Unit) -> bool:
    """Whether forward is given the receiver although there is a setup_context (an inherited one, say)."""
    if unit.dialect.name == "torch-library":
        return False
    node = unit.forward[0].node
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return bool(names) and names[0] in ("ctx", "self", "context", "_ctx")


def _receiver_env(
    unit: Unit, method: Method, receiver: Value, with_receiver: bool
) -> tuple[dict[str, Value], int, str]:
    """The receiver's place among the parameters: first, or second behind the class of a classmethod."""
    names = [a.arg for a in (*method.node.args.posonlyargs, *method.node.args.args)]
    if not with_receiver or not names:
        return {}, 0, ""
    classmethod_ = any(isinstance(d, ast.Name) and d.id == "classmethod" for d in method.node.decorator_list)
    # A base class may have it static, for the class methods of its subclasses to call.
    if (classmethod_ or names[:2] == ["cls", "ctx"]) and len(names) > 1 and unit.info is not None:
        return {names[0]: Value(HOST, ref=Cls(unit.info)), names[1]: receiver}, 2, names[0]
    return {names[0]: receiver}, 1, names[0] if unit.receiver_is_self else ""


def _parameters(
    method: Method, machine: Machine, skip: int, prefix: str = "", layer: bool = False, dialect: str = ""
) -> dict[str, Value]:
    """The parameters of a forward as symbols, with what annotations and defaults say."""
    args = method.node.args
    module = method.module
    reader = Reader(machine.project, module)
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    pairs = [*list(zip(positional, defaults, strict=True))[skip:], *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    env: dict[str, Value] = {}
    for position, (parameter, default) in enumerate(pairs):
        name = prefix + parameter.arg
        optional = isinstance(default, ast.Constant) and default.value is None
        why = Why(module.path, parameter.lineno, f"parameter `{parameter.arg}`")
        value = machine.symbol(
            name, "param", f"parameter `{parameter.arg}`", module, parameter.lineno, optional=optional
        )
        symbol = machine.symbols[name]
        if dialect == "chainer" and parameter.annotation is None:
            item = Value(DEVICE, LIVE, frozenset((name,)), frozenset((f"p:{name}",)), None, None, why)
            env[parameter.arg] = Value(HOST, ref=Seq(None, item)) if len(pairs) == 1 else item
            continue
        if parameter.annotation is not None:
            text = code_of(parameter.annotation)
            told = Why(module.path, parameter.lineno, f"parameter `{parameter.arg}` is annotated {text}")
            read = reader.read(parameter.annotation, name, f"p:{name}", told)
            if read is not None:
                none = NONE if optional else 0
                if read.kinds & DEVICE and read.ref is None:
                    info = reader.class_of(parameter.annotation)
                    if info is not None:
                        machine.tensor_classes[name] = info
                symbol.note(DEVICE if read.kinds & DEVICE or isinstance(read.ref, Seq) else HOST, DECISIVE, told)
                env[parameter.arg] = replace(read, kinds=read.kinds | none)
                continue
        if default is not None and not optional:
            literal = default.value if isinstance(default, ast.Constant) else None
            if isinstance(literal, (int, float, str, bytes, complex)) or isinstance(default, (ast.UnaryOp, ast.Tuple)):
                text = code_of(default)
                symbol.note(
                    HOST, STRONG, Why(module.path, parameter.lineno, f"`{parameter.arg}` has the default {text}")
                )
        if isinstance(default, ast.Name):
            standard = machine.global_name(module, default.id)
            if standard is not None and isinstance(standard.ref, (Func, Cls)):
                env[parameter.arg] = standard
                continue
        if layer and not prefix and default is None:
            symbol.note(
                DEVICE,
                STRONG if position == 0 else FAIR,
                Why(module.path, parameter.lineno, f"`{parameter.arg}` is an input of the layer's forward"),
            )
        env[parameter.arg] = value
    if args.vararg is not None:
        name = f"{prefix}*{args.vararg.arg}"
        read = reader.read(args.vararg.annotation, name, f"p:{name}", Why(module.path, args.vararg.lineno, "annotated"))
        if read is not None and isinstance(read.ref, Seq):
            read = read.ref.element()  # `*args: Tuple[Tensor, ...]` means the tuple of all
        item = read or machine.symbol(name, "star", f"an item of `*{args.vararg.arg}`", module, args.vararg.lineno)
        env[args.vararg.arg] = Value(HOST, ref=Seq(None, item, places=read is None))
    if args.kwarg is not None:
        name = f"{prefix}**{args.kwarg.arg}"
        item = machine.symbol(name, "kwarg", f"a value of `**{args.kwarg.arg}`", module, args.kwarg.lineno)
        env[args.kwarg.arg] = Value(HOST, ref=Seq(None, item, {}, True, places=True))
    return env


# -- settling --------------------------------------------------------------------------------------------------------


def _settle(unit: Unit, first: Analysis, project: Project) -> dict[str, Outcome]:
    machine = first.machine
    _note_gradients(unit, first)
    open_names = [n for n, s in machine.symbols.items() if s.kind in ("param", "star") and not _decided(machine, n)]
    if open_names and unit.info is not None and unit.dialect.entry:
        callers.note_callers(unit, machine, project)
    settled: dict[str, Outcome] = {}
    for name, symbol in list(machine.symbols.items()):
        outcome = settle(symbol)
        if not outcome.kinds or (_only_hints(symbol) and suggests(name) == DEVICE):
            if symbol.kind in ("result", "item") and not symbol.prior and suggests(symbol.target) != HOST:
                # What it was given was open when it was called; now it is known.
                item = symbol.kind == "item" and "[" in name
                whole = machine.symbols.get(name[: name.rindex("[")]) if item else symbol
                for parameter in whole.given if whole is not None else ():
                    known = settled.get(parameter)
                    if known is not None and known.kinds & DEVICE and known.sure > LOW:
                        symbol.prior = DEVICE
            outcome = _fallback(name, symbol.kind, machine)
        settled[name] = outcome
    for name, items in list(settled.items()):
        # A container with a tensor in it counts as one.
        if items.kinds & DEVICE and items.sure > LOW and name.endswith("]"):
            owner = name[: name.rindex("[")]
            if owner in settled and not settled[owner].kinds & DEVICE:
                settled[owner] = Outcome(DEVICE | HOST | settled[owner].kinds, items.sure, items.why)
    return settled


def _decided(machine: Machine, name: str) -> bool:
    symbol = machine.symbols[name]
    return any(strength >= DECISIVE for strength, _ in symbol.best.values())


def _only_hints(symbol: Symbol) -> bool:
    """Whether all that speaks is as good as nothing: a missing gradient, a comparison."""
    return symbol.kind == "param" and all(strength <= HINT for strength, _ in symbol.best.values())


def _fallback(name: str, kind: str, machine: Machine) -> Outcome:
    """Nothing in the code decides: the name breaks the tie, and the verdict says so."""
    symbol = machine.symbols[name]
    where = (symbol.path, symbol.line)
    optional = NONE if symbol.optional else 0
    if kind == "star":
        return Outcome(DEVICE | HOST, LOW, Why(*where, f"{symbol.label}: callers may pass tensors"))
    if kind == "place" and name.startswith("*"):
        owner, key = name.partition("[")[0], name.rpartition("[")[2].rstrip("]")
        named = not key.lstrip("-").isdigit() and bool(suggests(key))
        if owner in machine.symbols and not owner.startswith("**") and not symbol.foreign and not named:
            whole = settle(machine.symbols[owner])
            return whole if whole.kinds else _fallback(owner, "star", machine)
        name = key
    if kind == "place":
        hint = symbol.label.strip("`")
        name = hint if hint.isidentifier() else name
    if kind in ("result", "item") and symbol.prior == DEVICE:
        told = f"{symbol.label}, whose code is not here, was given tensors"
        return Outcome(DEVICE | optional, MEDIUM, Why(*where, told))
    if kind == "result":
        side = DEVICE if symbol.prior != HOST and suggests(name.partition("(")[0]) == DEVICE else HOST
        return Outcome(side | optional, LOW, Why(*where, f"{symbol.label}: nothing shows what it is"))
    if kind == "free":
        name = name.removeprefix("free ")
    side = suggests(name.replace("[]", ""))
    if side:
        what = "a tensor" if side == DEVICE else "a host value"
        return Outcome(side | optional, LOW, Why(*where, f"{symbol.label}: only its name suggests {what}"))
    if kind in ("attr", "self", "item", "kwarg"):
        return Outcome(HOST | optional, LOW, Why(*where, f"{symbol.label}: nothing uses it as a tensor"))
    return Outcome(HOST | optional, LOW, Why(*where, f"{symbol.label}: nothing uses it as a tensor"))


def _note_gradients(unit: Unit, first: Analysis) -> None:
    """What backward returns in a parameter's position: a gradient speaks for a tensor, None a little for a host value."""
    machine = first.machine
    names = first.parameters
    if unit.receiver_is_self or not names:
        return
    returned = [r for r in machine.log.returns if r.phase == "backward"]
    columns: dict[int, list[Value]] = {}
    for event in returned:
        ref = event.value.ref
        if isinstance(ref, Seq) and ref.items is not None:
            for position, item in enumerate(ref.items):
                columns.setdefault(position, []).append(item)
        elif not isinstance(ref, Seq) and event.value.kinds & DEVICE and len(names) >= 1:
            columns.setdefault(0, []).append(event.value)
    for position, values in columns.items():
        if position >= len(names) or names[position] not in machine.symbols:
            continue
        symbol = machine.symbols[names[position]]
        line = returned[0].node.lineno
        path = returned[0].file
        if any(carried(v).kinds & DEVICE for v in values):
            symbol.note(DEVICE, STRONG, Why(path, line, f"backward returns a gradient for `{names[position]}`"))
        elif any(v.kinds & UNKNOWN for v in values):
            symbol.note(DEVICE, WEAK, Why(path, line, f"backward returns something for `{names[position]}`"))
        else:
            symbol.note(HOST, HINT, Why(path, line, f"backward returns None for `{names[position]}`"))
