"""What a run was asked to do: one frozen value that every layer below the command line reads.

``config.py`` builds it from ``[tool.cachelint]`` and the command line; nothing else constructs one outside tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DialectSpec:
    """One row of the dialect table: whose forward, whose backward, which receiver.

    ``receiver`` is ``first`` (static methods and functions: the first argument) or ``self``.
    ``recognise`` is ``base``, ``methods`` (a pair of method names, no known base), ``register`` (a registering call) or
    ``decorator``. ``live_inputs`` is ``saved``, ``signature`` or ``retained``.
    """

    name: str
    recognise: str
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    registers: tuple[str, ...] = ()
    receiver: str = "self"
    forward: tuple[str, ...] = ("forward",)
    setup: tuple[str, ...] = ()
    backward: tuple[str, ...] = ("backward",)
    save: tuple[str, ...] = ()
    read_back: tuple[str, ...] = ()
    live_inputs: str = "signature"
    api: tuple[str, ...] = ()
    entry: tuple[str, ...] = ()
    skip_args: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ContractSpec:
    """``[tool.cachelint.contract]``: which package the save-for-backward contract of layers is imported from."""

    module: str = ""
    base: str = "SaverAware"
    save: str = "save_for_backward"
    wires_children: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a verdict or a finding depends on besides source text. Part of every cache key."""

    select: tuple[str, ...] = ("CL",)
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    respect_gitignore: bool = True
    unknown_storage: str = "device"
    """How a field of unknown storage is treated: ``device`` reports it, ``host`` does not. Never silently SAFE."""
    contract: ContractSpec = field(default_factory=ContractSpec)
    dialects: tuple[DialectSpec, ...] = ()
    """Dialects configured by the project, tried before the shipped ones."""
