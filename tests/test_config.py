"""Configuration: where it is found, what it may say, and where a mistake in it stands."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachelint import catalogue, select
from cachelint.config import KEYS, Config, ConfigError, Configs, effective, key_lines
from cachelint.settings import ContractSpec, Settings


def _config(folder: Path, text: str, name: str = "pyproject.toml", **command_line: Any) -> Config:
    (folder / name).write_text(text)
    return Configs(str(folder), command_line).at(str(folder))


def _refusal(folder: Path, text: str, name: str = "pyproject.toml", **command_line: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        _config(folder, text, name, **command_line)
    return str(caught.value)


FULL = """
[project]
name = "x"

[tool.cachelint]
select = ["CL1", "cached-live-input"]
ignore = ["CL103"]
extend-ignore = ["CL104"]
extend-select = ["CL215"]
extend-exclude = ["gen"]
respect-gitignore = false
force-exclude = true
unknown-storage = "host"
cache-dir = "../cache"
baseline = "b.json"

[tool.cachelint.per-file-ignores]
"tests/*" = ["CL1"]
"!src/" = ["CL2"]

[tool.cachelint.contract]
module = "acme.nn"
wires-children = false

[[tool.cachelint.dialect]]
name = "acme"
recognise = "base"
bases = ["acme.Op"]
live-inputs = "saved"
skip-args = 1
"""


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    config = _config(tmp_path / "p", FULL)
    settings = config.settings
    assert settings.select == ("CL1", "cached-live-input")
    assert settings.ignore == ("CL103", "CL104")
    assert settings.extend_select == ("CL215",)
    assert settings.exclude == ("gen",)
    assert not settings.respect_gitignore
    assert settings.unknown_storage == "host"
    assert settings.contract == ContractSpec(module="acme.nn", wires_children=False)
    (dialect,) = settings.dialects
    assert (dialect.name, dialect.bases, dialect.live_inputs, dialect.skip_args) == ("acme", ("acme.Op",), "saved", 1)
    assert config.force_exclude
    assert config.default_excludes
    assert config.cache_dir == str(tmp_path / "cache")
    assert config.baseline == str(tmp_path / "p/b.json")
    assert config.ignored_codes(str(tmp_path / "p/tests/a.py")) == ("CL1", "CL2")
    assert config.ignored_codes(str(tmp_path / "p/src/a.py")) == ()
    assert config.ignored_codes(str(tmp_path / "other.py")) == ()


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert Configs(str(tmp_path)).at(str(tmp_path)).settings == Settings()


def test_the_nearest_file_holds_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.cachelint]\nselect = ["CL1"]\nignore = ["CL103"]\n')
    (tmp_path / "a/pyproject.toml").write_text("[tool.black]\n# not for cachelint\n")
    (tmp_path / "a/b/.cachelint.toml").write_text('select = ["CL2"]\n')
    configs = Configs(str(tmp_path))
    assert configs.at(str(tmp_path / "a")).settings.select == ("CL1",)
    for folder in ("a/b", "a/b/c"):
        assert configs.at(str(tmp_path / folder)).settings == Settings(select=("CL2",))


def test_our_own_file_comes_before_pyproject(tmp_path: Path) -> None:
    (tmp_path / "cachelint.toml").write_text('select = ["CL2"]\n')
    assert _config(tmp_path, '[tool.cachelint]\nselect = ["CL1"]\n').settings.select == ("CL2",)


def test_the_command_line_goes_over_every_file(tmp_path: Path) -> None:
    config = _config(tmp_path, FULL, select=["CL3"], baseline="x.json")
    assert config.settings.select == ("CL3",)
    assert config.settings.ignore == ("CL103", "CL104")
    origins = {key: origin for key, _, origin in effective(config)}
    assert origins["select"] == "command line"
    assert origins["ignore"] == "pyproject.toml"
    assert origins["exclude"] == "pyproject.toml"
    assert origins["output-format"] == "default"


def test_patterns_of_the_command_line_are_relative_to_where_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.cachelint]\n")
    config = Configs(str(tmp_path / "sub"), {"extend-exclude": ["gen/x", "name", "./y/z/"]}).at(str(tmp_path / "sub"))
    assert config.settings.exclude == ("/sub/gen/x", "name", "/sub/y/z/")


def test_a_pinned_file_holds_everywhere_and_isolated_none(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.cachelint]\nselect = ["CL1"]\n')
    (tmp_path / "other.toml").write_text('select = ["CL2"]\n')
    pinned = Configs(str(tmp_path), pinned="other.toml")
    assert pinned.at(str(tmp_path / "sub")).settings.select == ("CL2",)
    assert Configs(str(tmp_path), isolated=True).at(str(tmp_path)).settings == Settings()
    with pytest.raises(ConfigError, match=r"^none\.toml: cannot be read"):
        Configs(str(tmp_path), pinned="none.toml")


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("[tool.cachelint]\n\nselct = []\n", 3, ["unknown key 'selct'", "did you mean 'select'"]),
        ("[tool.cachelint]\nper_file_ignores = {}\n", 2, ["did you mean 'per-file-ignores'"]),
        ('[tool.cachelint]\nselect = "CL1"\n', 2, ["select must be a list of strings, not a string"]),
        ("[tool.cachelint]\nselect = [1]\n", 2, ["not a list of other things"]),
        ('[tool.cachelint]\nselect = ["CL1"]\nignore = [\n  "CL999",\n]\n', 3, ["'CL999' selects no rule"]),
        ('[tool.cachelint]\nrespect-gitignore = "no"\n', 2, ["must be true or false, not a string"]),
        ('[tool.cachelint]\nunknown-storage = "gpu"\n', 2, ["'device' or 'host', not 'gpu'"]),
        ("[tool.cachelint]\nbaseline = 1979-05-27\n", 2, ["a string, not a date"]),
        ("[tool]\ncachelint.select = 3\n", 2, ["not a number"]),
        ("tool.cachelint = 3\n", 1, ["must be a table"]),
        ("[tool.cachelint.contract]\nbase = 'B'\nmodul = 'x'\n", 3, ["unknown key 'modul' in contract", "'module'"]),
        ("[tool.cachelint]\n'per-file-ignores' = ['CL1']\n", 2, ["must be a table of patterns"]),
        ("[tool.cachelint.per-file-ignores]\n'a' = ['CL1']\n'b.py' = 'CL1'\n", 3, ["must be a list of strings"]),
        ("[[tool.cachelint.dialect]]\nname = 'x'\n", 1, ["needs 'recognise'"]),
        ("[[tool.cachelint.dialect]]\nname = 'x'\nrecognise = 'base'\n", 1, ["names no 'bases'"]),
        ("[[tool.cachelint.dialect]]\nname = 'x'\nrecognise = 'magic'\n", 3, ["must be 'base' or"]),
        ("[tool.cachelint]\ndialect = 3\n", 2, ["array of tables"]),
        ("[tool.cachelint]\nselect = [\n", 3, ["not TOML"]),
        ("x = = 1 # cachelint\n", 1, ["not TOML: invalid value"]),
        ('[tool.cachelint]\n\noutput-format = "yaml"\n', 3, ["must be 'concise' or", "not 'yaml'"]),
        ('[tool.cachelint]\ncache-dir = ""\n', 2, ["cache-dir is empty"]),
        ('[tool.cachelint]\nbaseline = "a\\u0000b"\n', 2, ["null byte"]),
        ("[tool.cachelint]\nselect = " + "[" * 100_000, 1, ["nested too deeply"]),
        ("[tool.cachelint]\nselect = " + "1" * 10_000, 1, ["a number too long"]),
    ],
)
def test_mistakes_name_their_line(tmp_path: Path, text: str, where: int, words: list[str]) -> None:
    message = _refusal(tmp_path, text)
    assert message.startswith(f"pyproject.toml:{where}: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_mistakes_on_the_command_line_say_so(tmp_path: Path) -> None:
    assert _refusal(tmp_path, "", select=["zz"]) == "command line: 'zz' selects no rule"


def test_a_broken_pyproject_that_is_not_about_us_is_left_alone(tmp_path: Path) -> None:
    assert _config(tmp_path, "[tool.black\n").settings == Settings()
    assert "not TOML" in _refusal(tmp_path, "[x\n", "cachelint.toml")
    (tmp_path / "cachelint.toml").write_bytes(b"\n\xff")
    assert "cachelint.toml:2: not UTF-8" in _refusal(tmp_path, "")


_SCALARS = st.one_of(st.booleans(), st.integers(0, 9), st.sampled_from(["CL1", "x", "host", "ALL"]))
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)


@given(st.dictionaries(st.sampled_from([*KEYS, "nonsense"]), _VALUES, max_size=3))
def test_any_table_is_taken_or_refused_in_one_line(table: dict[str, Any]) -> None:
    try:
        config = Configs("/nowhere", table, isolated=True).at("/nowhere")
    except ConfigError as caught:
        message = str(caught)
    else:
        message = ""
        hash(config.settings)  # part of cache keys
        assert {key for key, _ in config.origins} == set(table)
    assert "\n" not in message


def test_lines_of_keys() -> None:
    text = (
        '[a]\nx = 1\n[tool.cachelint]\nselect = [\n  "#",\n]\ncontract.module = "m"\n'
        '[tool.cachelint."per-file-ignores"]\n"t/*.py" = []\n'
    )
    assert key_lines(text, ("tool", "cachelint")) == {
        "select": 4, "contract": 7, "contract.module": 7, "per-file-ignores": 8, "per-file-ignores.t/*.py": 9
    }  # fmt: skip


def test_the_rules_are_those_of_the_catalogue() -> None:
    assert select.known() == select.BUILT_IN | catalogue.names()
    folder = catalogue.folder()
    rules = {path.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in folder.glob("CL*.toml")}
    assert select.off_by_default() == {rule["code"] for rule in rules.values() if not rule["default"]}


@pytest.mark.parametrize(
    ("select_", "ignore", "default", "expected"),
    [
        (["CL"], [], True, True),
        (["CL"], [], False, False),
        (["ALL"], [], False, True),
        (["CL2"], [], False, False),
        (["CL215"], [], False, True),
        (["double-backward-unguarded"], [], False, True),
        (["CL1"], [], True, False),
        (["CL"], ["CL2"], True, False),
        (["CL215"], ["CL2"], True, True),
        (["CL2"], ["CL2"], True, False),
        (["CL"], ["double-backward-unguarded"], True, False),
        (["cl215"], [], True, True),
        ([], [], True, False),
    ],
)
def test_selection(select_: list[str], ignore: list[str], default: bool, expected: bool) -> None:
    settings = Settings(select=tuple(select_), ignore=tuple(ignore))
    assert select.enabled("CL215", "double-backward-unguarded", settings, default) is expected
