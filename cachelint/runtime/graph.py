"""A fixed graph of nodes: forward, backward, and the lifetime of what lies between them."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from cachelint.runtime import parallel
from cachelint.runtime.arena import Arena
from cachelint.runtime.errors import (
    GradientError,
    GraphError,
    NodeError,
    RuntimeContractError,
    ShapeError,
    UseAfterReset,
)
from cachelint.runtime.node import Node
from cachelint.runtime.parameter import Parameter
from cachelint.runtime.saver import SavedSets
from cachelint.runtime.span import Span, pin
from cachelint.runtime.stale import located

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of a node, or a graph input, by name; ``index`` picks from a node that gives a tuple."""

    name: str
    index: int | None = None

    def __getitem__(self, index: int) -> Ref:
        """Result number ``index`` of a node that gives a tuple."""
        return Ref(self.name, index)

    def __str__(self) -> str:
        """Such as ``split[1]``."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Vertex:
    """One node of a graph with where its inputs come from."""

    name: str
    node: Node
    inputs: tuple[Ref, ...]

    def __str__(self) -> str:
        """Such as ``'ffn' (FFN)``."""
        return f"{self.name!r} ({type(self.node).__name__})"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a builder decided: vertices in topological order, the graph's inputs and what it gives back."""

    inputs: tuple[tuple[str, Shape | None], ...]
    vertices: tuple[Vertex, ...]
    outputs: tuple[Ref, ...]
    consumers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """For each name, the indices of the vertices that read it."""


