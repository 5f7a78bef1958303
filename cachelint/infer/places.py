"""The places of ``*args`` and ``**kwargs``: what callers give by position or by name is judged place by place.

A star is one symbol for all that it takes up; a place is a symbol of its own. Slices, copies and dictionaries that are
made of a star keep its places in sight, and so do calls that hand it on.
"""

from __future__ import annotations

import ast
from typing import Final

from cachelint.index.walk import code_of
from cachelint.infer.effects import Effects
from cachelint.infer.optable import operators
from cachelint.infer.symbols import STRONG
from cachelint.infer.values import (
    HOST,
    NONE,
    Bound,
    Ext,
    Func,
    Seq,
    Value,
    replace,
)

_STARS: Final = frozenset(("star", "kwarg"))
_FEW: Final = 16
"""How many places a slice with a literal end is spelled out for."""


class Places(Effects):
    """Stars, and what is cut out of them or made of them."""

    def place(self, ref: Seq, key: str | int, node: ast.AST, hint: str = "") -> Value:
        """What callers give at one place of ``*args`` or under one key of ``**kwargs``."""
        rest = ref.rest
        assert rest is not None
        if rest.param is None:
            return rest  # something else was put in, at a place that nobody knows
        number = key if isinstance(key, str) or key < 0 else key - len(ref.items or ()) + ref.start
        value = self.symbol(
            f"{rest.param}{ref.family}[{number}]",
            "place",
            f"`{hint}`" if hint else f"`{rest.param}[{key!r}]`",
            self.frame.module,
            getattr(node, "lineno", 0),
            deps=rest.deps,
        )
        return replace(value, roots=rest.roots)

    def has_places(self, value: Value | None) -> bool:
        """Whether a value is an item of a star, of which nothing says which."""
        if value is None or value.param is None or value.ref is not None:
            return False
        symbol = self.symbols.get(value.param)
        return symbol is not None and symbol.kind in _STARS

    def slice_places(self, ref: Seq, key: ast.Slice) -> Value | None:
        """A slice of a star: the places that it has, counted as the star counts them where its start is known."""
        if key.step is not None or ref.rest is None or ref.rest.param is None:
            return None
        items = ref.items or []
        lower, upper = (0 if part is None else self.eval(part).const for part in (key.lower, key.upper))
        if not isinstance(lower, int) or lower < 0:
            family = f"{ref.family}[{'' if key.lower is None else code_of(key.lower)}:]"
            return Value(HOST, ref=Seq(None, ref.rest, places=True, family=family)) if not items else None
        if key.upper is not None and isinstance(upper, int) and lower <= upper <= lower + _FEW:
            known = [
                items[number] if number < len(items) else self.place(ref, number, key) for number in range(lower, upper)
            ]
            return Value(HOST, ref=Seq(known))
        return part_of(ref, items[lower:] if ref.items is not None else None, max(lower - len(items), 0))

    def spread(
        self,
        func: Value,
        args: list[Value],
        kwargs: dict[str, Value],
        stars: tuple[Seq | None, Seq | None],
        node: ast.Call,
    ) -> tuple[list[Value], dict[str, Value]]:
        """``f(*args, **kwargs)``: each parameter of ``f`` is given its own place, where no argument before takes it."""
        ref = func.ref
        if isinstance(ref, Ext):
            self.spread_evidence(ref.dotted, args, stars, node)
            return args, kwargs
        if isinstance(ref, Bound):
            target, own = ref.func, 1
        elif isinstance(ref, Func):
            target, own = ref, 0
        else:
            return args, kwargs
        by_position, by_name = stars
        spec = target.node.args
        if by_position is not None and spec.vararg is not None:
            return args, kwargs
        given = args[:-1] if by_position is not None else args
        kwargs = dict(kwargs)
        parameters = [*spec.posonlyargs, *spec.args]
        optional = len(parameters) - len(spec.defaults)
        pairs: list[tuple[ast.arg, ast.expr | None, int | None]]
        pairs = [(p, spec.defaults[n - optional] if n >= optional else None, n) for n, p in enumerate(parameters)]
        pairs += [(p, d, None) for p, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
        for parameter, default, number in pairs[own + len(given) :]:
            name = parameter.arg
            if name in kwargs:
                continue
            if by_position is not None and number is not None and (default is None or by_name is None):
                value = self.place(by_position, number - own - len(given), node, name)
            elif by_name is not None:
                value = self.place(by_name, name, node, name)
            else:
                continue
            if isinstance(default, ast.Constant):
                if default.value is None:
                    value = replace(value, kinds=value.kinds | NONE)
                elif default.value is not ...:
                    self.note(value, HOST, STRONG, default, f"`{name}` has the default {code_of(default)}")
            kwargs[name] = value
        return given, kwargs

    def spread_evidence(
        self, dotted: str, args: list[Value], stars: tuple[Seq | None, Seq | None], node: ast.Call
    ) -> None:
        """What an operator demands of the places of the stars that it is given."""
        table = operators()
        wanted = [
            word
            for positions in (table.host_args, table.device_args, table.device_list_args)
            for word in positions.get(dotted, ())
        ]
        by_position, by_name = stars
        before = len(args) - 1 if by_position is not None else len(args)
        row: list[Value] = list(args[:before])
        last = max((int(word) for word in wanted if word.isdigit()), default=-1)
        if by_position is not None:
            row += [self.place(by_position, number, node) for number in range(last + 1 - before)]
        named = {
            word: self.place(by_name, word, node) for word in wanted if by_name is not None and word.isidentifier()
        }
        self.argument_evidence(dotted, row, named, node)


def part_of(star: Seq, items: list[Value] | None, skipped: int, mutable: bool = False) -> Value:
    """A copy of a star without some of what stands in front: ``items`` are left of it, ``skipped`` places are not."""
    start = star.start + skipped
    return Value(HOST, ref=Seq(items, star.rest, None, mutable, places=star.places, start=start, family=star.family))


def star_of(value: Value) -> Seq | None:
    """The star that a value is, or was cut out of or made of."""
    ref = value.ref
    places = isinstance(ref, Seq) and ref.places and ref.rest is not None and ref.rest.param is not None
    return ref if places and isinstance(ref, Seq) else None
