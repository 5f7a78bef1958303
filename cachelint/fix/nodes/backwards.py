"""What becomes of the reads in a backward: the values are made again in front of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachelint.fix.edits import After, Before, Edit, Replace, Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.layers.view import ClassView, Use
from cachelint.fix.nodes.blocks import returning
from cachelint.fix.nodes.derived import ALWAYS, FLAGGED, WHERE_READ, Derived, Made
from cachelint.fix.nodes.replay import Replay
from cachelint.fix.nodes.retention import Retention
from cachelint.fix.nodes.sides import Side
from cachelint.fix.nodes.writer import Writer
from cachelint.index.walk import walk


@dataclass
class Backward:
    """One backward and the fields that it reads."""

    side: Side
    view: ClassView
    text: Text
    gained: Retention
    flagged: Mapping[str, str]
    taken: set[str] = field(default_factory=set)
    inputs: dict[int, str] = field(default_factory=dict)

    def edits(self, derived: Sequence[Derived]) -> list[Edit]:
        """The edits. Raises CannotPlan."""
        name, flow = self.side.method.name, self.side.method.flow
        wanted = [item for item in derived if self.uses(item)]
        if not wanted:
            return []
        self.inputs = self.gained.codes[name]
        lines = list(self.gained.first.get(name, ()))
        self.taken |= _locals(lines)
        edits: list[Edit] = []
        for item in wanted:
            made = item.made[name]
            if made.alias is not None and item.when == ALWAYS:
                edits += self.read(item, self.inputs[made.alias])
        forwards = {item.made[name].side.method.name: item.made[name].side for item in wanted}
        for forward in forwards.values():
            own = [item for item in wanted if item.made[name].side is forward]
            more, below = self.made_by(forward, own)
            lines += more
            edits += below
        self.check(wanted)
        if lines:
            after = self.gained.after.get(name)
            where = self.text.span(after if after is not None else self.side.method.node.body[flow.first])
            edits.append(After(where, tuple(lines)) if after is not None else Before(where, tuple(lines)))
        return edits

    def made_by(self, forward: Side, wanted: Sequence[Derived]) -> tuple[list[str], list[Edit]]:
        """The statements at the top that make the fields of one forward, and the edits elsewhere. Raises CannotPlan."""
        name = self.side.method.name
        writer = self.writer(forward)
        alone = _clashing([item.made[name] for item in wanted])
        edits: list[Edit] = []
        top = [item for item in wanted if item.when == ALWAYS and item.made[name].alias is None]
        lines = writer.lines(_joined([item.made[name] for item in top]))
        for item in top:
            edits += self.read(item, writer.names[f"self.{item.name}"])
        for flag in dict.fromkeys(self.flagged[item.name] for item in wanted if item.when == FLAGGED):
            group = [item for item in wanted if self.flagged.get(item.name) == flag]
            own = self.writer(forward, None if alone else writer)
            lines += self.under(flag, group, own)
            for item in group:
                edits += self.read(item, own.names[f"self.{item.name}"])
        # By the time of a read further down, what is made at the top may have been changed.
        alone = alone or any(use.kind != "load" or changes(use) for item in wanted for use in self.uses(item))
        for items in _together([item for item in wanted if item.when == WHERE_READ], name):
            edits += self.where_read(items, lambda: self.writer(forward, None if alone else writer))
        return lines, edits

    def uses(self, item: Derived) -> list[Use]:
        """Where it reads or changes a field."""
        return [use for use in self.view.of(item.name) if use.method is self.side.method]

    def read(self, item: Derived, code: str) -> list[Edit]:
        """The reads become those of a local."""
        return [Replace(self.text.span(use.node), code) for use in self.uses(item)]

    def writer(self, forward: Side, other: Writer | None = None) -> Writer:
        """A writer, which has what another has made."""
        flow = self.side.method.flow

        def fresh(wanted: str) -> str:
            name = flow.fresh(wanted, self.taken)
            self.taken.add(name)
            return name

        found = Writer(forward, self.text, self.inputs, self.side.method.receiver, fresh)
        if other is not None:
            found.names, found.done = dict(other.names), set(other.done)
        return found

    def under(self, flag: str, group: Sequence[Derived], writer: Writer) -> list[str]:
        """Fields that forward made where it set a flag."""
        name = self.side.method.name
        lines = []
        for item in group:
            local = writer.names[f"self.{item.name}"] = writer.fresh(item.name.lstrip("_") or item.name)
            lines.append(f"{local} = None")
        inner = []
        for item in group:
            made = item.made[name]
            local = writer.names[f"self.{item.name}"]
            if made.alias is not None:
                inner.append(f"{local} = {writer.inputs[made.alias]}")
        inner += writer.lines(_joined([item.made[name] for item in group if item.made[name].alias is None]))
        body = "\n".join(inner).replace("\n", "\n    ")
        return [*lines, f"if {self.side.method.receiver}.{flag}:\n    {body}"]

    def where_read(self, items: Sequence[Derived], writer: Callable[[], Writer]) -> list[Edit]:
        """Fields that are made in the branches that read them, each time for itself. Raises CannotPlan."""
        name, body = self.side.method.name, self.side.method.node.body
        uses = {item.name: self.uses(item) for item in items}
        statements = [use.statement for own in uses.values() for use in own]
        edits: list[Edit] = []
        some = CannotPlan(f"`{name}` reads it on paths on which forward does not set it", "set on some paths")
        places = list(_places(body, set(statements), body))
        if any(first is None for first, _ in places):
            raise some
        for first, block in places:
            assert first is not None
            inside = {id(node) for statement in block for node in walk(statement)}
            own = [item for item in items if any(id(use.node) in inside for use in uses[item.name])]
            made = [item.made[name] for item in own]
            if any(item.alias is not None for item in made):
                raise some
            text = writer()
            lines = text.lines(_joined(made))
            edits.append(Before(self.text.span(first), tuple(lines)))
            for item in own:
                code = text.names[f"self.{item.name}"]
                edits += [Replace(self.text.span(u.node), code) for u in uses[item.name] if id(u.node) in inside]
        return edits

    def check(self, wanted: Sequence[Derived]) -> None:
        """Raise CannotPlan where inputs are not what they were by the time that they are needed."""
        flow, name = self.side.method.flow, self.side.method.name
        after = self.gained.after.get(name)
        place = flow.top(after) if after is not None else -1
        if any(flow.top(use.node) <= place for item in wanted for use in self.uses(item)):
            raise CannotPlan(f"`{name}` reads it before it unpacks its inputs", "read before the inputs")
        late = any(item.made[name].alias is not None or item.when == WHERE_READ for item in wanted)
        names = {code.partition(".")[0].partition("[")[0] for code in self.inputs.values()}
        if late and any(len(flow.bindings.get(n, ())) > (n not in flow.parameters) for n in names):
            raise CannotPlan(f"`{name}` binds an input to something else", "input bound again")


def changes(use: Use) -> bool:
    """Whether a use writes into the array."""
    above = use.method.flow.parents.get(use.node)
    written = isinstance(above, ast.Subscript) and above.value is use.node and not isinstance(above.ctx, ast.Load)
    augmented = isinstance(use.statement, ast.AugAssign) and use.node in walk(use.statement.target)
    return use.kind == "change" or written or augmented


def _joined(every: Sequence[Made]) -> Replay:
    """One replay for several fields."""
    found = Replay()
    for item in every:
        found.add(item.replay)
    return found


def _together(items: Sequence[Derived], name: str) -> list[list[Derived]]:
    """Fields that the same block of forward sets."""
    found: dict[int, list[Derived]] = {}
    for item in items:
        found.setdefault(id(item.made[name].block), []).append(item)
    return list(found.values())


def _clashing(every: Sequence[Made]) -> bool:
    """Whether some variable is made more than once, so that what is there may not be what is meant."""
    made: dict[str, set[ast.stmt]] = {}
    for item in every:
        for leaf in item.replay.leaves.values():
            for node in walk(leaf.target) if leaf.target is not None else ():
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    made.setdefault(node.id, set()).add(leaf.statement)
    return any(len(statements) > 1 for statements in made.values())


def _places(
    block: list[ast.stmt], reading: set[ast.stmt], body: list[ast.stmt]
) -> Iterator[tuple[ast.stmt | None, list[ast.stmt]]]:
    """In front of which statement of which block the values are needed: the innermost branches that surely read them.
    None for reads that no branch guards, and for those that a loop may leave out."""
    touching = [s for s in block if any(node in reading for node in walk(s) if isinstance(node, ast.stmt))]
    direct = [s for s in touching if s in reading]
    if direct:
        first = direct[0]
        ended = any(returning(s) for s in block[: block.index(first)] if s in touching)
        early = [s for s in touching if block.index(s) < block.index(first)]
        if block is body or ended or early:
            yield None, block
        else:
            yield first, block
        return
    for statement in touching:
        if not isinstance(statement, ast.If):
            yield None, block
            continue
        for arm in (statement.body, statement.orelse):
            if arm and arm[0] in reading and arm[0].col_offset == statement.col_offset:
                yield None, block  # the test of an ``elif``, in front of which nothing can stand
            elif any(node in reading for s in arm for node in walk(s) if isinstance(node, ast.stmt)):
                yield from _places(arm, reading, body)


def _locals(lines: Sequence[str]) -> set[str]:
    return {n.id for line in lines for n in walk(ast.parse(line)) if isinstance(n, ast.Name)}