def describe(value: object) -> str:
    """Dtype and shape of a tensor, such as ``float32[2, 3]``; of a tuple, those of its members."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(describe, value)) + ")"
    return type(value).__name__


class Graph:
    """Runs a plan. Make one with ``Builder``.

    The graph pins each node's live inputs until the backward of their last consumer returns, and releases what a node
    saved right after the node's backward returns. What is left is released at the end of backward, at the start of the
    next forward, by ``mark_step_boundary``, and when forward or backward raises.

    One pass at a time: forward and backward of the same graph may not run in two threads.
    """

    def __init__(self, plan: Plan, sets: SavedSets, running: Running, arena: Arena | None = None) -> None:
        self.plan = plan
        self.arena = arena
        self.sets = sets
        self._running = running
        self._values: dict[str, Any] | None = None
        self._live: dict[str, list[Span]] = {}
        self._end = weakref.finalize(self, _release_all, sets, self._live)
        self._end.atexit = False

    # ---- forward

    def forward(self, *inputs: Tensor) -> Any:
        """Run every node in topological order. Gives the output, or a tuple if the graph has several.

        Raises:
            ShapeError: an input has not the shape that was declared.
            NodeError: a node raised; nothing stays pinned.
        """
        values = self._begin(inputs)
        with self._releasing_on_error(), torch.no_grad(), self._placed():
            for vertex in self.plan.vertices:
                values[vertex.name] = self._run_forward(vertex, values)
            self._values = values  # cachelint: ignore[CL104] the graph is what releases it
            return self._outputs(values)

    def parallel_forward(self, *inputs: Tensor, workers: int = 4) -> Any:
        """The same as ``forward``, with nodes that don't need each other running on ``workers`` threads.

        Saved tensors go to the node that saves them, and the results are published for backward as in ``forward``.
        """
        values = self._begin(inputs)
        state = parallel.ThreadState.capture()

        def step(index: int) -> None:
            vertex = self.plan.vertices[index]
            with state.restored(), torch.no_grad(), self._placed():
                values[vertex.name] = self._run_forward(vertex, values)

        with self._releasing_on_error():
            parallel.run(self._dependencies(), step, workers)
            self._values = values
            return self._outputs(values)

    def _begin(self, inputs: tuple[Tensor, ...]) -> dict[str, Any]:
        self.mark_step_boundary()
        if len(inputs) != len(self.plan.inputs):
            raise GraphError(f"the graph takes {len(self.plan.inputs)} inputs, it was given {len(inputs)}")
        for (name, shape), tensor in zip(self.plan.inputs, inputs, strict=True):
            if shape is not None and not _fits(tensor, shape):
                raise ShapeError(f"input {name!r} is declared as {list(shape)}, it was given {describe(tensor)}")
        return {name: tensor for (name, _), tensor in zip(self.plan.inputs, inputs, strict=True)}

    def _run_forward(self, vertex: Vertex, values: dict[str, Any]) -> Any:
        inputs = tuple(_pick(values, ref, vertex) for ref in vertex.inputs)
        spans: list[Span] = []
        # Registered first: a pin that raises leaves the earlier ones to the release.
        self._live[vertex.name] = spans  # cachelint: ignore[CL107] these are the pins; backward takes them out again
        with self._running.as_owner(vertex.name), _named(vertex, "forward", inputs):
            for tensor in inputs:
                span = pin(tensor)
                if span is not None:
                    spans.append(span)
            result = vertex.node.forward(*inputs)
        return tuple(result) if isinstance(result, list) else result

    def _dependencies(self) -> list[set[int]]:
        number = {vertex.name: index for index, vertex in enumerate(self.plan.vertices)}
        return [{number[ref.name] for ref in v.inputs if ref.name in number} for v in self.plan.vertices]

    def _outputs(self, values: dict[str, Any]) -> Any:
        outputs = tuple(_pick(values, ref, None) for ref in self.plan.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    # ---- backward

    def backward(self, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run every node's backward in reverse order; gives one gradient per graph input, None where there is none.

        ``grads`` are the gradients of the outputs, in their order; they may be left out where every output has a single
        element, for ones. Parameter gradients are accumulated. The gradients that this gives back are ordinary
        results: with an arena they live until its next reset.

        Raises:
            GraphError: there was no forward since the last backward, or the gradients don't match the outputs.
            GradientError: a node gave not one gradient per input.
            ShapeError: a gradient has not the shape of what it belongs to.
            NodeError: a node raised; nothing stays pinned.
        """
        values = self._values
        if values is None:
            raise GraphError("backward needs a forward before it; each forward serves one backward")
        with self._releasing_on_error(), torch.no_grad(), self._placed():
            pending: dict[Ref, _Sum] = defaultdict(_Sum)
            for ref, grad in zip(self.plan.outputs, self._seeds(grads, values), strict=True):
                if grad is not None:
                    pending[ref].add(grad)
            for vertex in reversed(self.plan.vertices):
                self._run_backward(vertex, values, pending)
            found = tuple(pending[Ref(name)].value for name, _ in self.plan.inputs)
        self.mark_step_boundary()
        return found

    def _seeds(self, grads: tuple[Tensor | None, ...], values: dict[str, Any]) -> tuple[Tensor | None, ...]:
        outputs = [_pick(values, ref, None) for ref in self.plan.outputs]
        if not grads:
            if any(output.numel() != 1 for output in outputs):
                raise GraphError("backward needs the gradients of the outputs: only single elements default to one")
            # Not ones_like: a reset may have taken the outputs back since, and only their shape matters here.
            return tuple(torch.ones(o.shape, dtype=o.dtype, device=o.device) for o in outputs)
        if len(grads) != len(outputs):
            raise GraphError(f"the graph has {len(outputs)} outputs, backward was given {len(grads)} gradients")
        for ref, output, grad in zip(self.plan.outputs, outputs, grads, strict=True):
            if grad is not None and grad.shape != output.shape:
                raise ShapeError(f"the gradient of output {ref} is {describe(grad)}, the output {describe(output)}")
        return grads

    def _run_backward(self, vertex: Vertex, values: dict[str, Any], pending: dict[Ref, _Sum]) -> None:
        grad = _gradient_of(vertex.name, values[vertex.name], pending)
        try:
            if grad is None:
                return
            inputs = tuple(_pick(values, ref, vertex) for ref in vertex.inputs)
            with self._running.as_owner(vertex.name), _named(vertex, "backward", inputs):
                found = vertex.node.backward(grad, *inputs)
        finally:
            self._release(vertex.name)
        for ref, tensor, part in zip(vertex.inputs, inputs, _checked(vertex, inputs, found), strict=True):
            if part is not None:
                if not isinstance(part, Tensor):
                    raise GradientError(f"backward of node {vertex}: input {ref} got {describe(part)} as its gradient")
                if part.shape != tensor.shape:
                    raise ShapeError(
                        f"backward of node {vertex}: the gradient of input {ref} is {describe(part)}, "
                        f"the input {describe(tensor)}"
                    )
                pending[ref].add(part)

    # ---- lifetimes

    def mark_step_boundary(self) -> int:
        """End the step without a backward: release everything saved and every live input; how many pins and entries.

        For passes that never run backward. The next forward does the same.
        """
        self._values = None
        return _release_all(self.sets, self._live)

    def _release(self, name: str) -> None:
        self.sets.release(name)
        _unpin(self._live.pop(name, ()))

    @contextmanager
    def _releasing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.mark_step_boundary()
            raise

    def _placed(self) -> AbstractContextManager[object]:
        return nullcontext() if self.arena is None else self.arena.place()

    # ---- the nodes

    def saved(self, name: str) -> tuple[Tensor, ...]:
        """What node ``name`` and its children have saved and not released, in order, duplicates included."""
        return self.sets.tensors(name)

    def node(self, name: str) -> Node:
        """The node called ``name``."""
        for vertex in self.plan.vertices:
            if vertex.name == name:
                return vertex.node
        raise KeyError(name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter of every node, each once, as ``node.path``."""
        seen: set[int] = set()
        for vertex in self.plan.vertices:
            for path, parameter in vertex.node.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{vertex.name}.{path}", parameter

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter of every node, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def zero_grad(self) -> None:
        """Zero every parameter gradient in place."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` on every node."""
        for vertex in self.plan.vertices:
            vertex.node.train(mode)
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)


