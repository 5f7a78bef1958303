"""Random programs: custom Functions with right first derivatives and bad habits, as text that runs.

A program is a sum of terms. Each term computes something in forward, keeps some of it, and backward uses what was kept.
How it is kept and read (attributes, tuples, dicts, helpers, branches, …) is chosen by a :class:`Chooser`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chooser(Protocol):
    """Where the choices come from: hypothesis, or a plain random generator."""

    def pick(self, options: Sequence[T]) -> T: ...

    def flip(self, chance: float = 0.5) -> bool: ...


@dataclass(frozen=True)
class Term:
    """One addend. ``forward`` are its statements, ``out`` the addend; ``keeps`` what backward needs (locals or inputs);
    ``backward`` are statements, ``grads`` the expressions of its share in the gradients, by input. In all of them ``#``
    stands for the number of the term, ``<name>`` for the code that reads what was kept."""

    name: str
    forward: tuple[str, ...]
    out: str
    keeps: tuple[str, ...]
    grads: dict[str, str]
    backward: tuple[str, ...] = ()
    reference: str = ""
    hosts: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()

    def numbered(self, number: int) -> Term:
        def n(text: str) -> str:
            return text.replace("#", str(number))

        return Term(
            self.name,
            tuple(map(n, self.forward)),
            n(self.out),
            tuple(map(n, self.keeps)),
            {k: n(v) for k, v in self.grads.items()},
            tuple(map(n, self.backward)),
            n(self.reference),
            self.hosts,
            tuple(map(n, self.lists)),
            self.helpers,
        )


TERMS = (
    Term("square", ("a# = 2.0 * x",), "a# ** 2", ("a#",), {"x": "4.0 * <a#> * g"}),
    Term("scaled", ("s# = x * n",), "s# * s#", ("s#",), {"x": "2.0 * <n> * <s#> * g"}, hosts=("n",)),
    Term("exp", ("e# = torch.exp(0.5 * x)",), "e#", ("e#",), {"x": "0.5 * <e#> * g"}),
    Term("product", (), "x * w", ("x", "w"), {"x": "<w> * g", "w": "<x> * g"}),
    Term(
        "tanh",
        ("p# = x * w", "h# = torch.tanh(p#)"),
        "h#",
        ("h#", "x", "w"),
        {"x": "(1 - <h#> * <h#>) * <w> * g", "w": "(1 - <h#> * <h#>) * <x> * g"},
    ),
    Term(
        "matmul",
        ("m# = x @ w",),
        "m# ** 2",
        ("m#", "x", "w"),
        {"x": "(2.0 * <m#> * g) @ <w>.t()", "w": "<x>.t() @ (2.0 * <m#> * g)"},
    ),
    Term("mask", ("k# = x > 0.1",), "torch.where(k#, x, 0.1 * x)", ("k#",), {"x": "torch.where(<k#>, g, 0.1 * g)"}),
    Term(
        "centre",
        ("u# = x.mean(-1, keepdim=True)", "c# = x - u#"),
        "c# * c#",
        ("c#",),
        {"x": "d# - d#.mean(-1, keepdim=True)"},
        ("d# = 2.0 * <c#> * g",),
    ),
    Term(
        "norm",
        ("r# = (x * x + n).mean(-1, keepdim=True).rsqrt()",),
        "x * r#",
        ("r#", "x"),
        {"x": "g * <r#> - <x> * <r#> ** 3 * (g * <x>).mean(-1, keepdim=True)"},
    ),
    Term(
        "normalised",
        ("v# = x.mean(-1, keepdim=True)", "y# = (x - v#) * n"),
        "y# * w",
        ("y#", "w"),
        {"x": "<n> * (q# - q#.mean(-1, keepdim=True))", "w": "g * <y#>"},
        ("q# = g * <w>",),
        hosts=("n",),
    ),
    Term("random", ("z# = torch.rand_like(x)",), "x * z#", ("z#",), {"x": "g * <z#>"}),
    Term(
        "sort",
        ("v#, o# = torch.sort(x, -1)",),
        "v#",
        ("o#",),
        {"x": "torch.zeros_like(g).scatter(-1, <o#>, g)"},
    ),
    Term(
        "states",
        ("t# = []", "hh# = x", "for _ in range(2):\n    hh# = torch.tanh(hh#)\n    t#.append(hh#)"),
        "hh#",
        ("t#",),
        {"x": "d#"},
        ("d# = g", "for part in reversed(<t#>):\n    d# = d# * (1 - part * part)"),
        lists=("t#",),
    ),
    Term(
        "bias",
        (),
        "(b * x if b is not None else x)",
        ("b", "x"),
        {"x": "(g * <b> if <b> is not None else g)", "b": "(g * <x> if <b> is not None else None)"},
    ),
    Term("in_place", ("i# = x.clone()", "i#.mul_(2.0)"), "i# * i#", ("i#",), {"x": "4.0 * <i#> * g"}),
    Term("view", ("f# = x.reshape(-1)",), "(f# * f#).reshape(3, 3)", ("f#",), {"x": "2.0 * <f#>.reshape(3, 3) * g"}),
    Term("flipped", ("f# = x.t()",), "(f# * f#).t()", ("f#",), {"x": "2.0 * <f#>.t() * g"}),
    Term("helper", ("j# = _triple(x)",), "j# * j#", ("j#",), {"x": "6.0 * <j#> * g"}, helpers=("triple",)),
    Term(
        "two",
        ("l#, b# = 3.0 * x, x * w",),
        "l# * b#",
        ("l#", "b#", "x", "w"),
        {"x": "(3.0 * <b#> + <l#> * <w>) * g", "w": "<l#> * <x> * g"},
    ),
    Term(
        "looped",
        ("s# = x", "for _ in range(2):\n    s# = s# * 1.5"),
        "s# * s#",
        ("s#",),
        {"x": "2.0 * <s#> * 2.25 * g"},
    ),
    Term(
        "run",
        ("q# = [x * 2.0, x * w]",),
        "q#[0] * q#[1]",
        ("q#", "x", "w"),
        {"x": "(2.0 * <q#>[1] + <q#>[0] * <w>) * g", "w": "<q#>[0] * <x> * g"},
        lists=("q#",),
    ),
    Term("pair", ("l#, r# = x.chunk(2, 0)[0], x",), "r# * r# + l#.sum() * 0", ("r#",), {"x": "2.0 * <r#> * g"}),
    Term(
        "max",
        ("m#, i# = x.max(-1, keepdim=True)",),
        "x * 0 + m#",
        ("i#",),
        {"x": "torch.zeros_like(g).scatter(-1, <i#>, g.sum(-1, keepdim=True))"},
    ),
    Term(
        "softmax", ("p# = torch.softmax(x, -1)",), "p#", ("p#",), {"x": "<p#> * (g - (g * <p#>).sum(-1, keepdim=True))"}
    ),
    Term("again", ("a# = x * x", "a# = a# + x"), "a# * a#", ("a#", "x"), {"x": "2.0 * <a#> * (2.0 * <x> + 1.0) * g"}),
)

INPUTS = ("x", "w", "b")
HABITS = (
    *("attribute",) * 4,
    "saved",
    "pair",
    "setattr",
    "helper",
    "branch",
    "needs",
    "made in place",
    "set twice",
    "rebound",
    "mutated",
)
TIMES = "def _times(c, t):\n    return None if t is None else c * t\n"
HELPERS = {"triple": "def _triple(x):\n    return 3.0 * x\n"}


@dataclass
class Program:
    """The text of a module with ``Fn``, and what it is made of. ``reference`` computes the same by autograd."""

    text: str
    terms: tuple[Term, ...]
    linear: bool
    reference: str
    random: bool
    habits: set[str] = field(default_factory=set)


class _Maker:
    def __init__(self, c: Chooser) -> None:
        self.c = c
        self.habits: set[str] = set()
        self.forward: list[str] = []
        self.stores: list[str] = []
        self.backward: list[str] = []
        self.reads: dict[str, str] = {}
        self.saved: list[str] = []
        self.clean: list[str] = []
        self.functions: list[str] = []
        self.fields: set[str] = set()
        self.rebound: list[str] = []

    def make(self) -> Program:
        c = self.c
        count = c.pick((1, 1, 2, 2, 3, 4))
        terms = tuple(c.pick(TERMS).numbered(i) for i in range(count))
        output = c.pick(("", "", "", "sigmoid"))
        setup = all(set(t.keeps) <= set(INPUTS) for t in terms) and c.flip(0.6)
        if setup:
            self.habits.add("setup_context")
        kept = list(dict.fromkeys(name for t in terms for name in t.keeps)) + (["y"] if output else [])
        lists = {name for t in terms for name in t.lists}
        hosts = list(dict.fromkeys(name for t in terms for name in t.hosts))
        rebind = not setup and c.flip(0.15)
        if rebind:
            self.forward.append("x = x.contiguous()")
        for t in terms:
            self.forward += t.forward
        total = " + ".join(f"COEF[{k}] * ({t.out})" for k, t in enumerate(terms))
        self.forward.append(f"y = torch.sigmoid({total})" if output else f"y = {total}")
        for host in hosts:
            self.stores.append(f"ctx.{host} = {host}")
            self.reads[host] = f"ctx.{host}"
        self.lists = lists
        self.keep(kept, lists, setup)
        lines = self.assemble(terms, output, setup)
        reference = "\n".join(
            [
                "def reference(x, w, b, n, flag):",
                *_indent([s for t in terms for s in t.forward], 1),
                f"    y = torch.sigmoid({total})" if output else f"    y = {total}",
                "    return y",
            ]
        )
        return Program(
            lines,
            terms,
            not output,
            "\n".join([f"COEF = [1.0] * {count}", *(HELPERS[h] for t in terms for h in t.helpers), reference]),
            any(t.name == "random" for t in terms),
            self.habits,
        )

    # -- keeping -----------------------------------------------------------------------------------------------------

    def keep(self, names: list[str], lists: set[str], setup: bool) -> None:
        c = self.c
        names = list(names)
        for name in [n for n in names if n in lists]:
            names.remove(name)
            field_ = self.field(name)
            self.store(f"ctx.{field_} = {name}")
            self.reads[name] = self.reader(field_, name)
            self.habits.add("list")
        packable = [n for n in names if c.flip(0.3)]
        if len(packable) > 1 and c.flip(0.6):
            names = [n for n in names if n not in packable]
            self.pack(packable)
        while names:
            name = names.pop(0)
            habit = c.pick(HABITS)
            field_ = self.field(name)
            if habit == "saved" and name not in self.saved:
                self.saved.append(name)
                self.reads[name] = name
                continue
            if habit == "pair" and names:
                other = names.pop(0)
                second = self.field(other)
                self.store(f"ctx.{field_}, ctx.{second} = {name}, {other}")
                self.reads[other] = self.reader(second, other)
            elif habit == "setattr":
                self.store(f'setattr(ctx, "{field_}", {name})')
            elif habit == "helper" and not setup:
                self.functions.append(f"def _keep{len(self.functions)}(ctx, value):\n    ctx.{field_} = value\n")
                self.store(f"_keep{len(self.functions) - 1}(ctx, {name})")
            elif habit == "branch":
                self.store(
                    f"if flag:\n    ctx.{field_} = {name}\nelse:\n    ctx.{field_} = {name}"
                    if not setup
                    else f"ctx.{field_} = {name}"
                )
            elif habit == "made in place" and not setup and self.made_in_place(name, field_):
                pass
            elif habit == "set twice" and name != "b":
                self.store(f"ctx.{field_} = {name}\nctx.{field_} = ctx.{field_}.view(ctx.{field_}.shape)")
            elif habit == "rebound" and not setup and name not in ("y", *self.rebound):
                self.rebound.append(name)
                self.store(f"ctx.{field_} = {name}")
            elif habit == "mutated" and not setup and name[0] in "asehmcujlb" and name[1:].isdigit():
                self.store(f"ctx.{field_} = {name}\n{name}.mul_(2.0)")
                self.habits.add(habit)
                self.reads[name] = f"({self.reader(field_, name)} / 2.0)"
                continue
            elif habit == "needs" and name not in ("b",):
                self.store(f"if ctx.needs_input_grad[0]:\n    ctx.{field_} = {name}")
            else:
                self.store(f"ctx.{field_} = {name}")
            self.habits.add(habit)
            self.reads[name] = self.reader(field_, name)

    def made_in_place(self, name: str, field_: str) -> bool:
        """``ctx.f = …`` instead of a local, which forward then reads off ctx."""
        made = [k for k, line in enumerate(self.forward) if re.search(rf"\b{name}\b.*? = |\b{name}\b\.\w+\(", line)]
        if name in (*INPUTS, "y") or len(made) != 1 or not self.forward[made[0]].startswith(f"{name} = "):
            return False
        self.forward = [re.sub(rf"\b{name}\b", f"ctx.{field_}", line) for line in self.forward]
        self.stores = [re.sub(rf"(?<!\.)\b{name}\b", f"ctx.{field_}", line) for line in self.stores]
        return True

    def field(self, name: str) -> str:
        wanted = self.c.pick((name, name, f"kept_{name}", f"_{name}"))
        while wanted in self.fields or wanted in ("n", "g"):
            wanted += "_"
        self.fields.add(wanted)
        return wanted

    def store(self, code: str) -> None:
        self.stores.append(code)

    def pack(self, names: list[str]) -> None:
        c = self.c
        field_ = self.field("cache")
        form = c.pick(("tuple", "tuple", "list", "dict"))
        self.habits.add(form)
        extra = c.pick(("", "", "n", "None", "(1, 2)"))
        items = [*names, extra] if extra else list(names)
        if form == "dict":
            body = ", ".join(f'"item{i}": {item}' for i, item in enumerate(items))
            self.store(f"ctx.{field_} = {{{body}}}")
        else:
            body = ", ".join(items) + ("," if len(items) == 1 else "")
            bare = form == "tuple" and c.flip()
            self.store(
                f"ctx.{field_} = {body}"
                if bare
                else f"ctx.{field_} = ({body})"
                if form == "tuple"
                else f"ctx.{field_} = [{body}]"
            )
        how = c.pick(("index", "whole", "unpack"))
        if how == "unpack" and form != "dict":
            targets = [*(f"r_{n}" for n in names), *(["_"] if extra else [])]
            self.backward.append(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = ctx.{field_}")
            for name in names:
                self.reads[name] = f"r_{name}"
            return
        base = f"ctx.{field_}"
        if how == "whole":
            self.backward.append(f"whole = ctx.{field_}")
            base = "whole"
        for i, name in enumerate(names):
            self.reads[name] = f'{base}["item{i}"]' if form == "dict" else f"{base}[{i}]"

    def reader(self, field_: str, name: str) -> str:
        """How backward reads a field: the code that gives its value."""
        c = self.c
        how = c.pick(
            ("inline", "inline", "alias", "other", "getattr", "nested", "helper", "late", "clean", "delete", "updated")
        )
        self.habits.add(f"read {how}")
        if how == "alias":
            self.backward.append(f"{name} = ctx.{field_}")
            return name
        if how == "other":
            self.backward.append(f"value_{name} = ctx.{field_}")
            return f"value_{name}"
        if how == "getattr":
            return f'getattr(ctx, "{field_}")'
        if how == "updated" and name != "b":
            self.backward.append(
                f"ctx.{field_} = ctx.{field_}.view(ctx.{field_}.shape)" if name not in self.lists else "pass"
            )
        if how == "nested":
            self.backward.append(f"def get_{name}():\n    return ctx.{field_}")
            return f"get_{name}()"
        if how == "helper":
            number = len(self.functions)
            self.functions.append(f"def _read{number}(ctx):\n    return ctx.{field_}\n")
            self.backward.append(f"value_{name} = _read{number}(ctx)")
            return f"value_{name}"
        if how == "late":
            self.backward.append(f"{name} = g * 2.0")  # a clash of names
            return f"ctx.{field_}"
        if how == "clean":
            self.clean.append(f"ctx.{field_} = None")
        if how == "delete":
            self.clean.append(f"del ctx.{field_}")
        return f"ctx.{field_}"

    # -- the text ----------------------------------------------------------------------------------------------------

    def assemble(self, terms: Sequence[Term], output: str, setup: bool) -> str:
        c = self.c
        forward = list(self.forward)
        stores = [*self.stores, *(f"{name} = None" for name in self.rebound if name not in self.saved)]
        save = f"ctx.save_for_backward({', '.join(self.saved)})"
        returns = "return y"
        if self.saved:
            form = c.pick(("after", "first", "middle", "branches"))
            self.habits.add(f"save {form}")
            if form == "first":
                stores.insert(0, save)
            elif form == "middle":
                stores.insert(len(stores) // 2, save)
            elif form == "branches" and not setup:
                stores.append(f"if flag:\n    {save}\nelse:\n    {save}")
            else:
                stores.append(save)
        if setup:
            body = (
                ["x, w, b, n, flag = inputs", "y = output", *stores]
                if output or c.flip()
                else ["x, w, b, n, flag = inputs", *stores]
            )
            methods = [
                "@staticmethod",
                "def forward(x, w, b, n, flag):",
                *_indent([*forward, "return y"], 1),
                "",
                "@staticmethod",
                "def setup_context(ctx, inputs, output):",
                *_indent(body, 1),
            ]
        else:
            if c.flip(0.15):
                self.habits.add("two returns")
                returns = "if flag:\n    return y\nreturn y"
            if c.flip(0.15):
                self.habits.add("documented")
                forward.insert(0, '"""What it does."""')
            methods = [
                "@staticmethod",
                "def forward(ctx, x, w, b, n, flag):",
                *_indent([*forward, *stores, returns], 1),
            ]
        backward = ["@staticmethod", "def backward(ctx, g):", *_indent(self.backward_lines(terms, output), 1)]
        inherit = not setup and c.flip(0.15)
        if inherit:
            self.habits.add("inheritance")
            classes = [
                "class Base(torch.autograd.Function):",
                *_indent(methods, 1),
                "",
                "",
                "class Fn(Base):",
                *_indent(backward, 1),
            ]
        else:
            classes = ["class Fn(torch.autograd.Function):", *_indent([*methods, "", *backward], 1)]
        helpers = [HELPERS[h] for h in dict.fromkeys(h for t in terms for h in t.helpers)]
        weights = [f"COEF = [1.0] * {len(terms)}", "", TIMES]
        return "\n".join(["import torch", "", *weights, *helpers, *self.functions, "", *classes, ""])

    def backward_lines(self, terms: Sequence[Term], output: str) -> list[str]:
        c = self.c
        lines = []
        if self.saved:
            place = c.pick(("plain", "list", "starless", "indexed"))
            names = ", ".join(self.saved) + ("," if len(self.saved) == 1 else "")
            if place == "indexed":
                self.habits.add("indexed unpacking")
                lines += [f"{name} = ctx.saved_tensors[{i}]" for i, name in enumerate(self.saved)][:1]
                rest = self.saved[1:]
                lines = ["kept = ctx.saved_tensors", *(f"{name} = kept[{i}]" for i, name in enumerate(self.saved))]
                _ = rest
            else:
                lines.append(f"({names}) = ctx.saved_tensors" if place == "plain" else f"{names} = ctx.saved_tensors")
        before = [*self.backward]
        if c.flip(0.3) and self.saved:
            lines = (
                [*before, *lines] if not any(line.split(" ")[0] in self.saved for line in before) else [*lines, *before]
            )
        else:
            lines += before
        if output:
            lines.append(f"g = g * {self.reads['y']} * (1 - {self.reads['y']})")
        grads: dict[str, list[str]] = {name: [] for name in INPUTS}
        for t in terms:
            lines += [self.filled(line) for line in t.backward]
            for name, code in t.grads.items():
                grads[name].append(self.weighted(self.filled(code), terms.index(t)))
        for name in ("x", "w"):
            code = " + ".join(grads[name]) or "torch.zeros_like(g)"
            if c.flip(0.15):
                self.habits.add("needs_input_grad")
                lines.append(f"g{name} = None\nif ctx.needs_input_grad[{'xw'.index(name)}]:\n    g{name} = {code}")
            else:
                lines.append(f"g{name} = {code}")
        if grads["b"]:
            lines.append(f"gb = {grads['b'][0]}")
            for more in grads["b"][1:]:
                lines.append(f"gb = None if gb is None else gb + {more}")
        else:
            lines.append("gb = None")
        lines += self.clean
        lines.append("return gx, gw, gb, None, None")
        return lines

    @staticmethod
    def weighted(code: str, number: int) -> str:
        """The share of a term counts as its coefficient says; None stays None."""
        return f"_times(COEF[{number}], {code})"

    def filled(self, code: str) -> str:
        for name in sorted(self.reads, key=len, reverse=True):
            code = code.replace(f"<{name}>", self.reads[name])
        return code


def _indent(lines: Sequence[str], depth: int) -> list[str]:
    out = []
    for line in lines:
        out += ["    " * depth + part if part else "" for part in line.split("\n")]
    return out


def make(chooser: Chooser) -> Program:
    """One random program."""
    return _Maker(chooser).make()
