"""How backward has a field of a function node without the cache: the replay of each forward that makes it, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cachelint.checks import TypeContext
from cachelint.fix.edits import Text
from cachelint.fix.functions.fields import CannotPlan
from cachelint.fix.functions.slices import NoSlice
from cachelint.fix.layers.view import ClassView, Use, is_none
from cachelint.fix.nodes.blocks import Blocks, blocks_of, returning, terminates
from cachelint.fix.nodes.memory import Memory, fresh
from cachelint.fix.nodes.purity import dotted_names, in_place, module_parameters, pure_body
from cachelint.fix.nodes.replay import EMPTY, GIVEN, MISSING, WHOLE, Replay, Replayer
from cachelint.fix.nodes.sides import Side, Sides, hands_inputs_on
from cachelint.fix.nodes.writer import Writer
from cachelint.index.walk import walk

ALWAYS, FLAGGED, WHERE_READ = "always", "flagged", "where read"
"""When backward makes a field: in any case, only where forward noted that it did, or only where the field is read."""


@dataclass(frozen=True, eq=False)
class Made:
    """A field in one forward that makes it."""

    side: Side
    replay: Replay
    block: list[ast.stmt]
    """The block that sets it."""
    last: ast.stmt
    """The statement there behind which it is what backward reads."""
    alias: int | None = None
    """The input that it is, where it is one in any case."""
    own: bool = False
    """Whether its memory is its own."""


@dataclass(frozen=True, eq=False)
class Derived:
    """A field that backward makes again. ``made`` has the forward that stands for each backward, by the backward's name."""

    name: str
    made: dict[str, Made]
    every: tuple[Made, ...]
    """One for each forward that makes it."""
    when: str = ALWAYS

    @property
    def places(self) -> list[int]:
        """The inputs that it needs."""
        return sorted({place for item in self.made.values() for place in item.replay.places if place != WHOLE})

    @property
    def first(self) -> Made:
        """The one that comes first in the text."""
        return min(self.every, key=lambda item: item.last.lineno)

    @property
    def given(self) -> set[str]:
        """The fields that must stay what the constructor was given."""
        return {name for item in self.made.values() for name, kind in item.replay.defaults.items() if kind == GIVEN}


