"""What a command names: ``MODULE:NAME``, made ready to run.

MODULE is a dotted name or the path of a file. NAME is a function, a ``torch.autograd.Function``, an object, or a class of
layers, which is constructed. Without NAME, or without a specification of the arguments, the module's own ``example``
function gives what to run: ``example(seed, device, dtype)``, of which it need not take all, returns the inputs, or a
layer and its inputs.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from cachelint.runtime.arguments import Spec, make
from cachelint.runtime.layers.init import Init
from cachelint.runtime.poison_holders import reach
from cachelint.runtime.sites import is_user, short
from cachelint.runtime.subject import named_tensors


class TargetError(Exception):
    """A target can't be found, imported or constructed; the message is one line."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How to make a target and its arguments. ``sizes`` are the named sizes, ``options`` go to a constructor.

    ``example`` names one of several example functions: ``relu`` stands for ``example_relu``.
    """

    specs: tuple[Spec, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """An imported module and the name in it; ``name`` empty stands for what the module's ``example`` makes."""

    label: str
    module: ModuleType
    name: str
    imported: frozenset[str] = frozenset()
    """The modules that loading it brought into ``sys.modules``."""

    @property
    def value(self) -> Any:
        """What the name stands for."""
        found: Any = self.module
        for part in self.name.split(".") if self.name else ():
            found = getattr(found, part)
        return found

    def ready(self, setup: Setup) -> tuple[Any, tuple[Any, ...]]:
        """The thing to run and its inputs, made anew.

        Raises:
            TargetError: it can't be constructed, or nothing says what its inputs are.
            SpecError: a named size is missing.
        """
        example = self._example(setup) if not setup.specs else None
        if example is None and not setup.specs:
            raise TargetError(f"{self.label}: give its arguments with --input, or an example function in the module")
        given, inputs = example or (None, ())
        if setup.specs:
            inputs = make(setup.specs, sizes=setup.sizes, device=setup.device, dtype=setup.dtype, seed=setup.seed)
        value = self.value if self.name else given
        if given is not None and not setup.options and (value is type(given) or value is given):
            return given, inputs
        if inspect.isclass(value) and not issubclass(value, torch.autograd.Function):
            value = self._constructed(value, setup)
        if isinstance(value, ModuleType) or value is None:
            raise TargetError(f"{self.label}: say what to run, as {self.label}:NAME")
        return value, inputs

    def _example(self, setup: Setup) -> tuple[Any, tuple[Any, ...]] | None:
        function = getattr(self.module, f"example_{setup.example}" if setup.example else "example", None)
        if not callable(function):
            if setup.example:
                raise TargetError(f"{self.label}: its module has no function example_{setup.example}")
            return None
        given = {"seed": setup.seed, "device": setup.device, "dtype": setup.dtype, **setup.sizes}
        found = self._call(function, given, "its example function")
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], tuple | list):
            return found[0], tuple(found[1])
        return None, tuple(found) if isinstance(found, tuple | list) else (found,)

    def _constructed(self, kind: type, setup: Setup) -> Any:
        shapes_only = torch.device(setup.device).type == "meta"
        init = (ShapesOnly if shapes_only else Init).seeded(setup.seed, setup.device, setup.dtype)
        given = {"device": setup.device, "dtype": setup.dtype, "seed": setup.seed, "init": init}
        before = torch.get_default_dtype()
        with torch.random.fork_rng():
            torch.manual_seed(setup.seed)
            if setup.dtype.is_floating_point:
                torch.set_default_dtype(setup.dtype)
            try:
                made = self._call(kind, given, "its constructor", setup.options)
            finally:
                torch.set_default_dtype(before)
        if isinstance(made, torch.nn.Module):
            made.to(device=setup.device, dtype=setup.dtype if setup.dtype.is_floating_point else None)
        return made

    def _call(
        self,
        function: Callable[..., Any],
        given: Mapping[str, Any],
        what: str,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            names = inspect.signature(function).parameters
            known = {name: value for name, value in given.items() if name in names and name not in (options or {})}
            return function(**known, **(options or {}))
        except Exception as error:  # whatever the code under test raises
            raise TargetError(f"{self.label}: {what} raised {describe(error)}") from error


class ShapesOnly(Init):
    """For the meta device, where drawing values on the CPU first would be thrown away."""

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        """No values."""
        return torch.empty(shape, device=self.device, dtype=self.dtype or torch.get_default_dtype())

    def normal(self, *shape: int, std: float = 1.0) -> Tensor:
        """No values."""
        return self.uniform(*shape)


def describe(error: BaseException) -> str:
    """One line: where in user code it was raised, its kind and its message."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user(frame.filename)]
    place = f" at {short(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: " + " ".join(str(error).split())


def tensors_named(value: Any, inputs: Sequence[Any]) -> dict[str, Tensor]:
    """The tensors that are there before a run: those that the target reaches, and the inputs, by name."""
    found: dict[str, Tensor] = {}
    for index, argument in enumerate(inputs):
        found.update(named_tensors(argument, f"input {index}"))
    found.update(reach(value, "self" if not inspect.isroutine(value) else getattr(value, "__name__", "function")))
    return found
