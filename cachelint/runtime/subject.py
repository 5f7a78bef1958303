"""What is run: a function under autograd, a custom Function, a module, or a layer with a hand-written backward.

All of them become a ``Subject``, fresh for one run: ``forward`` on copies of the inputs, then ``backward``, which gives
gradients by name.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from cachelint.runtime.poison_holders import leaves_of, reach
from cachelint.runtime.saver import Saver, wire
from cachelint.runtime.storages import tensors_in
from cachelint.runtime.walk import Walkable

Gradients = dict[str, Tensor | None]


@dataclass(slots=True)
class Arguments:
    """Copies of the inputs for one run. ``leaves`` get the gradients; ``given`` is what forward is called with."""

    given: tuple[Any, ...]
    leaves: dict[str, Tensor] = field(default_factory=dict)


class Subject(Protocol):
    """One thing to run once. ``receivers`` are the objects that may hold tensors, by the name that paths begin with."""

    name: str
    receivers: Mapping[str, object]

    def arguments(self, inputs: Sequence[Any]) -> Arguments:
        """Copies of ``inputs`` that forward may change in place."""

    def forward(self, arguments: Arguments, saver: Saver | None) -> Any:
        """The result of forward. What the subject registers by itself goes to ``saver``."""

    def backward(
        self, result: Any, grads: Sequence[Tensor], arguments: Arguments, live: Sequence[Any], graph: bool = False
    ) -> Gradients:
        """The gradients by name. ``grads`` has one tensor per tensor of ``result``; ``live`` are the live inputs.

        With ``graph`` the gradients can be differentiated again.
        """


Maker = Callable[[], tuple[Subject, str]]
"""Makes a fresh subject, with a note: empty, or why it shares state with the ones made before."""


def subject(
    target: object,
    *,
    live_inputs: bool = True,
    autograd: bool = False,
    fresh: Callable[[], object] | None = None,
) -> Maker:
    """A maker of subjects for ``target``.

    ``target`` is a ``torch.autograd.Function`` subclass, an object with ``forward`` and a hand-written ``backward``, a
    ``torch.nn.Module``, or any callable. ``live_inputs=False`` leaves the live inputs out of a hand-written backward;
    ``autograd`` differentiates such an object through its forward instead. Layers are copied for every run, or made by
    ``fresh``.

    Raises:
        TypeError: ``target`` is none of these.
    """
    if isinstance(target, type):
        if not issubclass(target, torch.autograd.Function):
            raise TypeError(f"{target.__name__} is a class; give an instance, or a torch.autograd.Function")
        apply: Callable[..., Any] = target.apply
        return lambda: (Autograd(apply, target.__name__, {}), "")
    by_hand = not autograd and is_by_hand(target)
    if not by_hand and not callable(target):
        raise TypeError(f"{type(target).__name__} can't be called and has no forward and backward")

    def made() -> tuple[Subject, str]:
        again: Any
        again, note = (fresh(), "") if fresh is not None else _copied(target)
        name = getattr(target, "__qualname__", None) or type(target).__name__
        if by_hand:
            return ByHand(again, name, live_inputs), note
        return Autograd(again, name, {name if inspect.isroutine(again) else "self": again}), note

    return made


def is_by_hand(target: object) -> bool:
    """Whether ``target`` is an object with a forward and a backward of its own."""
    return not isinstance(target, type) and all(callable(getattr(target, n, None)) for n in ("forward", "backward"))


def _is_layer(value: object) -> bool:
    return isinstance(value, torch.nn.Module | Walkable) or is_by_hand(value)


def _copied(target: object) -> tuple[Any, str]:
    owner = getattr(target, "__self__", target)
    if not _is_layer(owner):
        return target, ""
    try:
        return copy.deepcopy(target), ""
    except Exception as error:  # whatever the layer's own copying raises
        return target, f"{type(owner).__name__} can't be copied ({error}), so the runs share its state"


def named_tensors(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one argument, each with its name: ``input 0``, ``input 0[1]``."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from named_tensors(member, f"{name}[{index}]")
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from named_tensors(member, f"{name}[{key!r}]")


def replaced(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with ``change(t)`` for each tensor in it; lists, tuples and dicts are made anew."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(member, change) for member in value))
    if isinstance(value, list | tuple):
        return type(value)(replaced(member, change) for member in value)
    if isinstance(value, dict):
        return {key: replaced(member, change) for key, member in value.items()}
    return value


def once(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """``change`` that gives the same result for the same tensor object again."""
    done: dict[int, tuple[Tensor, Tensor]] = {}

    def changed(tensor: Tensor) -> Tensor:
        if id(tensor) not in done:
            done[id(tensor)] = (tensor, change(tensor))
        return done[id(tensor)][1]

    return changed


def differentiable(tensor: Tensor) -> bool:
    """Whether a gradient can flow into ``tensor``."""
    return tensor.is_floating_point() or tensor.is_complex()


def upstream(outputs: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    """A gradient for each output, the same for the same seed on every device: magnitudes in [0.25, 1], random signs."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for output in outputs:
        if output.device.type == "meta":
            found.append(torch.empty_like(output))
            continue
        size = torch.rand(output.shape, generator=generator, dtype=torch.float64) * 0.75 + 0.25
        sign = torch.randint(0, 2, output.shape, generator=generator) * 2 - 1
        found.append((size * sign).to(output.device, output.dtype))
    return tuple(found)


