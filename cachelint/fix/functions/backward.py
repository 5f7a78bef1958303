"""The backward side: the saved tensors are unpacked once, and reads of the attributes become reads of locals."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.fix.edits import WIDTH, After, Before, Edit, Extend, Replace, Rewrite, Span, Text, laid_out
from cachelint.fix.functions.fields import CannotPlan, changed_line
from cachelint.fix.functions.flow import Flow
from cachelint.fix.functions.scope import Routine, Use
from cachelint.index.walk import walk


@dataclass
class Reader:
    """A function that unpacks. ``names`` maps each moved field to the code that reads it from then on."""

    routine: Routine
    text: Text
    edits: list[Edit] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    dropped: set[ast.stmt] = field(default_factory=set)
    pairs_dropped: dict[ast.stmt, set[int]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    loads: list[ast.expr] = field(default_factory=list)
    tuples: set[str] = field(default_factory=set)
    whole: dict[str, str] = field(default_factory=dict)
    run: str | None = None
    """The field that is a run of tensors, if one is."""
    lent: Sequence[tuple[ast.Call, str]] = ()
    """Calls of helpers that are given what is saved, by which parameter."""
    chained: dict[ast.Assign, list[ast.expr]] = field(default_factory=dict)

    @property
    def flow(self) -> Flow:
        """What is bound where."""
        return self.routine.flow

    # -- names -------------------------------------------------------------------------------------------------------

    def alias(self, name: str) -> tuple[ast.stmt, ast.Name] | None:
        """``n = ctx.name``, where ``n`` may be the name that the value is unpacked to: the statement and its target."""
        flow = self.flow
        loads = self.routine.of("load", name)
        for use in loads:
            found = self._pair(use)
            if found is None:
                continue
            statement, target = found
            if not flow.is_top(statement) or target.id in self.taken or target.id in flow.parameters:
                continue
            bindings = flow.bindings.get(target.id, [])
            place = flow.top(statement)
            if any(not isinstance(node, ast.Name) for node in bindings):
                continue
            others = [node for node in bindings if node is not target]
            if any(flow.top(node) <= place for node in others):
                continue
            if others and len(loads) > 1:
                continue
            if any(flow.top(node) < place for node in flow.loads(target.id)):
                continue
            return statement, target
        return None

    def _pair(self, use: Use) -> tuple[ast.stmt, ast.Name] | None:
        """The name that an assignment gives exactly this read to."""
        statement = self.flow.statement(use.node)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return None
        target, value = statement.targets[0], statement.value
        if value is use.node and isinstance(target, ast.Name):
            return statement, target
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            every = [*target.elts, *value.elts]
            if len(target.elts) == len(value.elts) and not any(isinstance(e, ast.Starred) for e in every):
                if use.node in value.elts:
                    own = target.elts[value.elts.index(use.node)]
                    return (statement, own) if isinstance(own, ast.Name) else None
        return None

    def bind(self, name: str, wanted: str | None = None) -> str:
        """Choose the local that stands for a field, and make its reads read it."""
        found = self.alias(name)
        if found is not None:
            statement, target = found
            local = target.id
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.dropped.add(statement)
            else:
                assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Tuple, ast.List))  # noqa: PT018
                self.pairs_dropped.setdefault(statement, set()).add(statement.targets[0].elts.index(target))
        else:
            local = self.flow.fresh(wanted or name, self.taken)
        self.taken.add(local)
        self.replace(name, local, found[0] if found else None)
        return local

    def replace(self, name: str, code: str, gone: ast.stmt | None = None) -> None:
        """Reads and later writes of an attribute become those of a local; clean-ups go."""
        flow = self.flow
        loads = self.routine.of("load", name)
        self.loads += [use.node for use in loads]
        self.check_kept(name)
        for use in loads:
            parent = flow.parents.get(use.node)
            if isinstance(parent, ast.AugAssign) and parent.target is use.node:
                continue  # `ctx.x += g` is among the stores too; `g += ctx.x` is not
            self.edits.append(Replace(self.text.span(use.node), code))
        for use in self.routine.of("store", name):
            statement = flow.statement(use.node)
            if _is_cleanup(statement, use.node):
                # `x, ctx.x = ctx.x, None` reads first.
                later = [load.node for load in loads if flow.statement(load.node) is not statement]
                if not _other_arm(flow, statement, later):
                    raise CannotPlan(
                        f"backward clears it and reads it again (line {use.node.lineno})", "read after clean-up", name
                    )
                if flow.in_loop(use.node):
                    raise CannotPlan(
                        f"backward clears it in a loop (line {use.node.lineno})", "read after clean-up", name
                    )
                self.clear(statement, use.node)
            elif isinstance(use.node, ast.Call):
                raise CannotPlan(f"backward sets it with setattr (line {use.node.lineno})", "indirect write", name)
            else:
                self.edits.append(Replace(self.text.span(use.node), code))
        for use in self.routine.of("delete", name):
            if not _other_arm(flow, flow.statement(use.node), [load.node for load in loads]):
                raise CannotPlan(
                    f"backward deletes it and reads it again (line {use.node.lineno})", "read after clean-up", name
                )
            self.clear(flow.statement(use.node), use.node)

    def check_kept(self, name: str) -> None:
        """Raise CannotPlan where clearing a field is what stops a second backward from using what the first changed."""
        stores = [use.node for use in self.routine.of("store", name)]
        cleared = any(_is_cleanup(self.flow.statement(node), node) for node in stores)
        line = changed_line(name, self.routine) if cleared or self.routine.of("delete", name) else 0
        if line:
            raise CannotPlan(
                f"backward changes it in place (line {line}) and clears it, so that a second backward stops; saved, it "
                "would be there again",
                "changed in backward",
                name,
            )

    def clear(self, statement: ast.stmt, node: ast.expr) -> None:
        """Take ``ctx.f = None`` or ``del ctx.f`` out; ``ctx.f = ctx.g = None`` and ``del ctx.f, x`` keep the rest."""
        if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
            self.chained.setdefault(statement, []).append(node)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) and not _tuple_target(statement):
            self.dropped.add(statement)
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
            assert isinstance(target, (ast.Tuple, ast.List))
            self.pairs_dropped.setdefault(statement, set()).add(target.elts.index(node))
        elif isinstance(statement, ast.Delete):
            self.pairs_dropped.setdefault(statement, set()).add(statement.targets.index(node))

    # -- unpacking ---------------------------------------------------------------------------------------------------

    def unpack(self, names: Sequence[str], front: bool, read: str, saved_before: bool) -> None:
        """Bind ``names`` (with a ``*`` where one takes a run) from what is read back, then run ``self.lines``.

        ``read`` is the code that reads back; ``saved_before`` says whether anything else is saved.
        """
        flow, text = self.flow, self.text
        uses = self.routine.of("saved")
        statements = [flow.statement(use.node) for use in uses]
        if not names and not self.lines:
            return
        if self.lent:
            self.hoist(names, front, read)
            return
        if not uses:
            targets = [*names, "*_"] if saved_before and front else ["*_", *names] if saved_before else list(names)
            if len(targets) == 1 and targets[0].startswith("*") and targets[0] != "*_":
                local = targets[0][1:]
                self.lines = [line for line in self.lines if line != f"{local} = tuple({local})"]
                self.at_top((f"{local} = {read}" if local in self.tuples else f"{local} = list({read})",))
                return
            self.at_top(() if not names else (self.unpacking(targets, read),))
            return
        targets_of = [_unpacking(statement, use.node) for statement, use in zip(statements, uses, strict=True)]
        if all(t is not None and not self.flow.nested(use.node) for t, use in zip(targets_of, uses, strict=True)):
            known = [t for t in targets_of if t is not None]
            if any(isinstance(e, ast.Starred) for t in known for e in t.elts) and any(n.startswith("*") for n in names):
                raise CannotPlan(
                    "two runs of tensors of unknown length would have to be told apart", "two runs", self.run
                )
            if len(uses) == 1 and flow.is_top(statements[0]):
                if self.reads_after(flow.top(statements[0])):
                    self.extend(known, names, front)
                    if self.lines:
                        self.edits.append(After(text.span(statements[0]), tuple(self.lines)))
                    return
                if self.moves_up(statements[0], known[0]):
                    old = [text.source(e) for e in known[0].elts]
                    self.dropped.add(statements[0])
                    every = [*names, *old] if front else [*old, *names]
                    self.at_top((self.unpacking(every, read),))
                    return
            elif self.dominated(statements) and not self.lines:
                self.extend(known, names, front)
                return
        self.hoist(names, front, read)

    def unpacking(self, names: Sequence[str], read: str) -> str:
        """The statement that unpacks, in several lines where it is long."""
        column = self.text.span(self.flow.node.body[0]).column
        line = f"{_targets(names)} = {read}"
        return line if column + len(line) <= WIDTH else laid_out("(", names, f") = {read}", column)

    def at_top(self, lines: Sequence[str]) -> None:
        """Statements in front of the first one of the body, ``self.lines`` behind them."""
        body = self.flow.node.body
        every = (*lines, *self.lines)
        if not every:
            return
        if self.flow.first < len(body):
            self.edits.append(Before(self.text.span(body[self.flow.first]), every))
        else:
            self.edits.append(After(self.text.span(body[-1]), every))

    def extend(self, targets: Sequence[ast.Tuple | ast.List], names: Sequence[str], front: bool) -> None:
        """Add names to the present unpackings."""
        text = self.text
        for target in targets if names else ():
            statement = self.flow.statement(target)
            span = text.span(statement)
            line = text.lines[span.line - 1]
            long = span.line == span.end_line and len(line.rstrip()) + len(", ".join(names)) + 2 > WIDTH
            if not long or "#" in line or ";" in line or not isinstance(statement, ast.Assign):
                self.edits.append(Extend(text.span(target), tuple(names), front))
                continue
            old = [text.source(element) for element in target.elts]
            every = [*names, *old] if front else [*old, *names]
            head = laid_out("(", every, f") = {text.source(statement.value)}", span.column)
            self.edits.append(Rewrite(span, (head,)))

    def reads_after(self, index: int) -> bool:
        """Whether every read of a moved field comes behind the statement of the body at ``index``."""
        return all(self.flow.top(node) > index for node in self.loads)

    def dominated(self, statements: Sequence[ast.stmt]) -> bool:
        """Whether one of the unpackings has surely run before every read."""
        before, _ = self.flow.surely(set(statements))
        return all(before.get(self.flow.statement(node), False) and not self.flow.nested(node) for node in self.loads)

    def moves_up(self, statement: ast.stmt, target: ast.Tuple | ast.List) -> bool:
        """Whether an unpacking may run first: nothing before it uses the names that it binds."""
        flow = self.flow
        index = flow.top(statement)
        names = {n.id for n in walk(target) if isinstance(n, ast.Name)}
        if any(not isinstance(n, (ast.Name, ast.Starred, ast.expr_context)) for e in target.elts for n in walk(e)):
            return False
        if any(flow.top(r) < index for r in flow.returns):
            return False
        for earlier in flow.node.body[:index]:
            for node in walk(earlier):
                if isinstance(node, ast.Name) and node.id in names - {"_"}:
                    return False
        return not names & flow.parameters

    def hoist(self, names: Sequence[str], front: bool, read: str) -> None:
        """Read back once, at the top, into a local; what the code read before is a part of it."""
        count = len(names)
        if not names:
            raise CannotPlan("what is saved is read back in several ways", "read back in several ways")
        if any(name.startswith("*") for name in names):
            raise CannotPlan(
                "what is saved is read back in several ways, and a run of tensors can't be told apart",
                "two runs",
                self.run,
            )
        whole = self.flow.fresh("saved", self.taken)
        self.taken.add(whole)
        mine, rest = (
            (f"{whole}[:{count}]", f"{whole}[{count}:]") if front else (f"{whole}[-{count}:]", f"{whole}[:-{count}]")
        )
        uses = self.routine.of("saved")
        for use in uses:
            parent = self.flow.parents.get(use.node)
            plain = isinstance(parent, ast.Subscript) and front is False and _literal_index(parent)
            self.edits.append(Replace(self.text.span(use.node), whole if plain else rest))
        self.give(rest)
        single = f"{names[0]} = {whole}[{0 if front else -1}]"
        own = single if count == 1 else self.unpacking(names, mine)
        self.at_top((f"{whole} = {read}", own))

    def give(self, rest: str) -> None:
        """Hand helpers what is saved but for the part that is new."""
        for call, parameter in self.lent:
            self.edits.append(Extend(self.text.span(call), (f"{parameter}={rest}",)))

    def counted(self, names: Sequence[str], counts: Sequence[tuple[str, bool]], read: str, saved_before: bool) -> None:
        """Unpack several runs of tensors: in front of what else is saved, each as long as an attribute of ctx says.

        ``names`` has the runs last, with a ``*``; ``counts`` has, for each, the attribute and whether it is a list.
        """
        receiver = self.routine.receiver
        whole = self.flow.fresh("saved", self.taken)
        self.taken.add(whole)
        fixed = [name for name in names if not name.startswith("*")]
        runs = [name[1:] for name in names if name.startswith("*")]
        uses = self.routine.of("saved")
        lines = [f"{whole} = {read}"]
        if fixed:
            if len(fixed) == 1:
                lines.append(f"{fixed[0]}, {whole} = {whole}[0], {whole}[1:]")
            else:
                lines.append(f"{_targets(fixed)} = {whole}[:{len(fixed)}]")
                lines.append(f"{whole} = {whole}[{len(fixed)}:]")
        for run, (attribute, as_list) in zip(runs, counts, strict=True):
            count = f"{receiver}.{attribute}"
            part, rest = f"{whole}[: {count}]", f"{whole}[{count} :]"
            part = f"list({part})" if as_list else part
            both = f"{run}, {whole} = {part}, {rest}"
            if run == "_":
                lines.append(f"{whole} = {rest}")
            elif len(both) > WIDTH - 8:
                lines += [f"{run} = {part}", f"{whole} = {rest}"]
            else:
                lines.append(both)
            self.lines = [line for line in self.lines if line != f"{run} = tuple({run})"]
        self.give(whole)
        if not uses and not self.lent:
            last = lines.pop()
            if last.startswith(f"{runs[-1]}, "):
                lines.append(last.replace(f", {whole} = ", " = ", 1).rpartition(", ")[0])
        for use in uses:
            self.edits.append(Replace(self.text.span(use.node), whole))
        self.at_top([line for line in lines if line])

    def finish(self) -> list[Edit]:
        """All edits of this side."""
        text = self.text
        for statement, places in self.pairs_dropped.items():
            own = text.span(statement)
            inner = {e.span: e.code for e in self.edits if isinstance(e, Replace)}
            if isinstance(statement, ast.Delete):
                left = [t for n, t in enumerate(statement.targets) if n not in places]
                code = f"del {', '.join(text.source(t, inner) for t in left)}" if left else ""
            else:
                assert isinstance(statement, ast.Assign)
                target, value = statement.targets[0], statement.value
                assert isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))  # noqa: PT018
                indices = [n for n in range(len(target.elts)) if n not in places]
                code = ""
                if indices:
                    heads = ", ".join(text.source(target.elts[n], inner) for n in indices)
                    tails = ", ".join(text.source(value.elts[n], inner) for n in indices)
                    code = f"{heads} = {tails}"
            if not code:
                self.dropped.add(statement)
                continue
            self.edits = [e for e in self.edits if not (isinstance(e, Replace) and own.covers(e.span))]
            self.edits.append(Rewrite(own, (code,)))
        for statement, nodes in self.chained.items():
            rest = [t for t in statement.targets if t not in nodes]
            if not rest:
                self.dropped.add(statement)
                continue
            code = " = ".join(text.source(part) for part in (*rest, statement.value))
            self.edits.append(Rewrite(text.span(statement), (code,)))
        for statement in self.dropped:
            span = text.span(statement)
            self.edits = [
                e for e in self.edits if not (isinstance(e, (Replace, Extend, Rewrite)) and span.covers(e.span))
            ]
            self.edits.append(Rewrite(span))
        return self.edits


def renamed(code: str, names: Mapping[str, str], receiver: str = "", fields: Mapping[str, str] | None = None) -> str:
    """An expression or statement with some of its names replaced, and some of the receiver's fields."""
    tree = ast.parse(code)
    text = Text(code)
    changes: dict[Span, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            changes[text.span(node)] = names[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver:
            if fields and node.attr in fields:
                changes[text.span(node)] = fields[node.attr]
    return "\n".join(text.source(statement, changes) for statement in tree.body)


def _targets(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"({names[0]},)"
    return ", ".join(names)


def _unpacking(statement: ast.stmt, node: ast.expr) -> ast.Tuple | ast.List | None:
    """The tuple that a statement unpacks ``node`` to."""
    if isinstance(statement, ast.Assign) and statement.value is node and len(statement.targets) == 1:
        target = statement.targets[0]
        return target if isinstance(target, (ast.Tuple, ast.List)) else None
    return None


def _literal_index(node: ast.Subscript) -> bool:
    """``saved_tensors[0]``: the same item with more behind it."""
    index = node.slice
    return isinstance(index, ast.Constant) and isinstance(index.value, int) and index.value >= 0


def _is_cleanup(statement: ast.stmt, node: ast.expr) -> bool:
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        if isinstance(value, ast.Constant) and value.value is None:
            return True
        if isinstance(statement, ast.Assign) and isinstance(value, (ast.Tuple, ast.List)):
            target = statement.targets[0]
            if (
                isinstance(target, (ast.Tuple, ast.List))
                and len(target.elts) == len(value.elts)
                and node in target.elts
            ):
                own = value.elts[target.elts.index(node)]
                return isinstance(own, ast.Constant) and own.value is None
    return False


def _tuple_target(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Tuple, ast.List))


def _other_arm(flow: Flow, statement: ast.stmt, loads: Sequence[ast.expr]) -> bool:
    """Whether every read behind a clean-up stands in another arm of an ``if`` around it, so that it cannot follow."""
    arms: dict[ast.AST, list[ast.stmt]] = {}
    current: ast.AST = statement
    while current in flow.parents:
        parent = flow.parents[current]
        if isinstance(parent, ast.If):
            arms[parent] = parent.orelse if current in parent.body else parent.body
        current = parent
    later = [node for node in loads if (node.lineno, node.col_offset) > (statement.lineno, statement.col_offset)]
    return all(any(any(node in walk(s) for s in arm) for arm in arms.values()) for node in later)