@dataclass
class Deriver:
    """Derives the fields of one class."""

    context: TypeContext
    text: Text
    view: ClassView
    sides: Sides
    kept: tuple[int, ...] | None
    _replayers: dict[str, Replayer] = field(default_factory=dict)

    def derived(self, name: str) -> Derived:
        """How backward has a field. Raises CannotPlan."""
        if self.before(name) == "odd":
            raise CannotPlan("the constructor or the class sets it in a way that is not plain", "used elsewhere")
        made = {side.method.name: self.made(name, side, True) for side in self.sides.forwards}
        when = ALWAYS
        if any(item is None for item in made.values()):
            made = {side.method.name: self.made(name, side, False) for side in self.sides.forwards}
            default = self.before(name)
            if default == GIVEN:
                raise CannotPlan("backward may read what the constructor was given", "set on some paths")
            when = FLAGGED if default == EMPTY else WHERE_READ
        every = tuple(item for item in made.values() if item is not None)
        if not every:
            raise CannotPlan("no forward sets it", "set on some paths")
        found = Derived(name, self.paired(made, every), every, when)
        if self.before(name) == GIVEN and name not in found.given:
            raise CannotPlan("`__init__` uses it, too", "used elsewhere")
        if self.sides.live and self.kept is not None:
            whole = any(WHOLE in item.replay.places for item in found.made.values())
            if whole or not set(found.places) <= set(self.kept):
                raise CannotPlan("backward is not given every input that it needs", "not retained")
        used = any(WHOLE in item.replay.places for item in every)
        if not found.places and not used:
            raise CannotPlan("it does not come from the inputs", "no slice")
        return found

    def paired(self, made: dict[str, Made | None], every: Sequence[Made]) -> dict[str, Made]:
        """By backward the forward that stands for it. Raises CannotPlan."""
        backwards = [side.method.name for side in self.sides.backwards]
        if len({self.canonical(item) for item in every}) == 1:
            return dict.fromkeys(backwards, every[0])
        devices = ("cpu", "gpu")
        if sorted(made) == [f"forward_{d}" for d in devices] and sorted(backwards) == [
            f"backward_{d}" for d in devices
        ]:
            pairs = {f"backward_{d}": made[f"forward_{d}"] for d in devices}
            if all(item is not None for item in pairs.values()):
                return {name: item for name, item in pairs.items() if item is not None}
        raise CannotPlan("the forwards make it in different ways", "made in different ways")

    def canonical(self, item: Made) -> str:
        """A replay with places for names, to compare those of several forwards."""
        if item.alias is not None:
            return f"<{item.alias}>"
        inputs = {place: f"<{place}>" for place in sorted(item.replay.places)}
        writer = Writer(item.side, self.text, inputs, "self", lambda name: name)
        return "\n".join(writer.lines(item.replay))

    # -- one forward -------------------------------------------------------------------------------------------------

    def made(self, name: str, side: Side, always: bool) -> Made | None:
        """What makes a field in a forward: with ``always`` on all of its paths, None where backward can't tell those
        apart or it has nothing where it is not set; else on the path that sets it, None where none does. Raises
        CannotPlan."""
        stores = [use for use in self.view.of(name, "store") if use.method is side.method]
        real = [use for use in stores if not is_none(use.value)]
        some = CannotPlan(f"`{side.method.name}` sets it on some paths only", "set on some paths")
        if hands_inputs_on(side, self.view) or any(side.method.flow.in_loop(use.node) for use in stores):
            raise some
        if not real:
            return None
        replayer = self.replayer(side)
        try:
            found = self.on_all(name, side, real, replayer) if always else None
        except NoSlice as error:
            if self.unconditional(real, side, replayer.blocks):
                raise unmade(error) from error
            return None
        if always:
            return found
        try:
            return self.on_one(name, side, real, stores, replayer)
        except NoSlice as error:
            raise unmade(error) from error

    def unconditional(self, real: Sequence[Use], side: Side, blocks: Blocks) -> bool:
        """Whether every path sets a field at the same place."""
        body = side.method.node.body
        return all(blocks.where[use.statement].block is body and not exits(use.statement, blocks)[0] for use in real)

    def on_all(self, name: str, side: Side, real: Sequence[Use], replayer: Replayer) -> Made | None:
        """The field as it is at the end. Raises NoSlice."""
        node, blocks = side.method.node, replayer.blocks
        replay = replayer.value(f"self.{name}", node.body, len(node.body), node)
        made = {leaf.statement for leaf in replay.leaves.values()}
        direct = side.unpacking is not None and all(use.statement is side.unpacking for use in real)
        if not direct and not all(use.statement in made for use in real):
            return None
        every: list[ast.If] = []
        for statement in {use.statement for use in real} | replayer.memory.direct.get(f"self.{name}", set()):
            found, odd = exits(statement, blocks)
            if odd:
                return None
            every += found
        for item in every:
            if not replayer.also(replay, f"self.{name}", item):
                return None
        last = self.last(name, node.body, replayer)
        return self.finished(name, side, replay, node.body, last)

    def on_one(self, name: str, side: Side, real: Sequence[Use], stores: Sequence[Use], replayer: Replayer) -> Made:
        """The field on the path that sets it. Raises NoSlice and CannotPlan."""
        blocks = replayer.blocks
        some = CannotPlan(f"`{side.method.name}` sets it on some paths only", "set on some paths")
        block, owner = blocks.common([use.statement for use in real])
        chain = [item for item, _ in blocks.owners(real[0].statement)]
        if any(not isinstance(item, (ast.If, ast.FunctionDef)) for item in chain):
            raise some
        last = self.last(name, block, replayer)
        start = min(blocks.index_in(block, use.statement) for use in real)
        end = blocks.where[last].index
        if any(returning(item) for item in block[start : end + 1]):
            raise some
        for use in stores:
            if use in real:
                continue
            # A None in another arm, or before, is what the field has where nothing is made.
            if blocks.where[use.statement].block is block or not self.apart(use.statement, block, blocks):
                raise some
        replay = replayer.value(f"self.{name}", block, end + 1, owner)
        made = {leaf.statement for leaf in replay.leaves.values()}
        if not all(use.statement in made for use in real) or name in replay.defaults:
            raise some
        return self.finished(name, side, replay, block, last)

    def apart(self, statement: ast.stmt, block: list[ast.stmt], blocks: Blocks) -> bool:
        """Whether a statement is in another arm of a branch than a block."""
        for owner, own in blocks.owners(statement):
            if isinstance(owner, ast.If):
                other = owner.orelse if own is owner.body else owner.body
                if any(inner is block for item in other for inner in _all_blocks(item)) or other is block:
                    return True
        return False

    def last(self, name: str, block: list[ast.stmt], replayer: Replayer) -> ast.stmt:
        """The last statement of a block that has to do with what a field is."""
        key, blocks = f"self.{name}", replayer.blocks
        touching = [s for s in block if key in blocks.binds(s) or key in blocks.changes(s)]
        return touching[-1]

    def finished(self, name: str, side: Side, replay: Replay, block: list[ast.stmt], last: ast.stmt) -> Made:
        """What is to be known about a field that is made."""
        key = f"self.{name}"
        leaves = [leaf for leaf in replay.leaves.values() if leaf.target is not None]
        own = [leaf for leaf in leaves if self.replayer(side).blocks.key(leaf.target or leaf.statement) == key]
        alias: int | None = None
        plain = not replay.choices and not replay.exits and not replay.defaults
        if not replay.leaves and len(replay.places) == 1:
            alias = replay.places[0]
        elif plain and len(replay.leaves) == 1 and len(own) == 1 and id(own[0].value) in replay.inputs:
            alias = replay.inputs[id(own[0].value)]
        blocks = self.replayer(side).blocks
        memory = bool(own) and all(leaf.value is not None and fresh(leaf.value, blocks) for leaf in own)
        return Made(side, replay, block, last, alias, memory)

    # -- what a forward works with -----------------------------------------------------------------------------------

    def replayer(self, side: Side) -> Replayer:
        """The replayer of a forward, for every backward."""
        found = self._replayers.get(side.method.name)
        if found is None:
            found = self._replayers[side.method.name] = self._replayer(side)
        return found

    def _replayer(self, side: Side) -> Replayer:
        unit, project = self.context.analysis.unit, self.context.project
        flow = side.method.flow
        taken: set[str] = set()
        for other in self.sides.backwards:
            taken |= other.method.flow.parameters | set(other.method.flow.bindings)
        fixed = {name for name in self.view.fields if self.fixed(name)} | self.class_constants
        before = {name: self.before(name) for name in self.view.fields}
        found = Replayer(
            flow,
            unit.module,
            project,
            dotted_names(project, unit.module, flow.used),
            frozenset(taken),
            side=side,
            whole=self.sides.live,
            fixed=frozenset(fixed),
            before={name: kind for name, kind in before.items() if kind != "odd"},
        )
        found.blocks = Blocks(flow, side.method.receiver, found.library, in_place, found.followed, found.writes)
        found.memory = Memory(
            found.blocks, self.mutations, side.inputs, lambda func: self.harmless(func, found), found.is_module
        )
        return found

    @cached_property
    def mutations(self) -> list:  # type: ignore[type-arg]
        """The in-place writes of the class, but for those in helpers that only change arrays of their own."""
        log = self.context.analysis.log
        own = {id(node) for method in self.view.methods.values() for node in walk(method.node)}
        pure: dict[str, bool] = {}
        kept = []
        for mutation in log.mutations:
            name = mutation.function
            if id(mutation.node) not in own and "." not in name:
                if name not in pure:
                    pure[name] = self.harmless_name(name, mutation.file)
                if pure[name]:
                    continue
            kept.append(mutation)
        return kept

    def harmless_name(self, name: str, path: str) -> bool:
        """Whether a function of a file only changes arrays that it made."""
        project = self.context.project
        module = project.module(path)
        found = project.resolve(module, name) if module is not None else None
        if found is None or found.module is None or not isinstance(found.binding, ast.FunctionDef):
            return False
        return pure_body(found.binding, found.module, project, 1, module_parameters(found.binding))

    def harmless(self, func: ast.expr, replayer: Replayer) -> bool:
        """Whether a function that forward calls only changes arrays that it made."""
        found = replayer.function(func.id) if isinstance(func, ast.Name) else None
        return found is not None and self.harmless_name(found[1].name, found[0].path)

    def sharing(self, name: str) -> bool:
        """Whether another field may share the memory of a field."""
        groups = [self.replayer(side).memory.group([f"self.{name}"]) for side in self.sides.forwards]
        return any(key.startswith("self.") and key != f"self.{name}" for group in groups for key in group)

    # -- fields ------------------------------------------------------------------------------------------------------

    def fixed(self, name: str) -> bool:
        """Whether a field is what the constructor made it: forward and backward read the same."""
        stores = self.view.of(name, "store", "change", "delete")
        if not stores or any(use.method.name != "__init__" for use in stores):
            return False
        for use in self.view.of(name, "load"):
            above = use.method.flow.parents.get(use.node)
            if isinstance(above, ast.Attribute) and above.attr.endswith("_") and not above.attr.startswith("_"):
                return False
        return True

    def class_values(self, name: str) -> list[ast.Assign]:
        """The statements in the body of the class that set a name."""
        found = []
        for statement in self.view.node.body:
            if isinstance(statement, ast.Assign):
                if any(isinstance(t, ast.Name) and t.id == name for target in statement.targets for t in walk(target)):
                    found.append(statement)
        return found

    @cached_property
    def class_constants(self) -> set[str]:
        """Literals in the body of the class that no method sets anew."""
        found: set[str] = set()
        for statement in self.view.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Constant, ast.UnaryOp)):
                for target in statement.targets:
                    if isinstance(target, ast.Name) and not self.view.of(target.id, "store", "change", "delete"):
                        found.add(target.id)
        return found

    def before(self, name: str) -> str:
        """What a field is before forward sets it; ``odd`` where that is not plain."""
        built = [use for use in self.view.of(name, "store") if use.method.name == "__init__"]
        above = self.class_values(name)
        for owner in self.context.analysis.machine.mro(self.view.info)[1:]:
            for statement in owner.node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return "odd"
        if any(not use.plain or not use.method.flow.is_top(use.statement) for use in built) or len(built) > 1:
            return "odd"
        if above and (built or len(above) > 1 or len(above[0].targets) != 1 or not is_none(above[0].value)):
            return "odd"
        if built:
            return EMPTY if is_none(built[0].value) else GIVEN
        return EMPTY if above else MISSING


