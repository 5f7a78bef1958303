"""The operator table (``rules/operators``): for a dotted name or a tensor method, what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from cachelint.data import load_tables

_FUNCTION_CATEGORIES: Final = (
    "alias",
    "alias_list",
    "cast",
    "elementwise",
    "rowstat",
    "index",
    "constant",
    "empty",
    "expensive",
    "scan",
    "random",
    "collective",
    "host_value",
    "handle",
    "container",
    "element",
    "copy",
    "closure",
    "elementwise_kernel",
    "rowstat_kernel",
    "result_of",
    "inplace",
    "ignore",
)


@dataclass
class Operators:
    """All tables as dictionaries from name to category or argument positions."""

    functions: dict[str, str] = field(default_factory=dict)
    multi: dict[str, str] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    method_multi: dict[str, str] = field(default_factory=dict)
    host_attrs: frozenset[str] = frozenset()
    plain_attrs: frozenset[str] = frozenset()
    """Host values on a tensor, and no evidence that their owner is one."""
    alias_attrs: frozenset[str] = frozenset()
    handle_prefixes: tuple[str, ...] = ()
    not_inplace: frozenset[str] = frozenset()
    fills: dict[str, tuple[str, ...]] = field(default_factory=dict)
    method_fills: dict[str, tuple[str, ...]] = field(default_factory=dict)
    host_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    device_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    device_list_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    method_host_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    method_device_args: dict[str, tuple[str, ...]] = field(default_factory=dict)
    out_places: dict[str, int] = field(default_factory=dict)
    """The place of ``out`` among the positional arguments, by the bare name of a function."""
    method_out_places: dict[str, int] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    """The dotted names under which the functions stand, and what stands before them."""

    def names(self, dotted: str) -> bool:
        """Whether a dotted name is an operator of the table, or a namespace of some.

        A project that is itself such a library has code for it: what the table says is more than the code shows.
        """
        category = self.functions.get(dotted)
        return dotted in self.multi or dotted in self.namespaces or (category is not None and category != "ignore")

    def category(self, dotted: str) -> str | None:
        """The category of a function by its dotted name."""
        return self.functions.get(dotted)


def _pairs(text: str, prefixes: list[str]) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for entry in text.split():
        name, _, positions = entry.rpartition(":")
        value = tuple(positions.split(","))
        for prefix in prefixes:
            table[f"{prefix}.{name}" if prefix else name] = value
    return table


@lru_cache(maxsize=1)
def operators() -> Operators:
    """The table, read once a process."""
    result = Operators()
    host_attrs: set[str] = set()
    plain_attrs: set[str] = set()
    alias_attrs: set[str] = set()
    prefixes_of_handles: list[str] = []
    not_inplace: set[str] = set()
    libraries: set[str] = set()
    namespaces: set[str] = set()
    for table in load_tables("operators").values():
        modules = str(table.get("modules", "")).split()
        places = result.method_out_places if table.get("kind") == "method" else result.out_places
        for entry in str(table.get("out_place", "")).split():
            name, _, place = entry.rpartition(":")
            places[name] = int(place)
        if table.get("kind") == "method":
            _methods(table, result, host_attrs, alias_attrs, not_inplace)
            plain_attrs.update(str(table.get("host_attr_any", "")).split())
        else:
            libraries.update(m.split(".")[0] for m in modules)
            namespaces.update(".".join(m.split(".")[:n]) for m in modules for n in range(1, m.count(".") + 2))
            _functions(table, modules or [""], result, prefixes_of_handles)
            not_inplace.update(str(table.get("not_inplace", "")).split())
    result.host_attrs = frozenset(host_attrs)
    result.plain_attrs = frozenset(plain_attrs)
    result.alias_attrs = frozenset(alias_attrs)
    result.handle_prefixes = tuple(prefixes_of_handles)
    result.not_inplace = frozenset(not_inplace)
    result.libraries = frozenset(libraries)
    result.namespaces = frozenset(namespaces)
    return result


def _functions(table: dict[str, Any], modules: list[str], result: Operators, handles: list[str]) -> None:
    heads = [f"{module}." if module and module != "builtins" else "" for module in modules]
    for category in _FUNCTION_CATEGORIES:
        text = table.get(category)
        if text:
            names = text.split()
            for head in heads:
                for name in names:
                    result.functions.setdefault(head + name, category)
    for entry in str(table.get("multi", "")).split():
        name, _, category = entry.rpartition(":")
        for head in heads:
            result.multi[head + name] = category
    handles.extend(head + name for head in heads for name in str(table.get("handle_prefix", "")).split())
    plain = [head.rstrip(".") for head in heads]
    result.fills.update(_pairs(str(table.get("fills", "")), plain))
    result.host_args.update(_pairs(str(table.get("host_arg", "")), plain))
    result.device_args.update(_pairs(str(table.get("device_arg", "")), plain))
    result.device_list_args.update(_pairs(str(table.get("device_list_arg", "")), plain))
    for name in str(table.get("alias_attr", "")).split():
        for head in heads:
            result.functions.setdefault(head + name, "alias")


def _methods(
    table: dict[str, Any], result: Operators, host_attrs: set[str], alias_attrs: set[str], not_inplace: set[str]
) -> None:
    for category in _FUNCTION_CATEGORIES:
        for name in str(table.get(category, "")).split():
            result.methods.setdefault(name, category)
    for entry in str(table.get("multi", "")).split():
        name, _, category = entry.rpartition(":")
        result.method_multi.setdefault(name, category)
    host_attrs.update(str(table.get("host_attr", "")).split())
    alias_attrs.update(str(table.get("alias_attr", "")).split())
    not_inplace.update(str(table.get("not_inplace", "")).split())
    result.method_fills.update(_pairs(str(table.get("fills", "")), [""]))
    for key, target in (("host_arg", result.method_host_args), ("device_arg", result.method_device_args)):
        for name, positions in _pairs(str(table.get(key, "")), [""]).items():
            target.setdefault(name, positions)
