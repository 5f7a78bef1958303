"""The record that interpretation keeps of one receiver: writes, reads, saves, and what else checks need."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from cachelint.infer.values import Func, Inst, Value

Path = tuple[tuple[int, str], ...]
"""The branches that lead to an event: (id of the branching statement, arm), outermost first."""


@dataclass(eq=False)
class Write:
    """``receiver.field = value`` in some form. ``guards`` are the receiver's fields that the branch tests."""

    field: str
    node: ast.AST
    value: Value
    file: str
    function: str
    phase: str
    order: int
    path: Path
    guards: frozenset[str] = frozenset()
    grown: bool = False
    """Whether the value is put into a container that the constructor made."""
    outer: bool = False
    """Whether it is written by the ``__call__`` around forward, which serves all subclasses of a base."""


@dataclass(eq=False)
class Read:
    """A read of ``receiver.field``; ``unset`` when forward had not written it yet on this path."""

    field: str
    node: ast.AST
    file: str
    function: str
    phase: str
    order: int
    path: Path
    unset: bool = False
    sure: bool = True
    scope: ast.AST | None = None
    """The function whose body the read stands in."""


@dataclass(eq=False)
class Save:
    """One call of the dialect's save API: the expressions and their values, starred ones expanded where known."""

    api: str
    node: ast.Call
    exprs: tuple[ast.expr, ...]
    values: tuple[Value, ...]
    file: str
    function: str
    phase: str
    order: int
    path: Path


@dataclass(eq=False)
class Mutation:
    """A value written in place: by a method, ``out=``, an item assignment, an augmented assignment or a kernel."""

    node: ast.AST
    value: Value
    how: str
    name: str
    file: str
    function: str
    phase: str
    order: int
    path: Path


@dataclass(eq=False)
class Returned:
    """One ``return`` of forward, setup_context, backward or jvp."""

    node: ast.Return
    value: Value
    file: str
    function: str
    phase: str
    order: int
    path: Path


@dataclass(eq=False)
class Exit:
    """Forward or setup_context ends here: ``set`` are the receiver's fields that are surely set."""

    node: ast.AST
    file: str
    function: str
    path: Path
    set: frozenset[str]


@dataclass(eq=False)
class ChildCall:
    """A method of an object that the receiver holds is called: ``self.child.forward(x)``, ``self.child(x)``."""

    child: Inst
    method: str
    node: ast.Call
    values: tuple[Value, ...]
    keywords: frozenset[str]
    star: bool
    file: str
    function: str
    phase: str
    order: int
    path: Path
    loops: int


@dataclass(eq=False)
class Launch:
    """A kernel of the project is launched with these values, by the kernel's parameter names."""

    func: Func
    values: tuple[tuple[str, Value], ...]
    node: ast.AST
    file: str
    function: str
    phase: str
    order: int
    path: Path


@dataclass(eq=False)
class Outside:
    """A tensor goes into, or comes out of, something that every call shares. ``name`` tells the slot apart."""

    name: str
    node: ast.AST
    value: Value | None
    file: str
    function: str
    phase: str
    order: int
    path: Path


@dataclass(eq=False)
class Binding:
    """``name = value`` in the body of forward. ``statement`` is the innermost statement of that body."""

    name: str
    value: Value
    statement: ast.stmt
    order: int
    path: Path


@dataclass(eq=False)
class Allocation:
    """A new tensor, made by ``statement`` of forward's body; ``what`` says by which operator."""

    statement: ast.stmt
    value: Value
    what: str
    order: int


@dataclass
class ReceiverLog:
    """All events on one receiver, in the order of interpretation, and the current value of each attribute."""

    api: frozenset[str]
    save_names: frozenset[str]
    read_back: frozenset[str]
    own_read_back: frozenset[str] = frozenset()
    """Attributes under which a framework of its own, that looks like torch's, gives back what was saved."""
    phase: str = "init"
    attrs: dict[str, Value] = field(default_factory=dict)
    initial: dict[str, Value] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    unpacks: list[Read] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    returns: list[Returned] = field(default_factory=list)
    deletes: list[Read] = field(default_factory=list)
    escapes: list[Read] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    """Names bound in forward's own body, for the rules about lifetimes."""
    allocations: list[Allocation] = field(default_factory=list)
    """Tensors with storage of their own that forward's statements make, calls into helpers included."""
    api_calls: list[tuple[str, ast.Call, tuple[Value, ...], str, str, int]] = field(default_factory=list)
    child_calls: list[ChildCall] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    stores: list[Outside] = field(default_factory=list)
    fetches: list[Outside] = field(default_factory=list)
    hooks: list[Outside] = field(default_factory=list)
    entries: list[tuple[int, str, str]] = field(default_factory=list)
    """The methods in the order in which they were begun: event number, phase, name."""
    exits: list[Exit] = field(default_factory=list)
    ended: dict[tuple[int, str], str] = field(default_factory=dict)
    """Arms of branches whose end control does not reach: the function that they leave, ``raise`` or ``jump``."""
    branches: dict[int, ast.If | ast.IfExp] = field(default_factory=dict)
    """The branching statements that paths name by id."""

    def saved_values(self) -> list[Value] | None:
        """What ``saved_tensors`` holds: by position when one call made it, joined when several did."""
        lists = [save.values for save in self.saves if save.api != "save_for_forward"]
        if not lists:
            return None
        longest = max(lists, key=len)
        if all(len(values) == len(longest) for values in lists):
            from cachelint.infer.values import join_all

            return [join_all(column) or column[0] for column in zip(*lists, strict=True)]
        return None
