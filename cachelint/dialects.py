"""The dialect table: shipped rows from ``rules/dialects``, the project's own first."""

from __future__ import annotations

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


def by_name(name: str, settings: Settings) -> DialectSpec:
    """The dialect called ``name``. Raises KeyError."""
    for spec in (*settings.dialects, *shipped()):
        if spec.name == name:
            return spec
    raise KeyError(name)
