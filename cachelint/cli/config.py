"""``cachelint config``: what is set, and where it was set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import click

from cachelint.cli._console import write
from cachelint.cli._status import CLEAN, UsageProblem


@click.command("config")
@click.argument("path", default=".", metavar="[PATH]")
@click.option("--config", "pinned", metavar="FILE", help="Take the configuration from FILE, whatever lies nearer.")
@click.option("--isolated", is_flag=True, help="Ignore all configuration files.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--keys", is_flag=True, help="List every key with its meaning instead.")
def command(path: str, pinned: str | None, isolated: bool, form: str, keys: bool) -> int:
    """Show the settings that hold for a file or folder, and where each comes from."""
    from cachelint.config import KEYS, ConfigError, Configs, effective

    if keys:
        documented: dict[str, Any] = {name: key.doc for name, key in KEYS.items()}
        write(_json(documented) if form == "json" else (f"{name:<20}  {doc}\n" for name, doc in documented.items()))
        return CLEAN
    target = os.path.abspath(path)
    if not os.path.exists(target):
        raise UsageProblem(f"{path}: no such file or directory")
    try:
        configs = Configs(os.getcwd(), pinned=pinned, isolated=isolated)
        config = configs.at(target) if os.path.isdir(target) else configs.of(target)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    settings = effective(config)
    if form == "json":
        shape = {key: {"value": value, "origin": origin} for key, value, origin in settings}
        write(_json({"path": config.path, "root": config.root, "settings": shape}))
    else:
        write(_text(config.path, settings))
    return CLEAN


def _json(value: Any) -> Iterator[str]:
    yield json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _text(path: str | None, settings: list[tuple[str, Any, str]]) -> Iterator[str]:
    yield f"# {path or 'no configuration file: the defaults hold'}\n"
    widest = max(len(key) for key, _, _ in settings)
    for key, value, origin in settings:
        note = "" if origin == "default" else f"  # {origin}"
        yield f"{key:<{widest}} = {_toml(value)}{note}\n"


def _toml(value: Any) -> str:
    """A value as TOML would write it; what is unset is an empty string there."""
    if value is None:
        return '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        pairs = (f"{_key(str(name))} = {_toml(item)}" for name, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    return "[" + ", ".join(_toml(item) for item in value) + "]"


def _key(name: str) -> str:
    hyphened = name.replace("_", "-")
    return (
        hyphened if hyphened.replace("-", "").isalnum() and hyphened.isascii() else json.dumps(name, ensure_ascii=False)
    )