def _release_all(sets: SavedSets, live: dict[str, list[Span]]) -> int:
    """Also what happens when a graph is dropped in the middle of a step."""
    released = sets.release_all()
    while live:
        released += _unpin(live.popitem()[1])
    return released


def _unpin(spans: Sequence[Span]) -> int:
    for span in spans:
        span.unpin()
    return len(spans)


class Running:
    """Which node runs in this thread: the owner of what a shared child saves."""

    def __init__(self) -> None:
        self._local = threading.local()

    def owner(self) -> str | None:
        """The name of the running node."""
        found: str | None = getattr(self._local, "owner", None)
        return found

    @contextmanager
    def as_owner(self, name: str) -> Iterator[None]:
        """Within the block, ``name`` is the running node of this thread."""
        before = self.owner()
        self._local.owner = name
        try:
            yield
        finally:
            self._local.owner = before


class _Sum:
    """The gradient of one value, summed over its consumers."""

    def __init__(self) -> None:
        self.value: Tensor | None = None
        self._owned = False

    def add(self, grad: Tensor) -> None:
        if self.value is None:
            self.value = grad
        elif self._owned:
            self.value.add_(grad)
        else:  # the first gradient may be a tensor that its node gave to other inputs too: never add to it in place
            self.value = self.value + grad
            self._owned = True


def _gradient_of(name: str, value: Any, pending: dict[Ref, _Sum]) -> Any:
    if not isinstance(value, tuple):
        return pending[Ref(name)].value
    parts = tuple(pending[Ref(name, index)].value for index in range(len(value)))
    return None if all(part is None for part in parts) else parts


def _checked(vertex: Vertex, inputs: tuple[Tensor, ...], found: object) -> Sequence[Any]:
    if isinstance(found, Tensor) and len(inputs) == 1:
        return (found,)
    if not isinstance(found, tuple | list):
        raise GradientError(f"backward of node {vertex} gave {describe(found)}, it must give a tuple of gradients")
    if len(found) != len(inputs):
        raise GradientError(f"backward of node {vertex} gave {len(found)} gradients for {len(inputs)} inputs")
    return found


def _pick(values: dict[str, Any], ref: Ref, vertex: Vertex | None) -> Tensor:
    value = values[ref.name]
    if isinstance(value, tuple):
        if ref.index is None or ref.index >= len(value):
            raise GraphError(f"{ref.name!r} gives {len(value)} results, pick one of them, not {ref}")
        value = value[ref.index]
    elif ref.index is not None:
        raise GraphError(f"{ref.name!r} gives a single result, there is no {ref}")
    if not isinstance(value, Tensor):
        reader = f"node {vertex}" if vertex is not None else "the graph's output"
        raise GraphError(f"{reader} reads {ref}, which is {describe(value)}, not a tensor")
    return value


def _fits(tensor: Tensor, shape: Shape) -> bool:
    return len(tensor.shape) == len(shape) and all(
        want is None or have == want for have, want in zip(tensor.shape, shape, strict=True)
    )


@contextmanager
def _named(vertex: Vertex, phase: str, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    try:
        yield
    except UseAfterReset as error:
        raise located(error, str(vertex), vertex.node, inputs) from error
    except RuntimeContractError:
        raise
    except Exception as error:
        raise NodeError(
            str(vertex), phase, f"{type(error).__name__}: {error} [live inputs {describe(inputs)}]"
        ) from error
