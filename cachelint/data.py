"""Where the shipped data is: the checkout's ``rules/`` folder, or ``_rules`` inside the installed package."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


@lru_cache(maxsize=1)
def rules_dir() -> str:
    """The folder with the catalogue, the operator table and the dialects."""
    packaged = os.path.join(_HERE, "_rules")
    return packaged if os.path.isdir(packaged) else os.path.join(os.path.dirname(_HERE), "rules")


def load_tables(folder: str) -> dict[str, dict[str, Any]]:
    """Every TOML file of ``rules/<folder>``, by stem, in name order. Raises OSError and tomllib.TOMLDecodeError.

    A wheel has them as one file of JSON as well, which is read in a tenth of the time.
    """
    base = os.path.join(rules_dir(), folder)
    try:
        with open(f"{base}.json", "rb") as packed:
            found: dict[str, dict[str, Any]] = json.load(packed)
        return found
    except FileNotFoundError:
        import tomllib

    tables = {}
    for name in sorted(os.listdir(base)):
        if name.endswith(".toml"):
            with open(os.path.join(base, name), "rb") as file:
                tables[name[:-5]] = tomllib.load(file)
    return tables