class Autograd:
    """A callable that torch differentiates."""

    def __init__(self, function: Callable[..., Any], name: str, receivers: Mapping[str, object]) -> None:
        self.function = function
        self.name = name
        self.receivers = receivers

    def arguments(self, inputs: Sequence[Any]) -> Arguments:
        """Leaves, and clones of them, which may be changed in place.

        The inputs that require gradients do so here; if none does, all floating-point ones do.
        """
        tensors = list(tensors_in(list(inputs)))
        chosen = any(tensor.requires_grad for tensor in tensors)

        def leaf(tensor: Tensor) -> Tensor:
            wanted = tensor.requires_grad if chosen else differentiable(tensor)
            return tensor.detach().clone().requires_grad_(wanted)

        leaf_of = once(leaf)
        leaves = {
            name: leaf_of(tensor)
            for index, value in enumerate(inputs)
            for name, tensor in named_tensors(value, f"input {index}")
        }
        with torch.enable_grad():
            clone = once(lambda tensor: leaf_of(tensor).clone())
            given = tuple(replaced(value, clone) for value in inputs)
        return Arguments(given, {name: t for name, t in leaves.items() if t.requires_grad})

    def forward(self, arguments: Arguments, saver: Saver | None) -> Any:
        """Call the function with gradients enabled."""
        with torch.enable_grad():
            return self.function(*arguments.given)

    def backward(
        self, result: Any, grads: Sequence[Tensor], arguments: Arguments, live: Sequence[Any], graph: bool = False
    ) -> Gradients:
        """The gradients of the inputs and of every leaf that forward has used.

        Raises:
            ValueError: no output can be differentiated.
        """
        pairs = [(o, g) for o, g in zip(tensors_in(result), grads, strict=True) if o.requires_grad]
        if not pairs:
            raise ValueError(f"no output of {self.name} requires a gradient, so there is nothing to differentiate")
        outputs = [output for output, _ in pairs]
        leaves = self._leaves(arguments, outputs)
        if graph:
            found = torch.autograd.grad(
                outputs, list(leaves.values()), [g for _, g in pairs], create_graph=True, allow_unused=True
            )
            return dict(zip(leaves, found, strict=True))
        # Not autograd.grad: reentrant checkpoints work only with backward.
        before = {name: leaf.grad for name, leaf in leaves.items()}
        try:
            for leaf in leaves.values():
                leaf.grad = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                torch.autograd.backward(outputs, [g for _, g in pairs])
            return {name: leaf.grad for name, leaf in leaves.items()}
        finally:
            for name, leaf in leaves.items():
                leaf.grad = before[name]

    def _leaves(self, arguments: Arguments, outputs: Sequence[Tensor]) -> dict[str, Tensor]:
        found = dict(arguments.leaves)
        known = {id(tensor) for tensor in found.values()}
        held = [entry for name, receiver in self.receivers.items() for entry in reach(receiver, name)]
        used = [(f"leaf {list(leaf.shape)}", leaf) for leaf in leaves_of(outputs)]
        for name, tensor in held + used:
            if tensor.requires_grad and tensor.is_leaf and id(tensor) not in known:
                known.add(id(tensor))
                found[name if name not in found else f"{name} #{len(found)}"] = tensor
        return found


class ByHand:
    """A layer with its own backward, run without recording."""

    def __init__(self, layer: Any, name: str, live_inputs: bool) -> None:
        self.layer = layer
        self.name = name
        self.live_inputs = live_inputs
        self.receivers: Mapping[str, object] = {"self": layer}

    def arguments(self, inputs: Sequence[Any]) -> Arguments:
        """Clones of the inputs."""
        clone = once(lambda tensor: tensor.detach().clone())
        return Arguments(tuple(replaced(value, clone) for value in inputs))

    def forward(self, arguments: Arguments, saver: Saver | None) -> Any:
        """Call forward; every SaverAware layer that the walk reaches is wired to ``saver``."""
        wire(self.layer, saver)
        if callable(getattr(self.layer, "set_saver", None)):
            self.layer.set_saver(saver)
        with torch.no_grad():
            return self.layer.forward(*arguments.given)

    def backward(
        self, result: Any, grads: Sequence[Tensor], arguments: Arguments, live: Sequence[Any], graph: bool = False
    ) -> Gradients:
        """What backward returns, by input, and every gradient that it leaves on the layer.

        Raises:
            ValueError: a second derivative is asked for, which a hand-written backward has not.
        """
        if graph:
            raise ValueError(f"{self.name} has a hand-written backward, which gives no second derivative")
        before = {id(tensor): tensor for _, tensor in reach(self.layer)}
        grad = tuple(grads) if isinstance(result, tuple | list) else grads[0]
        given = taken(self.layer.backward, live) if self.live_inputs else ()
        with torch.no_grad():
            found = self.layer.backward(grad, *given)
        gradients: Gradients = {}
        for index, value in enumerate(found if isinstance(found, tuple | list) else (found,)):
            name = f"input {index}"
            gradients.update(named_tensors(value, name) if value is not None else {name: None}.items())
        for path, tensor in reach(self.layer, "self"):
            if path.endswith(".grad") or id(tensor) not in before:
                gradients[path] = tensor
        return gradients


def taken(backward: Callable[..., Any], live: Sequence[Any]) -> tuple[Any, ...]:
    """The live inputs that ``backward`` takes beside the gradient: all of them, the first few, or none."""
    signature = inspect.signature(backward)
    for count in range(len(live), 0, -1):
        try:
            signature.bind(*range(1 + count))
        except TypeError:
            continue
        return tuple(live[:count])
    return ()
