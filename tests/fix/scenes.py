"""Random programs of a second kind: the mathematics of :mod:`tests.fix.programs` and more, in stranger clothes.

Where :mod:`tests.fix.programs` varies how one plain Function keeps and reads its fields, these vary what is around: early
returns, several outputs, base classes three deep, siblings that share a forward, ``try``, decorators, gradients that are
named like inputs, closures, named tuples, fields that are deleted, values that depend on a branch or on an optional input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.fix.programs import HELPERS, INPUTS, TERMS, TIMES, Chooser, Program, Term

MORE = (
    Term(
        "either",
        ("if flag:\n    a# = torch.sin(x)\nelse:\n    a# = 2.0 * x",),
        "a# ** 2",
        ("a#", "x"),
        {"x": "2.0 * <a#> * (torch.cos(<x>) if <flag> else 2.0) * g"},
        hosts=("flag",),
    ),
    Term(
        "one of two",
        ("a# = torch.sin(x) if flag else 2.0 * x",),
        "a# ** 2",
        ("a#", "x"),
        {"x": "2.0 * <a#> * (torch.cos(<x>) if <flag> else 2.0) * g"},
        hosts=("flag",),
    ),
    Term(
        "perhaps scaled",
        ("s# = x if b is None else x * b",),
        "s# * s#",
        ("s#", "x", "b"),
        {
            "x": "(2.0 * <s#> * g if <b> is None else 2.0 * <s#> * <b> * g)",
            "b": "(None if <b> is None else 2.0 * <s#> * <x> * g)",
        },
    ),
    Term(
        "perhaps added",
        ("s# = 2.0 * x", "if b is not None:\n    s# = s# + b"),
        "s# * s#",
        ("s#", "b"),
        {"x": "4.0 * <s#> * g", "b": "(None if <b> is None else 2.0 * <s#> * g)"},
    ),
    Term(
        "augmented",
        ("e# = x * w", "e# += 1.0"),
        "e# * e#",
        ("e#", "x", "w"),
        {"x": "2.0 * <e#> * <w> * g", "w": "2.0 * <e#> * <x> * g"},
    ),
    Term(
        "edited view",
        ("e# = x * 2.0", "v# = e#[0]", "v#.add_(1.0)"),
        "e# * e#",
        ("e#",),
        {"x": "4.0 * <e#> * g"},
    ),
    Term(
        "edited row",
        ("e# = x * 2.0", "e#[1] = 0.5"),
        "e# * e#",
        ("e#",),
        {"x": "torch.cat((4.0 * <e#>[:1], torch.zeros_like(<e#>[:1]), 4.0 * <e#>[2:])) * g"},
    ),
    Term("cast", ("k# = (x > 0).to(x.dtype)",), "x * k#", ("k#",), {"x": "<k#> * g"}),
    Term(
        "band",
        ("k# = (x >= -0.5) & (x <= 0.5)",),
        "torch.where(k#, x * 2.0, torch.zeros_like(x))",
        ("k#",),
        {"x": "torch.where(<k#>, 2.0 * g, torch.zeros_like(g))"},
    ),
    Term(
        "index",
        ("o# = torch.arange(3)",),
        "x[o#.flip(0)]",
        ("o#",),
        {"x": "torch.zeros_like(g).index_add(0, <o#>.flip(0), g)"},
    ),
    Term(
        "dropout",
        ("z# = (torch.rand_like(x) > 0.4).to(x.dtype) / 0.6",),
        "x * z#",
        ("z#",),
        {"x": "g * <z#>"},
    ),
    Term(
        "layer norm",
        (
            "u#, v# = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)",
            "r# = (v# + n).rsqrt()",
        ),
        "(x - u#) * r#",
        ("x", "u#", "r#"),
        {"x": "<r#> * (g - g.mean(-1, keepdim=True) - h# * (g * h#).mean(-1, keepdim=True))"},
        ("h# = (<x> - <u#>) * <r#>",),
    ),
    Term("constant scale", ("s# = x.detach().abs().mean()",), "x * s#", ("s#",), {"x": "g * <s#>"}),
    Term(
        "without gradient",
        ("with torch.no_grad():\n    s# = x.abs().mean()",),
        "x * s#",
        ("s#",),
        {"x": "g * <s#>"},
    ),
    Term(
        "unbound",
        ("a#, b#, c# = x.unbind(0)",),
        "torch.stack((a# * b#, b# * c#, c# * a#))",
        ("a#", "b#", "c#"),
        {"x": "torch.stack((g[0] * <b#> + g[2] * <c#>, g[0] * <a#> + g[1] * <c#>, g[1] * <b#> + g[2] * <a#>))"},
    ),
    Term("named twice", ("a# = x", "c# = a#"), "c# * c#", ("c#",), {"x": "2.0 * <c#> * g"}),
    Term(
        "shaped",
        ("f# = x.reshape(x.shape[0] * x.shape[1])",),
        "(f# * f#).view(x.shape)",
        ("f#",),
        {"x": "2.0 * <f#>.view(g.shape) * g"},
    ),
)

WAYS = (
    *("attribute",) * 3,
    "saved",
    "chained",
    "annotated",
    "first none",
    "static helper",
    "module helper",
    "setattr",
    "appended",
    "named tuple",
    "parts",
    "in with",
    "from a copy",
    "nested",
    "edited afterwards",
)
READS = (
    *("inline",) * 3,
    "alias",
    "other",
    "getattr",
    "closure",
    "lambda",
    "default",
    "comprehension",
    "walrus",
    "static helper",
    "module helper",
    "chosen",
    "asserted",
    "twice",
    "deleted",
    "cleared",
)
EDITABLE = frozenset(
    ["square", "scaled", "exp", "tanh", "matmul", "centre", "augmented", "edited row", "either", "one of two", "again"]
)
"""Terms whose locals are tensors of their own, so that forward may edit them in place."""
ODD_NAMES = ("torch", "len", "out", "dx", "grads", "COEF", "saved", "value", "print", "_")
HEAD = "import collections\n\nimport torch\nfrom torch.autograd.function import once_differentiable\n"


class _Maker:
    """Builds one program."""

    def __init__(self, c: Chooser) -> None:
        self.c = c
        self.habits: set[str] = set()
        self.stores: list[str] = []
        self.opening: list[str] = []
        self.ending: list[str] = []
        self.methods: list[str] = []
        self.functions: list[str] = []
        self.reads: dict[str, str] = {}
        self.saved: list[str] = []
        self.fields: set[str] = {"n", "flag", "early"}
        self.ctx = "ctx"

    def make(self) -> Program:
        c = self.c
        terms = tuple(c.pick((*TERMS, *MORE, *MORE)).numbered(i) for i in range(c.pick((1, 1, 2, 2, 3))))
        outputs = [c.pick((0, 0, 1)) if len(terms) > 1 else 0 for _ in terms]
        if 0 not in outputs:
            outputs[0] = 0
        early = c.flip(0.2)
        self.ctx = c.pick(("ctx", "ctx", "ctx", "c_", "self"))
        hosts = list(dict.fromkeys(h for t in terms for h in t.hosts)) + (["n"] if early else [])
        for host in dict.fromkeys(hosts):
            self.reads[host] = f"{self.ctx}.{host}"
        lists = {name for t in terms for name in t.lists}
        own = {name for t in terms if t.name in EDITABLE for name in t.keeps if name not in INPUTS}
        for name in dict.fromkeys(name for t in terms for name in t.keeps):
            self.keep(name, name in lists, name in own)
        sums = [self.total(terms, outputs, k) for k in range(2)]
        text = self.assemble(terms, outputs, sums, list(dict.fromkeys(hosts)), early)
        forward = [s for t in terms for s in t.forward]
        reference = ["def reference(x, w, b, n, flag):"]
        if early:
            reference.append("    if not flag:\n        return x * n")
        reference += [*_indent(forward, 1), f"    return {sums[0]}" + (f", {sums[1]}" if sums[1] else "")]
        helpers = [HELPERS[h] for h in dict.fromkeys(h for t in terms for h in t.helpers)]
        whole = "\n".join([f"COEF = [1.0] * {len(terms)}", *helpers, *reference])
        return Program(text, terms, True, whole, any(t.name in ("random", "dropout") for t in terms), self.habits)

    @staticmethod
    def total(terms: Sequence[Term], outputs: Sequence[int], number: int) -> str:
        return " + ".join(
            f"COEF[{k}] * ({t.out})" for k, (t, o) in enumerate(zip(terms, outputs, strict=True)) if o == number
        )

    # -- keeping -----------------------------------------------------------------------------------------------------

    def field(self, name: str) -> str:
        wanted = self.c.pick((name, name, name, f"kept_{name}", f"_{name}", self.c.pick(ODD_NAMES)))
        while wanted in self.fields:
            wanted += "_"
        self.fields.add(wanted)
        return wanted

    def keep(self, name: str, is_list: bool, editable: bool) -> None:
        """Choose how forward keeps a local, and how backward reads it."""
        c = self.c
        way = "attribute" if is_list else c.pick(WAYS)
        if (way == "named tuple" and name == "b") or (way == "edited afterwards" and not editable):
            way = "attribute"
        self.habits.add(way)
        if way == "saved":
            self.saved.append(name)
            self.reads[name] = name
            return
        field = self.field(name)
        access = f"{self.ctx}.{field}"
        if way == "chained":
            self.stores.append(f"again_{field} = ctx.{field} = {name}")
        elif way == "annotated":
            self.stores.append(f"ctx.{field}: torch.Tensor = {name}")
        elif way == "first none":
            self.stores.append(f"ctx.{field} = None\nif x is not None:\n    ctx.{field} = {name}")
        elif way == "static helper":
            self.methods += ["@staticmethod", f"def keep_{field}(ctx, value):\n    ctx.{field} = value", ""]
            self.stores.append(f"Fn.keep_{field}(ctx, {name})")
        elif way == "module helper":
            self.functions.append(f"def keep_{field}(holder, value):\n    holder.{field} = value\n")
            self.stores.append(f"keep_{field}(ctx, {name})")
        elif way == "setattr":
            self.stores.append(f'setattr(ctx, "{field}", {name})')
        elif way == "appended":
            self.stores.append(f"ctx.{field} = []\nctx.{field}.append({name})")
            access += "[0]"
        elif way == "named tuple":
            self.functions.append(f'Pair_{field} = collections.namedtuple("Pair_{field}", "value count")\n')
            self.stores.append(f"ctx.{field} = Pair_{field}({name}, 3)")
            access += ".value"
        elif way == "nested":
            self.stores.append(f'ctx.{field} = {{"all": ({name}, 3), "count": 1}}')
            access += '["all"][0]'
        elif way == "edited afterwards":
            edit = c.pick((f"{name}.view(-1).mul_(2.0)", f"rows_{field} = {name}[:]\nrows_{field}.mul_(2.0)"))
            self.stores.append(f"ctx.{field} = {name}\n{edit}")
        elif way == "parts":
            self.stores.append(f"ctx.{field}, ctx.{field}_n = {name}, 3")
        elif way == "in with":
            self.stores.append(f"with torch.no_grad():\n    ctx.{field} = {name}")
        elif way == "from a copy":
            self.stores.append(f"copy_{field} = {name}\nctx.{field} = copy_{field}")
        else:
            self.stores.append(f"ctx.{field} = {name}")
        odd = is_list or way in ("appended", "named tuple", "nested")
        read = self.reader(field, name, access, odd)
        self.reads[name] = f"({read} / 2.0)" if way == "edited afterwards" else read

    def reader(self, field: str, name: str, access: str, odd: bool) -> str:
        c, ctx = self.c, self.ctx
        how = c.pick(READS)
        if odd and how in ("getattr", "asserted"):
            how = "inline"
        self.habits.add(f"read {how}")
        local = f"r_{field}"
        if how == "alias":
            self.opening.append(f"{name} = {access}")
            return name
        if how == "other":
            self.opening.append(f"{local} = {access}")
            return local
        if how == "getattr":
            return f'getattr({ctx}, "{field}")'
        if how == "closure":
            self.opening.append(f"def get_{field}():\n    return {access}")
            return f"get_{field}()"
        if how == "lambda":
            return f"(lambda: {access})()"
        if how == "default":
            return f"(lambda value={access}: value)()"
        if how == "comprehension":
            return f"[value for value in ({access},)][0]"
        if how == "walrus":
            self.opening.append(f"if ({local} := {access}) is None:\n    pass")
            return local
        if how == "static helper":
            self.methods += [
                "@staticmethod",
                f"def read_{field}({ctx}, factor):\n    return {access} if factor else None",
                "",
            ]
            return f"Fn.read_{field}({ctx}, True)"
        if how == "module helper":
            code = re.sub(rf"^{ctx}\.", "holder.", access)
            self.functions.append(f"def read_{field}(holder):\n    return {code}\n")
            self.opening.append(f"{local} = read_{field}({ctx})")
            return local
        if how == "chosen":
            return f"({access} if {ctx}.needs_input_grad[0] else {access})"
        if how == "asserted" and name != "b":
            self.opening.append(f'assert {access} is not None, "no {field}"')
        if how == "twice":
            self.opening.append(f"{local}, second_{field} = {access}, {access}")
            return f"second_{field}"
        if how == "deleted":
            self.ending.append(f"del {ctx}.{field}")
        if how == "cleared":
            self.ending.append(f"{ctx}.{field} = None")
        return access

    # -- the text ----------------------------------------------------------------------------------------------------

    def assemble(
        self, terms: Sequence[Term], outputs: Sequence[int], sums: Sequence[str], hosts: Sequence[str], early: bool
    ) -> str:
        c = self.c
        forward = [f"ctx.{host} = {host}" for host in hosts]
        if early:
            self.habits.add("early return")
            forward.append("ctx.early = not flag")
            forward.append("if not flag:\n    return x * n")
        stores = list(self.stores)
        if self.saved:
            stores.insert(c.pick((0, len(stores), len(stores) // 2)), f"ctx.save_for_backward({', '.join(self.saved)})")
        returned = "out, out1" if sums[1] else "out"
        forward += [s for t in terms for s in t.forward]
        forward += [f"out = {sums[0]}", *([f"out1 = {sums[1]}"] if sums[1] else []), *stores]
        style = c.pick(("plain", "plain", "branches", "try"))
        if style == "branches":
            forward.append(f"if flag:\n    return {returned}\nelse:\n    return {returned}")
        elif style == "try":
            forward.append(f"try:\n    pass\nfinally:\n    ctx.done = True\nreturn {returned}")
        else:
            forward.append(f"return {returned}")
        first = ["@staticmethod", "def forward(ctx, x, w, b, n, flag):", *_indent(forward, 1), ""]
        second = self.backward(terms, outputs, bool(sums[1]), early)
        classes = self.classes(first, second)
        helpers = [HELPERS[h] for h in dict.fromkeys(h for t in terms for h in t.helpers)]
        return "\n".join([HEAD, f"COEF = [1.0] * {len(terms)}", "", TIMES, *helpers, *self.functions, "", *classes, ""])

    def classes(self, first: list[str], second: list[str]) -> list[str]:
        form = self.c.pick(("one", "one", "two", "three", "siblings", "mixin", "in a function", "called by another"))
        self.habits.add(form)
        methods = self.methods
        root = "torch.autograd.Function"
        if form == "two":
            return [f"class Base({root}):", *_indent(first, 1), "", "class Fn(Base):", *_indent([*methods, *second], 1)]
        if form == "three":
            return [
                *(f"class Base({root}):", *_indent(first, 1), ""),
                *("class Middle(Base):", '    """Nothing of its own."""', "", "    unit = 1.0", ""),
                *("class Fn(Middle):", *_indent([*methods, *second], 1)),
            ]
        if form == "siblings":
            return [
                *(f"class Base({root}):", *_indent(first, 1), ""),
                *("class Fn(Base):", *_indent([*methods, *second], 1), ""),
                *("class Other(Base):", *_indent(second, 1)),
            ]
        if form == "mixin":
            return [
                *("class Steps:", *_indent(first, 1), ""),
                *(f"class Fn(Steps, {root}):", *_indent([*methods, *second], 1)),
            ]
        if form == "in a function":
            inner = [f"class Fn({root}):", *_indent([*methods, *first, *second], 1), "return Fn"]
            return ["def make():", *_indent(inner, 1), "", "", "Fn = make()"]
        if form == "called by another":
            outer = ["@staticmethod", "def backward(ctx, *grads):", "    return Inner.backward(ctx, *grads)"]
            inner = [line.replace("Fn.", "Inner.") for line in [*methods, *first, *second]]
            return [f"class Inner({root}):", *_indent(inner, 1), "", "class Fn(Inner):", *_indent(outer, 1)]
        return [f"class Fn({root}):", *_indent([*methods, *first, *second], 1)]

    def backward(self, terms: Sequence[Term], outputs: Sequence[int], two: bool, early: bool) -> list[str]:
        c, ctx = self.c, self.ctx
        form = c.pick(("plain", "plain", "clash", "star"))
        names = ["g0", "g1"] if two else ["g0"]
        lines: list[str] = []
        if form == "star" or early:  # the early path has one output
            head = f"def backward({ctx}, *grads):"
            lines.append("g0 = grads[0]")
        elif form == "clash":
            self.habits.add("gradient named like an input")
            names = ["x", "w"][: len(names)]
            head = f"def backward({ctx}, {', '.join(names)}):"
            lines.append("g0 = x")
        else:
            head = f"def backward({ctx}, {', '.join(names)}):"
        if early:
            lines.append(f"if {ctx}.early:\n    return g0 * {ctx}.n, None, None, None, None")
        if two:
            lines.append("g1 = grads[1]" if form == "star" or early else "g1 = w" if form == "clash" else "pass")
        if c.flip(0.2):
            self.habits.add("nothing needed")
            lines.append(f"if not any({ctx}.needs_input_grad):\n    return None, None, None, None, None")
        if self.saved:
            listed = ", ".join(self.saved) + ("," if len(self.saved) == 1 else "")
            lines.append(f"{listed} = {ctx}.saved_tensors")
        body = [*self.opening]
        grads: dict[str, list[str]] = {name: [] for name in INPUTS}
        for k, (term, output) in enumerate(zip(terms, outputs, strict=True)):
            body += [self.filled(line, output) for line in term.backward]
            for name, code in term.grads.items():
                grads[name].append(f"_times(COEF[{k}], {self.filled(code, output)})")
        for number, name in enumerate(("x", "w")):
            code = " + ".join(grads[name]) or "torch.zeros_like(g0)"
            if c.flip(0.3):
                self.habits.add("needs_input_grad")
                body.append(f"d{name} = None\nif {ctx}.needs_input_grad[{number}]:\n    d{name} = {code}")
            else:
                body.append(f"d{name} = {code}")
        body.append(f"db = {grads['b'][0] if grads['b'] else None}")
        body += [f"db = None if db is None else db + {more}" for more in grads["b"][1:]]
        returned = "return dx, dw, db, None, None"
        if self.ending and c.flip(0.3):
            self.habits.add("finally")
            lines += ["try:", *_indent(body, 1), "finally:", *_indent(self.ending, 1), returned]
        else:
            lines += [*body, *self.ending, returned]
        decorators = ["@staticmethod"]
        if c.flip(0.1):
            self.habits.add("once differentiable")
            decorators.append("@once_differentiable")
        return [*decorators, head, *_indent(lines, 1), ""]

    def filled(self, code: str, output: int) -> str:
        for name in sorted(self.reads, key=len, reverse=True):
            code = code.replace(f"<{name}>", self.reads[name])
        return re.sub(r"\bg\b", f"g{output}", code)


def _indent(lines: Sequence[str], depth: int) -> list[str]:
    return ["    " * depth + part if part else "" for line in lines for part in line.split("\n")]


def make(chooser: Chooser) -> Program:
    """One random program."""
    return _Maker(chooser).make()
