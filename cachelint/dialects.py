"""The dialect table: shipped rows from ``rules/dialects``, the project's own first."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

from cachelint.data import load_tables
from cachelint.settings import DialectSpec, Settings


@lru_cache(maxsize=1)
def shipped() -> tuple[DialectSpec, ...]:
    """The dialects that come with the linter."""
    return tuple(_spec(table) for table in load_tables("dialects").values())


def _spec(table: dict[str, Any]) -> DialectSpec:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return DialectSpec(**values)


@lru_cache(maxsize=8)
def known(settings: Settings) -> tuple[DialectSpec, ...]:
    """The project's dialects, then the shipped ones. Layers register as the configured contract does."""
    contract = settings.contract
    rows = shipped()
    if contract.module and contract.save:
        rows = tuple(_with_save(spec, contract.save) if spec.name in _LAYERS else spec for spec in rows)
    return (*settings.dialects, *rows)


_LAYERS = ("graph-node", "layer")


def _with_save(spec: DialectSpec, save: str) -> DialectSpec:
    others = tuple(name for name in spec.save if name != save)
    return dataclasses.replace(spec, save=(save, *others), api=(*spec.api, save))


def by_name(name: str, settings: Settings) -> DialectSpec:
    """The dialect called ``name``. Raises KeyError."""
    for spec in known(settings):
        if spec.name == name:
            return spec
    raise KeyError(name)
