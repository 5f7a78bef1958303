"""The forward side: attributes become locals, and one call saves them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cachelint.fix.edits import WIDTH, After, Before, Edit, Extend, Replace, Rewrite, Span, Text, assigned, laid_out
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.functions.flow import Flow
from cachelint.fix.functions.scope import Routine, Use
from cachelint.index.walk import walk, within


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of the save call: the code that gives it in forward, and the name it would like in backward."""

    code: str
    name: str
    star: bool = False
    only: str = ""
    """The class of tensors, where the value may be something else, which is not saved."""

    @property
    def argument(self) -> str:
        """As an argument of the call."""
        if self.only:
            return f"{self.code} if isinstance({self.code}, {self.only}) else None"
        return f"*{self.code}" if self.star else self.code


@dataclass(frozen=True, slots=True)
class Pair:
    """One write as target and value: of ``ctx.a, ctx.b = a, b`` there are two. ``value`` is None where the target gets
    its value in another way (a loop, an unpacking, a context manager)."""

    use: Use
    statement: ast.stmt
    value: ast.expr | None
    plain: bool


@dataclass
class Placement:
    """Where the tensors are saved. ``kind``: ``after`` a statement of the body, ``extend`` the present calls, ``move``
    the present call behind a statement, ``collect`` in front of each return."""

    kind: str
    index: int
    calls: tuple[ast.Call, ...] = ()
    dead: tuple[ast.Call, ...] = ()