def unmade(error: NoSlice) -> CannotPlan:
    """Why a field can't be made again."""
    return CannotPlan(str(error), "changed in place" if str(error).endswith("changed in place") else "no slice")


def exits(statement: ast.stmt, blocks: Blocks) -> tuple[list[ast.If], bool]:
    """The branches before a statement, or around it, that end the call in one arm; and whether it may end otherwise."""
    found: list[ast.If] = []
    for owner, block in blocks.owners(statement):
        index = blocks.index_in(block, statement)
        for item in block[:index]:
            if not returning(item):
                continue
            if not isinstance(item, ast.If) or not _one_arm(item):
                return found, True
            found.append(item)
        if isinstance(owner, ast.If) and returning(owner):
            if not _one_arm(owner):
                return found, True
            found.append(owner)
        elif not isinstance(owner, (ast.If, ast.FunctionDef)) and (not isinstance(owner, ast.For) or returning(owner)):
            return found, True
    return found, False


def _one_arm(item: ast.If) -> bool:
    """Whether control comes on from one arm of a branch only, and always from that."""
    ends = [terminates(item.body), terminates(item.orelse)]
    live = item.orelse if ends[0] else item.body
    return ends.count(True) == 1 and not any(returning(inner) for inner in live)


def _all_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for block in blocks_of(statement):
        yield block
        for inner in block:
            yield from _all_blocks(inner)
