"""The tables under ``rules/``: well formed, free of contradictions, and complete for the libraries they describe."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

RULES = Path(__file__).parent.parent / "rules"
OPERATORS = RULES / "operators"

CATEGORIES = {
    "alias",
    "alias_list",
    "alias_attr",
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
    "host_attr",
    "host_attr_any",
    "handle",
    "container",
    "element",
    "copy",
    "closure",
    "elementwise_kernel",
    "rowstat_kernel",
    "result_of",
    "ignore",
}
RESULTS = {
    "alias",
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
}
POSITIONAL = {"fills", "host_arg", "device_arg", "device_list_arg", "result_of", "out_place"}
OTHER = {"modules", "kind", "multi", "inplace", "not_inplace", "handle_prefix"}

TABLES = sorted(OPERATORS.glob("*.toml"))


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def names(table: dict[str, Any]) -> set[str]:
    """Every name that the table says something about, positions and results cut off."""
    found: set[str] = set()
    for key, value in table.items():
        if key in CATEGORIES or key in {"multi", "inplace", "not_inplace", "fills"}:
            found.update(word.split(":")[0] for word in value.split())
    return found


def covered(name: str, table: dict[str, Any], known: set[str]) -> bool:
    """Names that end in one underscore stand for the operator of the same name, in place."""
    if name in known or any(name.startswith(prefix) for prefix in table.get("handle_prefix", "").split()):
        return True
    return name.endswith("_") and name[:-1] in known


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
def test_operator_table_is_well_formed(path: Path) -> None:
    table = load(path)
    assert set(table) <= CATEGORIES | POSITIONAL | OTHER
    assert table["modules"].split()
    assert table.get("kind", "function") in {"function", "method"}
    for key, value in table.items():
        assert isinstance(value, str), key
        for word in value.split():
            if key in POSITIONAL:
                assert re.fullmatch(r"[\w.]+:(\*|\w+)(,\w+)*", word), (key, word)
            elif key == "multi":
                name, _, category = word.partition(":")
                assert re.fullmatch(r"[\w.]+", name), word
                assert category in RESULTS, word
            else:
                assert re.fullmatch(r"[\w.]+", word), (key, word)


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
def test_a_name_has_one_meaning(path: Path) -> None:
    """Called, a name has one category. ``host_attr`` and ``alias_attr`` speak of the uncalled name, ``multi`` may stand
    beside one other category where the number of results depends on the arguments."""
    meanings: dict[str, list[str]] = defaultdict(list)
    for key, value in load(path).items():
        if key in CATEGORIES - {"host_attr", "host_attr_any", "alias_attr"}:
            for word in value.split():
                meanings[word.split(":")[0]].append(key)
    assert not {name: keys for name, keys in meanings.items() if len(keys) > 1}


def test_no_two_function_tables_disagree() -> None:
    meanings: dict[str, dict[str, str]] = defaultdict(dict)
    for path in TABLES:
        table = load(path)
        if table.get("kind") == "method":
            continue
        for prefix in table["modules"].split():
            for key, value in table.items():
                if key in CATEGORIES - {"host_attr", "host_attr_any", "ignore"}:
                    for word in value.split():
                        meanings[f"{prefix}.{word.split(':')[0]}"][key] = path.stem
    assert not {name: found for name, found in meanings.items() if len(set(found.values())) > 1}


def test_every_public_callable_of_torch_is_in_the_table() -> None:
    torch = pytest.importorskip("torch")
    table = load(OPERATORS / "torch.toml")
    known = names(table)
    missing = [
        name
        for name in dir(torch)
        if not name.startswith("_")
        and callable(getattr(torch, name, None))
        and getattr(getattr(torch, name), "__module__", "") != "typing"
        and not covered(name, table, known)
    ]
    assert not missing


@pytest.mark.parametrize("module", ["linalg", "fft", "special", "sparse", "signal.windows"])
def test_every_public_callable_of_torchs_function_modules_is_in_the_table(module: str) -> None:
    torch = pytest.importorskip("torch")
    table = load(OPERATORS / "torch.toml")
    known = names(table)
    owner = torch
    for part in module.split("."):
        owner = getattr(owner, part)
    missing = [
        name
        for name in dir(owner)
        if not name.startswith("_")
        and callable(getattr(owner, name))
        and not isinstance(getattr(owner, name), type)
        and getattr(getattr(owner, name), "__module__", "") != "typing"
        and not hasattr(torch.types, name)
        and name != "check_sparse_tensor_invariants"
        and not covered(f"{module}.{name}", table, known)
    ]
    assert not missing


def test_every_public_callable_of_functional_is_in_the_table() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    table = load(OPERATORS / "functional.toml")
    known = names(table)
    missing = [
        name
        for name in dir(functional)
        if not name.startswith("_") and callable(getattr(functional, name)) and not covered(name, table, known)
    ]
    assert not missing


def test_every_public_name_of_tensor_is_in_the_table() -> None:
    torch = pytest.importorskip("torch")
    table = load(OPERATORS / "tensor.toml")
    known = names(table)
    missing = [name for name in dir(torch.Tensor) if not name.startswith("_") and not covered(name, table, known)]
    assert not missing


@pytest.mark.parametrize("file", ["torch", "signatures"])
def test_what_is_said_of_arguments_agrees_with_the_schemas(file: str) -> None:
    torch = pytest.importorskip("torch")
    table = load(OPERATORS / f"{file}.toml")
    schemas = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            schemas[schema.name[6:]].append(schema)
    wrong, checked = [], 0
    for key, tensor in (("host_arg", False), ("device_arg", True), ("device_list_arg", True)):
        for entry in table.get(key, "").split():
            name, _, positions = entry.rpartition(":")
            for position in (int(word) for word in positions.split(",") if word.isdigit()):
                rows = [s.arguments for s in schemas[name] if len(s.arguments) > position]
                kinds = {"Tensor" in str(row[position].type) for row in rows if not row[position].kwarg_only}
                checked += bool(kinds)
                if kinds and tensor not in kinds:
                    wrong.append(f"{key} {name}:{position}")
    assert not wrong
    assert checked > 100


@pytest.mark.parametrize(("file", "module"), [("distributed", "torch.distributed"), ("cuda", "torch.cuda")])
def test_every_public_callable_of_torchs_subpackages_is_in_the_table(file: str, module: str) -> None:
    owner = pytest.importorskip(module)
    if file == "distributed" and not owner.is_available():
        pytest.skip("torch was built without distributed")
    table = load(OPERATORS / f"{file}.toml")
    known = names(table)
    missing = [
        name
        for name in dir(owner)
        if not name.startswith("_") and callable(getattr(owner, name)) and not covered(name, table, known)
    ]
    assert not missing


@pytest.mark.parametrize("module", ["", "linalg", "random", "fft"])
def test_every_public_function_of_numpy_is_in_the_table(module: str) -> None:
    numpy = pytest.importorskip("numpy")
    known = names(load(OPERATORS / "numpy.toml"))
    owner = getattr(numpy, module) if module else numpy
    missing = [
        name
        for name in dir(owner)
        if not name.startswith("_")
        and callable(getattr(owner, name))
        and not isinstance(getattr(owner, name), type)
        and (f"{module}.{name}" if module else name) not in known
    ]
    assert not missing


def test_every_public_name_of_ndarray_is_in_the_table() -> None:
    numpy = pytest.importorskip("numpy")
    known = names(load(OPERATORS / "ndarray.toml"))
    assert not [name for name in dir(numpy.ndarray) if not name.startswith("_") and name not in known]


def test_every_builtin_function_is_in_the_table() -> None:
    import builtins

    known = names(load(OPERATORS / "host.toml"))
    missing = [
        name
        for name in dir(builtins)
        if not name.startswith("_")
        and callable(getattr(builtins, name))
        and name not in known
        and not (isinstance(getattr(builtins, name), type) and issubclass(getattr(builtins, name), BaseException))
    ]
    assert not missing


DIALECTS = sorted((RULES / "dialects").glob("*.toml"))


@pytest.mark.parametrize("path", DIALECTS, ids=lambda p: p.stem)
def test_dialect_is_a_dialect_spec(path: Path) -> None:
    from cachelint.settings import DialectSpec

    table = load(path)
    spec = DialectSpec(**{key: tuple(value) if isinstance(value, list) else value for key, value in table.items()})
    assert spec.name == path.stem
    assert spec.recognise in {"base", "methods", "register", "decorator"}
    assert spec.receiver in {"first", "self"}
    assert spec.live_inputs in {"saved", "signature", "retained"}
    assert spec.description
    assert (spec.recognise == "base") == bool(spec.bases)
    assert (spec.recognise == "register") == bool(spec.registers)
    assert all("." in base for base in spec.bases)
    assert set(spec.save) | set(spec.read_back) <= set(spec.api)


def test_the_dialects_of_the_design_are_all_there() -> None:
    assert {path.stem for path in DIALECTS} == {
        "torch-function",
        "torch-library",
        "graph-node",
        "layer",
        "chainer",
        "paddle",
    }


@pytest.mark.parametrize("dialect", ["torch-function", "torch-library"])
def test_no_public_name_of_ctx_counts_as_a_field(dialect: str) -> None:
    function = pytest.importorskip("torch.autograd.function")
    api = set(load(RULES / "dialects" / f"{dialect}.toml")["api"])
    contexts = [function.FunctionCtx, *([function.Function] if dialect == "torch-function" else [])]
    seen = {name for context in contexts for name in dir(context) if not name.startswith("_")}
    if dialect == "torch-library":
        seen -= {"mark_shared_storage", "save_for_forward"}
    assert not sorted(seen - api - {"name"})  # a method that nobody calls, and an attribute that people set


def test_out_stands_where_numpy_has_it() -> None:
    import inspect

    import numpy

    seen = 0
    for word in load(OPERATORS / "numpy.toml")["out_place"].split():
        name, _, place = word.partition(":")
        function = getattr(numpy, name)
        if isinstance(function, numpy.ufunc):
            assert int(place) == function.nin, name
        else:
            try:
                parameters = list(inspect.signature(function).parameters)
            except ValueError:
                continue
            if "out" not in parameters:
                continue  # keyword only, or a form of its own
            assert parameters.index("out") == int(place), name
        seen += 1
    assert seen > 90
    functions = dict(word.split(":") for word in load(OPERATORS / "numpy.toml")["out_place"].split())
    for word in load(OPERATORS / "ndarray.toml")["out_place"].split():
        name, _, place = word.partition(":")
        assert int(place) == int(functions[name]) - 1, name