@dataclass
class Site:
    """The function that writes the fields and saves. Fill it with :meth:`local`, then :meth:`save` once a channel."""

    routine: Routine
    text: Text
    edits: list[Edit] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    inits: list[str] = field(default_factory=list)
    dropped: set[ast.stmt] = field(default_factory=set)
    pairs_dropped: dict[ast.stmt, set[int]] = field(default_factory=dict)
    handed: dict[str, tuple[ast.Call, ast.expr, Use]] = field(default_factory=dict)
    """Fields that a helper writes from one of its arguments: the call, the argument, the write."""

    @property
    def flow(self) -> Flow:
        """What is bound where."""
        return self.routine.flow

    counts: list[str] = field(default_factory=list)
    """Statements in front of the save: what stays on the receiver of the values that are saved, their number included."""
    in_helper: dict[str, tuple[ast.stmt, int]] = field(default_factory=dict)
    helper_drops: dict[ast.stmt, set[int]] = field(default_factory=dict)

    def tops(self, name: str) -> list[int]:
        """The indices of the statements of the body that write a field."""
        if name in self.handed:
            return [self.flow.top(self.handed[name][0])]
        return [self.flow.top(use.node) for use in self.routine.of("store", name)]

    def writes(self, name: str) -> bool:
        """Whether this forward writes a field."""
        return name in self.handed or bool(self.routine.of("store", name))

    # -- where -------------------------------------------------------------------------------------------------------

    def pairs(self, name: str) -> list[Pair]:
        """The writes of a field."""
        if name in self.handed:
            call, argument, use = self.handed[name]
            return [Pair(use, self.flow.statement(call), argument, True)]
        return [self.pair(use) for use in self.routine.of("store", name)]

    def pair(self, use: Use) -> Pair:
        """One write taken apart."""
        statement = self.flow.statement(use.node)
        if isinstance(use.node, ast.Call):  # setattr
            value = use.node.args[2] if len(use.node.args) > 2 else None
            return Pair(use, statement, value, isinstance(statement, ast.Expr) and statement.value is use.node)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if target is use.node:
                return Pair(use, statement, statement.value, True)
            place = _position(target, use.node, statement.value)
            if place is not None:
                assert isinstance(statement.value, (ast.Tuple, ast.List))
                return Pair(use, statement, statement.value.elts[place], True)
        if isinstance(statement, ast.AnnAssign) and statement.target is use.node:
            return Pair(use, statement, statement.value, True)
        return Pair(use, statement, None, False)

    def placement(self, api: str, indices: Sequence[int]) -> Placement:
        """Where to save what is bound by the statements of the body at ``indices``. Raises CannotPlan."""
        flow = self.flow
        last = max(indices, default=flow.first - 1)
        calls = [use.node for use in self.routine.of("save", api)]
        for use in self.routine.of("save", api):
            statement = flow.statement(use.node)
            if (
                use.nested
                or flow.in_loop(use.node)
                or not (isinstance(statement, ast.Expr) and statement.value is use.node)
            ):
                raise CannotPlan(
                    f"{api} is called in a nested function or a loop (line {use.node.lineno})", "save in a loop"
                )
        early = any(flow.top(item) <= last for item in flow.returns)
        statements = [flow.statement(call) for call in calls]
        tops = [flow.top(s) for s in statements]
        dead: list[ast.Call] = []
        if len(calls) > 1 and all(flow.is_top(s) for s in statements):
            if not any(tops[0] <= flow.top(item) <= tops[-1] for item in flow.returns):
                dead = calls[:-1]  # type: ignore[assignment]
                calls, statements, tops = calls[-1:], statements[-1:], tops[-1:]
        gone = tuple(dead)
        if not calls:
            if early or last < flow.first:
                return Placement("collect", last)
            return Placement("after", last)
        own = tuple(call for call in calls if isinstance(call, ast.Call))
        if len(calls) == 1 and flow.is_top(statements[0]) and not any(flow.top(r) < tops[0] for r in flow.returns):
            if last < tops[0]:
                return Placement("extend", tops[0], own, gone)
            names = {n.id for n in walk(own[0]) if isinstance(n, ast.Name)}
            moves = any(flow.rebound_between(name, tops[0], last) for name in names)
            if not early and not moves:
                return Placement("move", last, own, gone)
            return Placement("collect", last, own, gone)
        before, end = flow.surely(set(statements))
        always = all(before.get(item, False) for item in flow.returns) and end is not False
        if always and last < min(tops) and _exclusive(statements, flow.parents):
            return Placement("extend", min(tops), own, gone)
        return Placement("collect", last, own, gone)

    def stable(self, name: str) -> int | None:
        """For a field that merely repeats a local that is never bound again: the index of the statement of the body
        that binds the local last (-1 for a parameter). Such a field can be saved anywhere behind that."""
        flow = self.flow
        pairs = self.pairs(name)
        if len(pairs) != 1 or not pairs[0].plain or not self.surely(pairs[0]):
            return None
        value = pairs[0].value
        if not isinstance(value, ast.Name) or not (value.id in flow.parameters or value.id in flow.bindings):
            return None
        bindings = flow.bindings.get(value.id, [])
        if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in bindings):
            return None
        index = flow.top(pairs[0].statement)
        places = [flow.top(node) for node in bindings]
        return max(places, default=-1) if all(0 <= place < index for place in places) else None

    # -- locals ------------------------------------------------------------------------------------------------------

    def direct(self, name: str, place: Placement) -> str | None:
        """The local that a field merely repeats (``ctx.x = x``), when that local still has the value where it is saved
        and wherever forward reads the attribute."""
        flow = self.flow
        pairs = self.pairs(name)
        if len(pairs) != 1 or not pairs[0].plain:
            return None
        pair = pairs[0]
        if not isinstance(pair.value, ast.Name) or not self.surely(pair):
            return None
        local = pair.value.id
        if local not in flow.parameters and local not in flow.bindings:
            return None
        if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in flow.bindings.get(local, ())):
            return None
        index = flow.top(pair.statement)
        last = max([place.index, *(flow.top(use.node) for use in self.routine.of("load", name))])
        if place.kind == "collect" and not self.bound_at_returns(local):
            return None
        end = len(flow.node.body) if place.kind == "collect" else last
        return None if flow.rebound_between(local, index, end) else local

    def bound_at_returns(self, name: str) -> bool:
        """Whether a name has a value wherever forward leaves: an early return may come before it is bound."""
        flow = self.flow
        if name in flow.parameters:
            return True
        before, _ = flow.surely({flow.statement(node) for node in flow.bindings.get(name, ())})
        return all(before.get(item, False) for item in flow.returns)

    def surely(self, pair: Pair) -> bool:
        """Whether a write is as good as unconditional: it stands in the body, or under a test of its own value for
        None (``if bias is not None: ctx.bias = bias``) that has more to do."""
        flow = self.flow
        if flow.is_top(pair.statement):
            return True
        parent = flow.parents.get(pair.statement)
        if not isinstance(parent, ast.If) or not flow.is_top(parent) or pair.statement not in parent.body:
            return False
        test = parent.test
        known = (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.ops[0], ast.IsNot)
            and isinstance(test.comparators[0], ast.Constant)
            and test.comparators[0].value is None
            and isinstance(test.left, ast.Name)
            and isinstance(pair.value, ast.Name)
            and test.left.id == pair.value.id
        )
        return known and len(parent.body) > 1 and not flow.bindings.get(pair.value.id)  # type: ignore[union-attr]

    def local(self, name: str, place: Placement, empty: str = "None", stays: Callable[[str], str] | None = None) -> str:
        """Turn a field into a local of forward; its name. ``empty`` is its value where a path does not set it.
        ``stays`` gives what the attribute keeps of the local, if it keeps something."""
        direct = self.direct(name, place)
        if direct is not None:
            (pair,) = self.pairs(name)
            if stays is not None and self.always(pair) and "\n" not in stays(direct):
                assert pair.value is not None
                self.edits.append(Replace(self.text.span(pair.value), stays(direct)))
            else:
                self.drop(pair)
                if stays is not None:
                    self.counts.append(assigned(f"{self.routine.receiver}.{name}", stays(direct)))
            self.replace_loads(name, direct)
            return direct
        local = self._local(name, place, empty)
        if stays is not None:
            self.counts.append(assigned(f"{self.routine.receiver}.{name}", stays(local)))
        return local

    def always(self, pair: Pair) -> bool:
        """Whether every call that ends well carries out a write."""
        flow = self.flow
        index = flow.top(pair.statement)
        own = pair.use.field not in self.handed and not isinstance(pair.use.node, ast.Call)
        return own and flow.is_top(pair.statement) and not any(flow.top(item) < index for item in flow.returns)

    def _local(self, name: str, place: Placement, empty: str) -> str:
        local = self.flow.fresh(name, self.taken)
        self.taken.add(local)
        if name in self.handed:
            call, argument, _ = self.handed[name]
            statement = self.text.span(self.flow.statement(call))
            self.edits.append(Before(statement, (f"{local} = {self.text.source(argument)}",)))
            self.edits.append(Replace(self.text.span(argument), local))
            self.drop(self.pairs(name)[0])
            self.replace_loads(name, local)
            self.ensure(local, [self.flow.statement(call)], place, empty)
            return local
        for pair in self.pairs(name):
            if isinstance(pair.use.node, ast.Call):
                value = self.text.source(pair.use.node.args[2])
                self.edits.append(Rewrite(self.text.span(pair.statement), (f"{local} = {value}",)))
            else:
                self.edits.append(Replace(self.text.span(pair.use.node), local))
        self.replace_loads(name, local)
        self.ensure(local, [pair.statement for pair in self.pairs(name)], place, empty)
        return local

    def replace_loads(self, name: str, code: str) -> None:
        """Reads of the attribute in forward become reads of a local."""
        for use in self.routine.of("load", name):
            parent = self.flow.parents.get(use.node)
            if not (isinstance(parent, ast.AugAssign) and parent.target is use.node):
                self.edits.append(Replace(self.text.span(use.node), code))

    def ensure(self, local: str, statements: Sequence[ast.stmt], place: Placement, empty: str = "None") -> None:
        """Give a local the value ``empty`` at the top where some path to the save does not bind it."""
        before, end = self.flow.surely(set(statements))
        body = self.flow.node.body
        if place.kind == "collect":
            sure = all(before.get(item, False) for item in self.flow.returns) and end is not False
        elif place.kind == "extend":
            sure = all(before.get(self.flow.statement(call), False) for call in place.calls)
        else:
            following = body[place.index + 1 :]
            sure = bool(before.get(following[0], False)) if following else bool(end)
        if not sure:
            self.inits.append(f"{local} = {empty}")

    def drop(self, pair: Pair) -> None:
        """Take a write out."""
        if pair.use.field in self.handed:
            statement, values = self.in_helper[pair.use.field]
            self.helper_drops.setdefault(statement, set()).add(values)
            return
        statement = pair.statement
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Tuple, ast.List)):
            place = statement.targets[0].elts.index(pair.use.node)
            self.pairs_dropped.setdefault(statement, set()).add(place)
        else:
            self.dropped.add(statement)

    # -- the call ----------------------------------------------------------------------------------------------------

    def save(self, api: str, slots: Sequence[Slot], place: Placement, front: bool) -> None:
        """Put the slots into the save call."""
        receiver = self.routine.receiver
        arguments = tuple(slot.argument for slot in slots)
        flow = self.flow
        column = self.text.span(flow.node.body[0]).column
        for call in place.dead:
            self.dropped.add(flow.statement(call))
        if place.kind == "extend":
            for call in place.calls:
                self.edits.append(self.extended(call, arguments, front))
                if self.counts:
                    self.edits.append(Before(self.text.span(flow.statement(call)), tuple(self.counts)))
        elif place.kind == "move":
            old = [self.text.source(arg) for arg in place.calls[0].args]
            every = [*arguments, *old] if front else [*old, *arguments]
            self.dropped.add(flow.statement(place.calls[0]))
            self.behind(place.index, (*self.counts, laid_out(f"{receiver}.{api}(", every, ")", column)))
        elif place.kind == "after":
            self.behind(place.index, (*self.counts, laid_out(f"{receiver}.{api}(", arguments, ")", column)))
        else:
            self.collect(api, arguments, place, front)

    def extended(self, call: ast.Call, arguments: tuple[str, ...], front: bool) -> Edit:
        """More arguments of a call; one line that would grow too long becomes several."""
        statement = self.text.span(self.flow.statement(call))
        line = self.text.lines[statement.line - 1]
        long = len(line.rstrip()) + len(", ".join(arguments)) + 2 > WIDTH
        inner = any(use.kind == "load" and within(use.node, call) for use in self.routine.uses)
        if not long or inner or call.keywords or statement.line != statement.end_line or "#" in line or ";" in line:
            return Extend(self.text.span(call), arguments, front)
        old = [self.text.source(arg) for arg in call.args]
        every = [*arguments, *old] if front else [*old, *arguments]
        return Rewrite(statement, (laid_out(f"{self.text.source(call.func)}(", every, ")", statement.column),))

    def behind(self, index: int, lines: tuple[str, ...]) -> None:
        """Statements behind one of the body's."""
        self.edits.append(After(self.text.span(self.flow.node.body[index]), lines))

    def collect(self, api: str, arguments: tuple[str, ...], place: Placement, front: bool) -> None:
        """Save in front of every return; what the present calls save waits in a local until then."""
        flow, receiver = self.flow, self.routine.receiver
        every = list(arguments)
        if place.calls:
            waiting = flow.fresh("to_save", self.taken)
            self.taken.add(waiting)
            for call in place.calls:
                own = self.text.span(flow.statement(call))
                items = [self.text.source(arg) for arg in call.args]
                code = (
                    f"{waiting} = ({items[0]},)"
                    if len(items) == 1
                    else laid_out(f"{waiting} = (", items, ")", own.column)
                )
                self.edits.append(Rewrite(own, (code,)))
            before, end = flow.surely({flow.statement(call) for call in place.calls})
            if end is False or not all(before.get(item, False) for item in flow.returns):
                self.inits.append(f"{waiting} = ()")
            every = [*every, f"*{waiting}"] if front else [f"*{waiting}", *every]
        head = f"{receiver}.{api}("
        bottom = len(flow.node.body) - 1
        saved_above = place.index < bottom and all(flow.top(call) < bottom for call in place.calls)
        if len(flow.returns) > 1 and saved_above and all(flow.top(item) == bottom for item in flow.returns):
            # Every way out leads through the last statement of the body: once in front of it is enough.
            span = self.text.span(flow.node.body[bottom])
            self.edits.append(Before(span, (*self.counts, laid_out(head, every, ")", span.column))))
            return
        for item in flow.returns:
            span = self.text.span(item)
            self.edits.append(Before(span, (*self.counts, laid_out(head, every, ")", span.column))))
        _, end = flow.surely(set())
        if end is not None:
            span = self.text.span(flow.node.body[-1])
            self.edits.append(After(span, (*self.counts, laid_out(head, every, ")", span.column))))

    def finish(self) -> list[Edit]:
        """All edits of this side."""
        text, flow = self.text, self.flow
        for statement, places in self.pairs_dropped.items():
            assert isinstance(statement, ast.Assign)
            target, value = statement.targets[0], statement.value
            assert isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))  # noqa: PT018
            left = [n for n in range(len(target.elts)) if n not in places]
            if not left:
                self.dropped.add(statement)
                continue
            inner = {e.span: e.code for e in self.edits if isinstance(e, Replace)}
            own = text.span(statement)
            targets = ", ".join(text.source(target.elts[n], inner) for n in left)
            values = ", ".join(text.source(value.elts[n], inner) for n in left)
            self.edits = [e for e in self.edits if not (isinstance(e, Replace) and own.covers(e.span))]
            self.edits.append(Rewrite(own, (f"{targets} = {values}",)))
        self.edits += [Rewrite(text.span(statement)) for statement in self.helper_drops]
        for statement in self.dropped:
            span = text.span(statement)
            self.edits = [e for e in self.edits if not (isinstance(e, (Replace, Extend)) and span.covers(e.span))]
            self.edits.append(Rewrite(span))
        if self.inits:
            anchor = flow.node.body[min(flow.first, len(flow.node.body) - 1)]
            self.edits.append(Before(text.span(anchor), tuple(self.inits)))
        return self.edits


