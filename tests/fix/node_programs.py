"""Random function nodes: locals, views, changes in place, branches, loops, early ends, fields set and read in many ways."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEAD = """\
import numpy
from chainer import backend, function, function_node


def _scaled(a):
    b = a * 2
    b += 1
    return b


def _grown(a):
    a += 1
    return a


def _rows(a):
    return (a[i] for i in range(len(a)))


"""
_TESTS = (
    "self.p",
    "not self.p",
    "self.q",
    "self.p and self.q",
    "x.ndim == 2",
    "len(t) == 4",
    "self.ask(t)",
    "xp is numpy",
)


@dataclass
class Writer:
    """Writes one class."""

    chance: random.Random
    fields: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["x", "t"])
    wild: bool = False
    """Whether arrays are changed in place, and by functions."""

    def program(self) -> str:
        """The text of a module with one class ``Fn``."""
        older = self.chance.random() < 0.5
        self.wild = self.chance.random() < 0.4
        base = "function.Function" if older else "function_node.FunctionNode"
        self.fields = {f: self.chance.choice(("none", "missing", "given")) for f in ("f", "g")}
        lines = [f"class Fn({base}):", "    def __init__(self, p, q):", "        self.p = p", "        self.q = q"]
        for name, kind in self.fields.items():
            if kind != "missing":
                value = "None" if kind == "none" or self.chance.random() < 0.5 else "numpy.ones((3, 4))"
                lines.append(
                    f"        self.{name} = {value if kind == 'none' else 'numpy.ones((3, 4)) if q else None'}"
                )
        lines += ["", "    def ask(self, t):", "        return bool(t.sum() > 0)", ""]
        lines += ["    def forward(self, inputs):", "        x, t = inputs"]
        lines += [] if older else ["        self.retain_inputs((0, 1))"]
        lines += ["        xp = backend.get_array_module(x)"]
        lines += self.block(2, self.chance.randint(3, 8))
        lines += [f"        return {self.value()} * x,", ""]
        head = "inputs, grad_outputs" if older else "indexes, grad_outputs"
        lines += [f"    def backward(self, {head}):"]
        lines += [] if older else ["        x, t = self.get_retained_inputs()"]
        lines += [f"        gy = grad_outputs[0]{'' if older else '.array'}", "        r = gy * 1"]
        for name in self.fields:
            lines += self.read(name)
        lines += ["        return r, gy * 2", ""]
        return HEAD + "\n".join(lines)

    def block(self, depth: int, count: int) -> list[str]:
        """Some statements."""
        lines: list[str] = []
        for _ in range(count):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        """One statement, with those inside it."""
        pad, roll = "    " * depth, self.chance.random()
        name = self.chance.choice(("a", "b", "c"))
        if roll < 0.3:
            return [f"{pad}self.{self.chance.choice(('f', 'g'))} = {self.value()}"]
        if roll < 0.58:
            line = f"{pad}{name} = {self.value()}"
            if depth == 2 and name not in self.names:
                self.names.append(name)
            return [line]
        old = self.chance.choice(self.names)
        target = self.chance.choice((*self.names[2:], "self.f", "self.g"))
        if roll < 0.58 + 0.06 * self.wild:
            change = self.chance.choice(
                ("{}[0] = {}[1]", "{} *= 2 + abs({})", "{}[1:] += {}[:-1]", "numpy.add({}, {}, out={})")
            )
            return [pad + change.format(target, old, target)]
        if roll < 0.58 + 0.1 * self.wild:
            return [f"{pad}for i in range(2):", f"{pad}    {target}[i] += {old}[i + 1]"]
        if roll < 0.7 and len(self.names) > 3:
            one, two = self.chance.sample(self.names[2:], 2)
            return [f"{pad}{one}, {two} = {two}, {one}"]
        if depth > 3:
            return []
        kept = list(self.names)
        test = self.chance.choice(_TESTS)
        if roll < 0.78:
            return [f"{pad}if {test}:", f"{pad}    return x * 3,"]
        lines = [f"{pad}if {test}:", *(self.block(depth + 1, self.chance.randint(1, 3)) or [f"{pad}    pass"])]
        if self.chance.random() < 0.6:
            lines += [f"{pad}else:", *(self.block(depth + 1, self.chance.randint(1, 3)) or [f"{pad}    pass"])]
        self.names = kept
        return lines

    def value(self) -> str:
        """An expression."""
        one, two = self.chance.choice(self.names), self.chance.choice(self.names)
        shapes = (
            "{} * {}", "{} - {}", "{}", "xp.maximum({}, {})", "abs({})", "{}[::-1]", "_scaled({})",
            "_grown({})", "_grown({} * 1)", "numpy.sort({})", "numpy.array(list(_rows({})))", "{} + self.g", "{} + self.f",
            "numpy.copy({})", "{}.reshape(3, 4)", "{}.copy()", "numpy.exp(-abs({}))", "{}.astype({}.dtype, copy=False)",
            "numpy.where({} > {}, 1.0, 2.0)",
        )  # fmt: skip
        shape = self.chance.choice(shapes if self.wild else shapes[:7] * 2 + shapes[-6:])
        return shape.format(*(one, two)[: shape.count("{}")])

    def read(self, name: str) -> list[str]:
        """How backward reads a field."""
        use = f"r = r * self.{name}"
        test = self.chance.choice(("self.p", "not self.p", "self.q"))
        ways = (
            [use],
            [f"if self.{name} is not None:", f"    {use}"],
            [f"if {test}:", f"    {use}"],
            [f"if {test}:", f"    {use}", f"    r = r + self.{name}"],
            [f"if {test}:", f"    {use}", "else:", f"    r = r - self.{name}"],
            [f"self.{name}[0] *= 2", use],
            [use, f"self.{name} = None"],
            ["for i in range(2):", f"    r = r + self.{name} * i"],
        )
        return [f"        {line}" for line in self.chance.choice(ways)]


def program(seed: int) -> str:
    """A program that depends on nothing but the seed."""
    return Writer(random.Random(seed)).program()
