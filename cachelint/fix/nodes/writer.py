"""The text of replays, with the names that backward has for inputs, locals and fields of forward."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cachelint.fix.edits import Span, Text
from cachelint.fix.nodes.blocks import blocks_of, terminates
from cachelint.fix.nodes.memory import is_array_module
from cachelint.fix.nodes.replay import EMPTY, WHOLE, Key, Leaf, Replay
from cachelint.fix.nodes.sides import Side
from cachelint.index.walk import children, walk

_INDENT = "    "
_NEGATED = {ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is"}


@dataclass
class Writer:
    """Writes replays of one forward into one function, one behind the other: what is there already is not made again."""

    side: Side
    """The forward."""
    text: Text
    inputs: Mapping[int, str]
    """The code of each input."""
    receiver: str
    fresh: Callable[[str], str]
    """A name that is not taken; it is from then on."""
    names: dict[str, str] = field(default_factory=dict)
    """By variable of forward what it is called."""
    done: set[Key] = field(default_factory=set)

    def lines(self, replay: Replay) -> list[str]:
        """The statements that make the values of a replay."""
        self.replay = replay
        self.pending = {name: kind for name, kind in replay.defaults.items() if f"self.{name}" not in self.names}
        wanted = [(key, leaf) for key, leaf in sorted(replay.leaves.items()) if key not in self.done]
        self.by_statement: dict[ast.stmt, list[Leaf]] = {}
        for _, leaf in wanted:
            self.by_statement.setdefault(leaf.statement, []).append(leaf)
        lines = self.defaults() if self.early() else []
        lines += self.block(self.side.method.node.body)
        self.done |= {key for key, _ in wanted}
        return lines

    def early(self) -> bool:
        """Whether a field may be used before the first branch."""
        first = min(
            (node.lineno for node in (*self.replay.choices.values(), *self.replay.exits.values())), default=None
        )
        early = [item for item in self.by_statement if first is None or item.lineno < first]
        used = {self.key(node) for item in early for node in walk(item)}
        return first is None or any(f"self.{name}" in used for name in self.pending)

    def defaults(self) -> list[str]:
        """What fields are that forward does not set."""
        lines = []
        for name, kind in self.pending.items():
            local = self.names[f"self.{name}"] = self.fresh(name.lstrip("_") or name)
            lines.append(f"{local} = {'None' if kind == EMPTY else f'{self.receiver}.{name}'}")
        self.pending = {}
        return lines

    def block(self, statements: list[ast.stmt]) -> list[str]:
        """The statements of a block that are carried out again."""
        lines: list[str] = []
        for number, statement in enumerate(statements):
            own = self.by_statement.get(statement)
            if own is not None:
                for leaf in own:
                    lines += self.leaf(leaf)
            elif isinstance(statement, ast.If) and id(statement) in self.replay.exits:
                arm = statement.orelse if terminates(statement.body) else statement.body
                lines += self.defaults()
                test = self.code(statement.test)
                if terminates(statement.body):
                    test = self.negated(statement.test)
                inner = [*self.block(arm), *self.block(statements[number + 1 :])]
                return [*lines, _nested(f"if {test}:", inner)] if inner else lines
            elif isinstance(statement, ast.If) and id(statement) in self.replay.choices:
                lines += self.choice(statement)
            else:
                for inner_block in blocks_of(statement):
                    lines += self.block(inner_block)
        return lines

    def choice(self, statement: ast.If) -> list[str]:
        """A branch."""
        lines = self.defaults()
        test = self.code(statement.test)
        body, orelse = self.block(statement.body), self.block(statement.orelse)
        if body:
            lines.append("\n".join([_nested(f"if {test}:", body), *([_nested("else:", orelse)] if orelse else [])]))
        elif orelse:
            lines.append(_nested(f"if {self.negated(statement.test)}:", orelse))
        return lines

    def negated(self, test: ast.expr) -> str:
        """The code of the opposite of a test."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.code(test.operand)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _NEGATED:
            sign = _NEGATED[type(test.ops[0])]
            return f"{self.code(test.left)} {sign} {self.code(test.comparators[0])}"
        plain = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        return f"not {self.code(test)}" if plain else f"not ({self.code(test)})"

    def leaf(self, leaf: Leaf) -> list[str]:
        """One statement."""
        if leaf.target is None or leaf.value is None:
            for name in sorted(_loop_names(leaf.statement)):
                self.names.setdefault(name, self.fresh(name))
            return [self.code(leaf.statement)]
        code = self.code(leaf.value)
        elements = leaf.target.elts if isinstance(leaf.target, (ast.Tuple, ast.List)) else [leaf.target]
        for element in sorted(elements, key=self.key):
            key = self.key(element)
            if key not in self.names:
                wanted = key.removeprefix("self.")
                self.names[key] = self.fresh(wanted.lstrip("_") or wanted if key != wanted else wanted)
        return [f"{self.code(leaf.target)} = {code}"]

    def key(self, node: ast.AST) -> str:
        """The variable of forward that an expression is, empty if it is none."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"self.{node.attr}" if node.value.id == self.side.method.receiver else ""
        return ""

    def code(self, node: ast.AST) -> str:
        """The text of an expression or statement with the names that are right here."""
        changes: dict[Span, str] = {}
        first = next(iter(self.inputs.values()), "")

        def look(item: ast.AST) -> None:
            place = self.replay.inputs.get(id(item))
            if place is not None and isinstance(item, ast.expr):
                changes[self.text.span(item)] = self.inputs[place]
            elif is_array_module(item):
                assert isinstance(item, ast.Call)
                star = "*" if next(iter(self.inputs), 0) == WHOLE else ""
                changes[self.text.span(item)] = f"{self.text.source(item.func)}({star}{first})"
            elif self.key(item) in self.names and isinstance(item, ast.expr):
                changes[self.text.span(item)] = self.names[self.key(item)]
            elif isinstance(item, ast.Name) and item.id == self.side.method.receiver:
                changes[self.text.span(item)] = self.receiver
            else:
                for child in children(item):
                    look(child)

        look(node)
        return self.text.source(node, changes)


def _nested(head: str, lines: list[str]) -> str:
    inner = "\n".join(lines).replace("\n", f"\n{_INDENT}")
    return f"{head}\n{_INDENT}{inner}"


def _loop_names(statement: ast.stmt) -> set[str]:
    found = [node.target for node in walk(statement) if isinstance(node, ast.For)]
    return {n.id for target in found for n in walk(target) if isinstance(n, ast.Name)}