def _position(target: ast.expr, node: ast.expr, value: ast.expr) -> int | None:
    """The index of ``node`` in a tuple target whose value is a tuple of the same length."""
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, (ast.Tuple, ast.List)):
        return None
    every = [*target.elts, *value.elts]
    if len(target.elts) != len(value.elts) or any(isinstance(item, ast.Starred) for item in every):
        return None
    return target.elts.index(node) if node in target.elts else None


def _exclusive(statements: Sequence[ast.stmt], parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether no two of the statements can run in one call: they stand in different arms of an ``if``."""
    paths = [_arms(statement, parents) for statement in statements]
    for number, one in enumerate(paths):
        for other in paths[number + 1 :]:
            if not any(key in other and other[key] != arm for key, arm in one.items()):
                return False
    return True


def _arms(statement: ast.stmt, parents: dict[ast.AST, ast.AST]) -> dict[ast.AST, str]:
    arms: dict[ast.AST, str] = {}
    current: ast.AST = statement
    while current in parents:
        parent = parents[current]
        if isinstance(parent, ast.If):
            arms[parent] = "then" if current in parent.body else "else"
        current = parent
    return arms


def outer_span(text: Text, node: ast.AST) -> Span:
    """The span of a whole function, for plans to claim."""
    return text.span(node)
