"""The statements of a forward that make a value, to carry them out again in backward.

A replay is a set of whole statements, in the order of the text: assignments, changes in place of arrays that the replay
makes itself, and the branches between which only host values decide that backward has, too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from cachelint.fix.functions.slices import NoSlice
from cachelint.fix.nodes.blocks import Blocks, returning, terminates
from cachelint.fix.nodes.memory import Memory, fresh, is_array_module
from cachelint.fix.nodes.purity import Pure
from cachelint.fix.nodes.sides import Side
from cachelint.index.walk import code_of, walk

GIVEN, EMPTY, MISSING = "given", "empty", "missing"
"""What a field has before forward sets it: what the constructor was given, None, or nothing at all."""

WHOLE = -1
"""The place of all inputs together."""
_MOST = 16
Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One assignment (of ``a, b = x, y`` those parts that are needed are leaves of their own), or, without a target, a
    statement that changes an array in place."""

    statement: ast.stmt
    target: ast.expr | None = None
    value: ast.expr | None = None


@dataclass
class Replay:
    """What makes some values again."""

    leaves: dict[Key, Leaf] = field(default_factory=dict)
    choices: dict[int, ast.If] = field(default_factory=dict)
    """The branches whose tests are evaluated again, by their identity."""
    exits: dict[int, ast.If] = field(default_factory=dict)
    """Those that end forward in one arm, behind which the values are not made."""
    places: list[int] = field(default_factory=list)
    """The inputs that are needed."""
    inputs: dict[int, int] = field(default_factory=dict)
    """By the identity of an expression the input that it is."""
    defaults: dict[str, str] = field(default_factory=dict)
    """The fields that may keep what they had before."""
    reads: set[str] = field(default_factory=set)
    """The variables that are read."""

    def add(self, other: Replay) -> None:
        """All of another replay, too."""
        self.leaves |= other.leaves
        self.choices |= other.choices
        self.exits |= other.exits
        self.places += [place for place in other.places if place not in self.places]
        self.inputs |= other.inputs
        self.defaults |= other.defaults
        self.reads |= other.reads


