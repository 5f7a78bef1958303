"""Building a graph: names, order, and the wiring of savers."""

from __future__ import annotations

from collections.abc import Sequence

from cachelint.runtime.arena import Arena
from cachelint.runtime.errors import CycleError, GraphError
from cachelint.runtime.graph import Graph, Plan, Ref, Running, Shape, Vertex
from cachelint.runtime.node import Node
from cachelint.runtime.saver import NodeSaver, SavedSets, SaverAware, SharedSaver, saver_aware


class Builder:
    """Collects nodes and builds a ``Graph``.

    A node may name inputs that are added later, so nodes can come in any order::

        builder = Builder()
        x = builder.input("x", shape=(None, 512))
        hidden = builder.add(FFN(512, 2048), x)
        graph = builder.build(builder.add(Softmax(), hidden))

    Names of nodes default to their type with a number. ``hidden[1]`` picks from a node that gives a tuple.
    """

    def __init__(self, arena: Arena | None = None) -> None:
        self.arena = arena
        self._inputs: dict[str, Shape | None] = {}
        self._vertices: dict[str, Vertex] = {}

    def input(self, name: str, shape: Sequence[int | None] | None = None) -> Ref:
        """A graph input. ``shape``, if given, is checked at each forward; None in it stands for any size."""
        self._new_name(name)
        self._inputs[name] = None if shape is None else tuple(shape)
        return Ref(name)

    def add(self, node: Node, *inputs: Ref | str, name: str | None = None) -> Ref:
        """Add ``node`` with where its inputs come from; gives what stands for its result.

        Raises:
            GraphError: the name is taken, or this very node is in the graph already (its state serves one place).
        """
        for vertex in self._vertices.values():
            if vertex.node is node:
                raise GraphError(f"node {vertex} is in the graph already; a node serves one place")
        name = self._default_name(node) if name is None else name
        self._new_name(name)
        self._vertices[name] = Vertex(name, node, tuple(_as_ref(ref) for ref in inputs))
        return Ref(name)

    def build(self, *outputs: Ref | str) -> Graph:
        """The graph that gives ``outputs``; by default the results that no node reads, in the order of adding.

        Every SaverAware object that a node reaches through attributes, lists and dicts gets the node's saver, once.

        Raises:
            GraphError: there is no node, or a name that is read isn't there.
            CycleError: nodes need each other's results.
        """
        if not self._vertices:
            raise GraphError("the graph has no node")
        for vertex in self._vertices.values():
            for ref in vertex.inputs:
                self._check_known(ref, f"node {vertex}")
        order = self._topological_order()
        read = {ref.name for vertex in order for ref in vertex.inputs}
        chosen = tuple(map(_as_ref, outputs)) or tuple(Ref(name) for name in self._vertices if name not in read)
        for ref in chosen:
            self._check_known(ref, "the output")
        sets, running = SavedSets(), Running()
        _wire(order, sets, running)
        return Graph(Plan(tuple(self._inputs.items()), order, chosen), sets, running, self.arena)

    def _new_name(self, name: str) -> None:
        if name in self._inputs or name in self._vertices:
            raise GraphError(f"the name {name!r} is taken")

    def _default_name(self, node: Node) -> str:
        kind = type(node).__name__.lower()
        number = 1
        while f"{kind}{number}" in self._vertices or f"{kind}{number}" in self._inputs:
            number += 1
        return f"{kind}{number}"

    def _check_known(self, ref: Ref, reader: str) -> None:
        if ref.name not in self._inputs and ref.name not in self._vertices:
            raise GraphError(f"{reader} reads {ref.name!r}, which is neither an input nor a node")

    def _topological_order(self) -> tuple[Vertex, ...]:
        """Depth first from the order of adding, so that equal programs get equal orders."""
        order: list[Vertex] = []
        done: set[str] = set(self._inputs)
        for root in self._vertices:
            path: list[str] = []
            stack = [(root, iter(self._vertices[root].inputs))] if root not in done else []
            path.extend(name for name, _ in stack)
            while stack:
                name, inputs = stack[-1]
                ref = next((ref for ref in inputs if ref.name not in done), None)
                if ref is None:
                    stack.pop()
                    path.pop()
                    done.add(name)
                    order.append(self._vertices[name])
                elif ref.name in path:
                    raise CycleError((*path[path.index(ref.name) :], ref.name))
                else:
                    stack.append((ref.name, iter(self._vertices[ref.name].inputs)))
                    path.append(ref.name)
        return tuple(order)


def _as_ref(ref: Ref | str) -> Ref:
    return Ref(ref) if isinstance(ref, str) else ref


def _wire(order: tuple[Vertex, ...], sets: SavedSets, running: Running) -> None:
    """Give each SaverAware object the saver of the node that it belongs to; a shared one asks which node runs."""
    owners: dict[int, str] = {}
    layers: dict[int, SaverAware] = {}
    shared: set[int] = set()
    for vertex in order:
        for _, layer in saver_aware(vertex.node):
            layers[id(layer)] = layer
            if owners.setdefault(id(layer), vertex.name) != vertex.name:
                shared.add(id(layer))
    for key, layer in layers.items():
        owner = owners[key]
        layer.set_saver(SharedSaver(sets, running.owner, owner) if key in shared else NodeSaver(sets, owner))