@dataclass
class Replayer(Pure):
    """Makes the replays of one forward."""

    side: Side = None  # type: ignore[assignment]
    blocks: Blocks = None  # type: ignore[assignment]
    memory: Memory = None  # type: ignore[assignment]
    whole: bool = False
    """Whether backward has the tuple of all inputs."""
    fixed: frozenset[str] = frozenset()
    """The fields that are what the constructor made them."""
    before: Mapping[str, str] = field(default_factory=dict)
    """What the others have before forward sets them."""
    out: Replay = field(default_factory=Replay)

    def value(self, key: str, block: list[ast.stmt], index: int, owner: ast.AST) -> Replay:
        """What makes a variable, as it is in front of the statement of ``block`` at ``index``. Raises NoSlice."""
        self.out = Replay()
        found = self.back(key, block, index, owner)
        self.out.reads.add(key)
        if isinstance(found, int):
            self.add_place(found)
        elif found == "unbound":
            raise NoSlice(f"`{key}` is not set there")
        self.check()
        return self.out

    def check(self) -> None:
        """Raise NoSlice where an array is changed otherwise than by what is carried out again."""
        replayed = {node for leaf in self.out.leaves.values() for node in _statements(leaf)}
        trouble = self.memory.trouble(self.out.reads, replayed)
        if trouble:
            raise NoSlice(f"`{trouble}` is changed in place")
        if self.side.inputs in self.memory.changed:
            raise NoSlice("an input is changed in place")
        if len(self.out.leaves) > _MOST:
            raise NoSlice("it takes too many steps")

    def also(self, replay: Replay, key: str, exit_: ast.If) -> bool:
        """Make a variable as it is where a branch ends forward, too; whether it is anything there. Raises NoSlice."""
        self.out = replay
        self.condition(exit_.test, exit_)
        replay.exits[id(exit_)] = exit_
        stand = self.blocks.where[exit_]
        found = self.back(key, stand.block, stand.index, stand.owner)
        if isinstance(found, int):
            raise NoSlice(f"`{key}` is an input on some paths")
        self.out.reads.add(key)
        self.check()
        return found == "made"

    def add_place(self, place: int) -> None:
        """Note an input."""
        if place not in self.out.places:
            self.out.places.append(place)

    # -- expressions -------------------------------------------------------------------------------------------------

    def input(self, node: ast.expr, at: ast.stmt) -> bool:
        """An input as an item of the tuple of inputs."""
        if not isinstance(node, ast.Subscript):
            return False
        place = self.side.place(node)
        if place is None:
            return False
        self.found_input(node, place)
        return True

    def found_input(self, node: ast.expr, place: int) -> None:
        """Note that an expression is an input."""
        self.out.inputs[id(node)] = place
        self.add_place(place)

    def name(self, node: ast.Name, at: ast.stmt) -> None:
        """A name: an input, the inputs, something of the module's, or what statements before made."""
        name = node.id
        stand = self.blocks.where[at]
        found = self.back(name, stand.block, stand.index, stand.owner)
        if isinstance(found, int):
            self.found_input(node, found)
            self.out.reads.add(name)
        elif found == "made":
            self.out.reads.add(name)
        elif name == self.side.inputs and name not in self.flow.bindings:
            if not self.whole:
                raise NoSlice("it reads the tuple of all inputs")
            self.found_input(node, WHOLE)
        elif not self.constant(name):
            raise NoSlice(f"`{name}` is not one of forward's own values")

    def attribute_of_receiver(self, node: ast.Attribute, at: ast.stmt) -> bool:
        """Another field, which backward has as well or which statements before made."""
        key = self.blocks.key(node)
        if not key.startswith("self."):
            return False
        if node.attr in self.fixed:
            if key in self.memory.changed:
                raise NoSlice(f"`{code_of(node)}` is changed in place")
            return True
        stand = self.blocks.where[at]
        found = self.back(key, stand.block, stand.index, stand.owner)
        if found == "unbound":
            raise NoSlice(f"it reads `{code_of(node)}`")
        if isinstance(found, int):
            self.found_input(node, found)
        self.out.reads.add(key)
        return True

    def condition(self, test: ast.expr, at: ast.stmt) -> None:
        """A test that backward evaluates again: of host values that it has. Raises NoSlice."""
        for node in walk(test):
            if isinstance(node, ast.Call):
                plain = isinstance(node.func, ast.Name) and node.func.id in ("len", "isinstance", "bool", "int")
                if not plain:
                    raise NoSlice(f"nothing shows that `{code_of(test)[:40]}` is the same in backward")
            elif isinstance(node, ast.NamedExpr):
                raise NoSlice("a test binds a name")
        self.visit(test, at)

    # -- what a variable was given -----------------------------------------------------------------------------------

    def back(self, key: str, block: list[ast.stmt], index: int, owner: ast.AST) -> int | str:
        """Go back to what made a variable, and note it: the place of the input that it is, ``made``, ``unbound``."""
        changed = False
        for statement in reversed(block[:index]):
            if self.side.unpacking is statement and (place := self.unpacked(key)) is not None:
                if changed:
                    raise NoSlice(f"`{key}` is changed in place")
                return place
            if key in self.blocks.binds(statement):
                if isinstance(statement, ast.If):
                    found = self.branches(key, statement)
                    if found == "passed":
                        continue
                    if changed:
                        raise NoSlice(f"`{key}` is changed in place")
                    return found
                self.assignment(key, statement, changed)
                return "made"
            if key in self.blocks.changes(statement):
                if isinstance(statement, ast.If) and self.dead(statement, key):
                    continue
                self.change(key, statement)
                changed = True
        if owner is self.flow.node:
            if changed:
                raise NoSlice(f"`{key}` is changed in place")
            field_name = key.removeprefix("self.") if key.startswith("self.") else ""
            default = self.before.get(field_name, MISSING)
            if field_name and default != MISSING:
                self.out.defaults[field_name] = default
                return "made"
            return "unbound"
        if not isinstance(owner, ast.If):
            raise NoSlice(f"`{key}` is bound in more than one way")
        stand = self.blocks.where[owner]
        found = self.back(key, stand.block, stand.index, stand.owner)
        if changed:
            raise NoSlice(f"`{key}` is changed in place")
        return found

    def unpacked(self, key: str) -> int | None:
        """The place of the input that the unpacking binds a variable to."""
        assert self.side.unpacking is not None
        target = self.side.unpacking.targets[0]
        assert isinstance(target, (ast.Tuple, ast.List))
        keys = [self.blocks.key(element) for element in target.elts]
        return keys.index(key) if key in keys else None

    def assignment(self, key: str, statement: ast.stmt, changed: bool) -> None:
        """A variable is bound by a plain assignment."""
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise NoSlice(f"`{key}` is bound in more than one way")
        if any(isinstance(n, ast.NamedExpr) for n in walk(statement)):
            raise NoSlice(f"`{key}` is bound in more than one way")
        target, value, place = self.part(statement, key)
        if changed and (not fresh(value, self.blocks) or self.blocks.key(target) != key):
            raise NoSlice(f"`{key}` is changed in place")
        where = (statement.lineno, statement.col_offset, place)
        if where in self.out.leaves:
            return
        elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        if key not in {self.blocks.key(element) for element in elements}:
            raise NoSlice(f"`{key}` is bound in more than one way")
        if not all(self.blocks.key(element) for element in elements):
            raise NoSlice(f"`{code_of(target)[:40]}` is not a plain name")
        if self.lazy(value):
            raise NoSlice(f"`{key}` may be used up by the time that backward looks at it")
        self.out.leaves[where] = Leaf(statement, target, value)
        self.visit(value, statement)

    def part(self, statement: ast.Assign, key: str) -> tuple[ast.expr, ast.expr, int]:
        """The target and value that bind a variable, and their place in the assignment."""
        target, value = statement.targets[0], statement.value
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            every = [*target.elts, *value.elts]
            even = len(target.elts) == len(value.elts) and not any(isinstance(item, ast.Starred) for item in every)
            # In ``a, b = b, a`` one part after the other would be another thing.
            if even and not {self.blocks.key(t) for t in target.elts} & {self.blocks.key(n) for n in walk(value)}:
                for place, (own, code) in enumerate(zip(target.elts, value.elts, strict=True)):
                    if self.blocks.key(own) == key:
                        return own, code, place
        return target, value, 0

    def change(self, key: str, statement: ast.stmt) -> None:
        """A statement changes the array of a variable in place; it is carried out again as a whole."""
        where = (statement.lineno, statement.col_offset, 0)
        if where in self.out.leaves:
            return
        self.out.leaves[where] = Leaf(statement)
        if self.blocks.changes(statement) != {key}:
            raise NoSlice(f"`{key}` is changed in place")
        if isinstance(statement, ast.For) and not statement.orelse:
            self.visit(statement.iter, statement)
            if self.blocks.binds(statement) != {n.id for n in walk(statement.target) if isinstance(n, ast.Name)}:
                raise NoSlice(f"`{key}` is changed in a loop")
            outer = set(self.bound)
            self.bound |= self.blocks.binds(statement)
            for inner in statement.body:
                self.changing(key, inner, statement)
            self.bound = outer
        else:
            self.changing(key, statement, statement)

    def changing(self, key: str, statement: ast.stmt, at: ast.stmt) -> None:
        """``x[i] = y`` or ``x += y``."""
        target: ast.expr | None = None
        if isinstance(statement, ast.AugAssign):
            target = statement.target
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        while isinstance(target, ast.Subscript):
            self.visit(target.slice, at)
            target = target.value
        if target is None or self.blocks.key(target) != key:
            raise NoSlice(f"`{key}` is changed in place")
        assert isinstance(statement, (ast.Assign, ast.AugAssign))
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.MatMult):
            raise NoSlice("it is a matrix product")
        self.visit(statement.value, at)

    def branches(self, key: str, statement: ast.If) -> int | str:
        """Both arms of a branch that binds a variable; ``passed`` where none does from which control comes on."""
        arms = [arm for arm in (statement.body, statement.orelse) if not terminates(arm)]
        if not any(key in self.blocks.binds(inner) for arm in arms for inner in arm):
            return "passed"
        if any(returning(inner) for arm in arms for inner in arm):
            raise NoSlice(f"`{key}` is set on some paths only")
        if len(arms) == 1:
            return self.back(key, arms[0], len(arms[0]), statement)
        self.condition(statement.test, statement)
        self.out.choices[id(statement)] = statement
        found = {self.back(key, arm, len(arm), statement) for arm in arms}
        if len(found) != 1:
            raise NoSlice(f"`{key}` is an input on some paths")
        return found.pop()

    def dead(self, statement: ast.If, key: str) -> bool:
        """Whether a branch changes a variable only where control does not come on."""
        arms = [arm for arm in (statement.body, statement.orelse) if not terminates(arm)]
        return not any(key in self.blocks.changes(inner) for arm in arms for inner in arm)


def _statements(leaf: Leaf) -> list[ast.stmt]:
    """The statements of a leaf."""
    return [node for node in walk(leaf.statement) if isinstance(node, ast.stmt)]


def modules_of(replay: Replay) -> bool:
    """Whether a replay asks for the module of an array."""
    return any(is_array_module(leaf.value) for leaf in replay.leaves.values() if leaf.value is not None)
