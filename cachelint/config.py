"""Configuration: ``[tool.cachelint]`` in pyproject.toml, or the same keys in cachelint.toml or .cachelint.toml.

The nearest configuration file above a file holds for it, as a whole; files farther up are not merged in (Ruff's rule).
``--config FILE`` holds for every file, ``--isolated`` for none. The command line's options go over the file's keys.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachelint import patterns, select
from cachelint.settings import ContractSpec, DialectSpec, Settings

FILE_NAMES = ("cachelint.toml", ".cachelint.toml", "pyproject.toml")
"""In the order in which they are tried inside one directory."""

CHOICES: dict[str, tuple[str, ...]] = {
    "unknown-storage": ("device", "host"),
    "dialect.recognise": ("base", "methods", "register", "decorator"),
    "dialect.receiver": ("self", "first"),
    "dialect.live-inputs": ("saved", "signature", "retained"),
}


class ConfigError(Exception):
    """A configuration that cannot hold: an unknown key, a wrong type, a selector of no rule. Exit status 2."""

    def __init__(self, path: str, line: int, message: str) -> None:
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {message}")
        self.path = path
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Config:
    """What holds for a file.

    ``path`` is the configuration file (None without one), ``root`` the directory that its patterns are relative to.
    ``exclude`` is ``settings.exclude``, compiled; ``default_excludes`` says whether the built-in names are skipped too
    (see :mod:`cachelint.discover`). ``origins`` names the source of every key that was set.
    """

    root: str
    path: str | None = None
    settings: Settings = field(default_factory=Settings)
    exclude: patterns.Patterns = patterns.NOTHING
    default_excludes: bool = True
    force_exclude: bool = False
    cache_dir: str | None = None
    baseline: str | None = None
    output_format: str | None = None
    origins: tuple[tuple[str, str], ...] = ()

    def relative(self, abspath: str) -> str | None:
        """A path relative to ``root`` with forward slashes, as the patterns see it; None outside of it."""
        prefix = self.root if self.root.endswith(os.sep) else self.root + os.sep
        return abspath[len(prefix) :].replace(os.sep, "/") if abspath.startswith(prefix) else None

    def ignored_codes(self, abspath: str) -> tuple[str, ...]:
        """The selectors that ``per-file-ignores`` switches off for a file."""
        relative = self.relative(abspath)
        if relative is None:
            return ()
        found: list[str] = []
        for pattern, codes in self.settings.per_file_ignores:
            inverted = pattern.startswith("!")
            if patterns.parse(pattern.removeprefix("!")).covers(relative) != inverted:
                found += codes
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of the table: what it may hold, and what it means when nobody sets it."""

    kind: str
    default: Any
    doc: str


KEYS: dict[str, _Key] = {
    "select": _Key("codes", ("CL",), "rules to report: ALL, prefixes of codes, or names"),
    "extend-select": _Key("codes", (), "more of them, on top of select"),
    "ignore": _Key("codes", (), "rules not to report"),
    "extend-ignore": _Key("codes", (), "more of them, on top of ignore"),
    "per-file-ignores": _Key("code-table", (), "rules not to report in the files that a pattern matches"),
    "exclude": _Key("strings", None, "patterns of paths to skip, instead of the built-in names"),
    "extend-exclude": _Key("strings", (), "patterns of paths to skip, on top of those"),
    "force-exclude": _Key("bool", False, "skip excluded files also when they are named on the command line"),
    "respect-gitignore": _Key("bool", True, "skip what git ignores"),
    "unknown-storage": _Key("string", "device", "what a value of unknown storage is taken for: device or host"),
    "cache-dir": _Key("string", None, "where the cache lives, relative to the configuration file"),
    "baseline": _Key("string", None, "a baseline file, relative to the configuration file"),
    "output-format": _Key("string", None, "the format of check's output"),
    "contract": _Key("contract", ContractSpec(), "where the save-for-backward contract of layers is imported from"),
    "dialect": _Key("dialects", (), "dialects of this project, tried before the shipped ones"),
}


class Configs:
    """Finds the configuration of directories and files; each file is read once.

    ``cwd`` is the working directory (absolute), ``command_line`` maps keys (as in the file) to values that go over
    every file's. ``pinned`` is ``--config``. Raises ConfigError from every method that may read a file.
    """

    def __init__(
        self,
        cwd: str,
        command_line: Mapping[str, Any] | None = None,
        pinned: str | None = None,
        isolated: bool = False,
    ) -> None:
        self._cwd = cwd
        self._command_line = dict(command_line or {})
        self._memo: dict[str, Config] = {}
        self._default: Config | None = None
        if isolated:
            self._default = self._build(cwd, None, {}, {})
        elif pinned is not None:
            path = os.path.abspath(os.path.join(cwd, pinned))
            table, lines = read_table(path, _shown(path, cwd), required=True) or ({}, {})
            self._default = self._build(cwd, path, table, lines)

    def at(self, directory: str) -> Config:
        """The configuration for the files of a directory (absolute)."""
        if self._default is not None:
            return self._default
        trail: list[str] = []
        config: Config | None = None
        while config is None:
            config = self._memo.get(directory)
            if config is not None:
                break
            trail.append(directory)
            config = self._read(directory)
            if config is None:
                parent = os.path.dirname(directory)
                if parent == directory:
                    config = self._build(self._cwd, None, {}, {})
                directory = parent
        for one in trail:
            self._memo[one] = config
        return config

    def of(self, abspath: str) -> Config:
        """The configuration for a file."""
        return self.at(os.path.dirname(abspath))

    def _read(self, directory: str) -> Config | None:
        for name in FILE_NAMES:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                found = read_table(path, _shown(path, self._cwd), required=name != "pyproject.toml")
                if found is not None:
                    return self._build(directory, path, *found)
        return None

    def _build(self, root: str, path: str | None, table: dict[str, Any], lines: dict[str, int]) -> Config:
        shown = _shown(path, self._cwd) if path else ""

        def fail_file(key: str, message: str) -> ConfigError:
            return ConfigError(shown, lines.get(key, lines.get(key.partition(".")[0], 1)), message)

        def fail_line(key: str, message: str) -> ConfigError:
            return ConfigError("command line", 0, message)

        values = _check(table, fail_file) | _check(self._command_line, fail_line)
        origins = tuple((key, "command line" if key in self._command_line else shown) for key in KEYS if key in values)
        for key in ("exclude", "extend-exclude"):
            # Patterns typed on the command line are relative to the working directory.
            if key in self._command_line:
                values[key] = tuple(_rebased(pattern, self._cwd, root) for pattern in values[key])
        for key in ("cache-dir", "baseline"):
            if values.get(key) is not None:
                if not values[key]:
                    fail = fail_line if key in self._command_line else fail_file
                    raise fail(key, f"{key} is empty: give a path, or leave it out")
                base = self._cwd if key in self._command_line else root
                values[key] = os.path.normpath(os.path.join(base, values[key]))

        def get(key: str) -> Any:
            return values.get(key, KEYS[key].default)

        excludes = tuple(get("exclude") or ()) + tuple(get("extend-exclude"))
        settings = Settings(
            select=get("select"),
            ignore=tuple(get("ignore")) + tuple(get("extend-ignore")),
            extend_select=get("extend-select"),
            exclude=excludes,
            per_file_ignores=get("per-file-ignores"),
            respect_gitignore=get("respect-gitignore"),
            unknown_storage=get("unknown-storage"),
            contract=get("contract"),
            dialects=get("dialect"),
        )
        return Config(
            root=root,
            path=path,
            settings=settings,
            exclude=patterns.compile_patterns(pattern.removeprefix("./") for pattern in excludes),
            default_excludes=get("exclude") is None,
            force_exclude=get("force-exclude"),
            cache_dir=get("cache-dir"),
            baseline=get("baseline"),
            output_format=get("output-format"),
            origins=origins,
        )


def effective(config: Config) -> list[tuple[str, Any, str]]:
    """Every key with its value and where it comes from (a file, ``command line`` or ``default``)."""
    settings = config.settings
    origins = dict(config.origins)
    values: dict[str, Any] = {
        "select": settings.select,
        "extend-select": settings.extend_select,
        "ignore": settings.ignore,
        "per-file-ignores": dict(settings.per_file_ignores),
        "exclude": settings.exclude,
        "force-exclude": config.force_exclude,
        "respect-gitignore": settings.respect_gitignore,
        "unknown-storage": settings.unknown_storage,
        "cache-dir": config.cache_dir,
        "baseline": config.baseline,
        "output-format": config.output_format,
        "contract": dataclasses.asdict(settings.contract),
        "dialect": tuple(dialect.name for dialect in settings.dialects),
    }
    merged = {"ignore": "extend-ignore", "exclude": "extend-exclude"}
    return [
        (key, value, origins.get(key) or origins.get(merged.get(key, ""), "default")) for key, value in values.items()
    ]


def read_table(path: str, shown: str, required: bool) -> tuple[dict[str, Any], dict[str, int]] | None:
    """The cachelint table of a TOML file and the line of each of its keys; None where it has none.

    A pyproject.toml without the table is no configuration file, and one that does not mention cachelint is not even
    parsed. ``required`` says that the file must be readable and is all ours when it is not a pyproject.toml.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        if not required:
            return None
        raise ConfigError(shown, 0, f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    project = os.path.basename(path) == "pyproject.toml"
    if project and not required and b"cachelint" not in raw:
        return None
    import tomllib

    try:
        text = raw.decode("utf-8-sig")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(shown, raw.count(b"\n", 0, error.start) + 1, "not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", str(error))
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        message = str(error)[: place.start()] if place else str(error)
        raise ConfigError(shown, line, f"not TOML: {message[:1].lower()}{message[1:]}") from error
    except (ValueError, RecursionError) as error:  # which tomllib lets through
        raise ConfigError(shown, 1, "not TOML: nested too deeply, or a number too long") from error
    prefix: tuple[str, ...] = ()
    if project or "tool" in data:
        prefix = ("tool", "cachelint")
        tool = data.get("tool")
        data = tool.get("cachelint") if isinstance(tool, dict) else None  # type: ignore[assignment]
        if data is None:
            return ({}, {}) if required else None
        if not isinstance(data, dict):
            raise ConfigError(shown, 1, "tool.cachelint must be a table")
    return data, key_lines(text, prefix)


def key_lines(text: str, prefix: tuple[str, ...]) -> dict[str, int]:
    """The line on which each key below ``prefix`` is first written; keys are as in ``contract.base``."""
    lines: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), start=1):
        header = re.match(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$", line)
        pair = re.match(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""", line)
        if header:
            table = full = _dotted(header[1])
        elif pair:
            full = table + _dotted(pair[1])
        else:
            continue
        if full[: len(prefix)] == prefix:
            rest = full[len(prefix) :]
            for count in range(1, len(rest) + 1):
                lines.setdefault(".".join(rest[:count]), number)
    return lines


def _dotted(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r""""[^"]*"|'[^']*'|[^.]+""", key))


_Fail = Callable[[str, str], ConfigError]


def _check(table: Mapping[str, Any], fail: _Fail) -> dict[str, Any]:
    """The table with every value checked and in its final form. Raises ConfigError."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            raise fail(key, f"unknown key {key!r}{_hint(key, KEYS)}")
        values[key] = _CHECKS[KEYS[key].kind](key, value, fail)
    return values


def _string(key: str, value: Any, fail: _Fail) -> str:
    if not isinstance(value, str):
        raise fail(key, f"{key} must be a string, not {_kind(value)}")
    if "\0" in value:
        raise fail(key, f"{key} holds a null byte")
    choices = _choices(key)
    if choices and value not in choices:
        raise fail(key, f"{key} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def _choices(key: str) -> tuple[str, ...]:
    """The words that a key may hold; none where any will do."""
    if key == "output-format":
        from cachelint.report import formats

        return formats("check")
    return CHOICES.get(key, ())


def _bool(key: str, value: Any, fail: _Fail) -> bool:
    if not isinstance(value, bool):
        raise fail(key, f"{key} must be true or false, not {_kind(value)}")
    return value


def _integer(key: str, value: Any, fail: _Fail) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise fail(key, f"{key} must be a whole number, not {_kind(value)}")
    return value


def _strings(key: str, value: Any, fail: _Fail) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise fail(key, f"{key} must be a list of strings, not {_kind(value)}")
    return tuple(value)


def _codes(key: str, value: Any, fail: _Fail) -> tuple[str, ...]:
    codes = _strings(key, value, fail)
    rules = select.known() if codes else {}
    for code in codes:
        if not any(select.matches(code, *rule) for rule in rules.items()):
            raise fail(key, f"{code!r} selects no rule{_hint(code, [*rules, *rules.values()])}")
    return codes


def _code_table(key: str, value: Any, fail: _Fail) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise fail(key, f"{key} must be a table of patterns, each with a list of rules, not {_kind(value)}")
    return tuple((pattern, _codes(f"{key}.{pattern}", codes, fail)) for pattern, codes in value.items())


def _contract(key: str, value: Any, fail: _Fail) -> ContractSpec:
    return ContractSpec(**_record(key, value, ContractSpec, fail))


def _dialects(key: str, value: Any, fail: _Fail) -> tuple[DialectSpec, ...]:
    if not isinstance(value, list):
        raise fail(key, f"{key} must be an array of tables, written [[tool.cachelint.dialect]]")
    found: list[DialectSpec] = []
    for table in value:
        given = _record(key, table, DialectSpec, fail)
        for needed in ("name", "recognise"):
            if needed not in given:
                raise fail(key, f"a dialect needs {needed!r}")
        spec = DialectSpec(**given)
        needs = {"base": "bases", "decorator": "decorators", "register": "registers", "methods": "forward"}
        if not getattr(spec, needs[spec.recognise]):
            raise fail(
                key, f"dialect {spec.name!r} is recognised by {spec.recognise!r} and names no {needs[spec.recognise]!r}"
            )
        found.append(spec)
    return tuple(found)


def _record(key: str, value: Any, kind: type[ContractSpec] | type[DialectSpec], fail: _Fail) -> dict[str, Any]:
    """A table with the fields of a dataclass, spelled with hyphens."""
    if not isinstance(value, dict):
        raise fail(key, f"{key} must be a table, not {_kind(value)}")
    fields = {one.name.replace("_", "-"): one for one in dataclasses.fields(kind)}
    given: dict[str, Any] = {}
    for name, item in value.items():
        if name not in fields:
            raise fail(f"{key}.{name}", f"unknown key {name!r} in {key}{_hint(name, fields)}")
        check = {"str": _string, "bool": _bool, "int": _integer}.get(str(fields[name].type), _strings)
        given[fields[name].name] = check(f"{key}.{name}", item, fail)
    return given


_CHECKS: dict[str, Callable[[str, Any, _Fail], Any]] = {
    "string": _string,
    "bool": _bool,
    "strings": _strings,
    "codes": _codes,
    "code-table": _code_table,
    "contract": _contract,
    "dialects": _dialects,
}


def _kind(value: Any) -> str:
    """The type of a value in TOML's words."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", dict: "a table"}
    if isinstance(value, list | tuple):
        return "a list" if all(isinstance(one, str) for one in value) else "a list of other things"
    return names.get(type(value), "a date or time")


def _hint(word: str, words: Any) -> str:
    import difflib

    close = difflib.get_close_matches(word.replace("_", "-"), list(words), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _rebased(pattern: str, cwd: str, root: str) -> str:
    """A pattern typed in ``cwd``, relative to ``root``; one without an inner slash matches at any depth."""
    body = pattern.removeprefix("./")
    if "/" not in body.rstrip("/") or root == cwd:
        return body
    absolute = os.path.normpath(os.path.join(cwd, body.removeprefix("/")))
    return "/" + os.path.relpath(absolute, root).replace(os.sep, "/") + ("/" if body.endswith("/") else "")


def _shown(path: str, cwd: str) -> str:
    from cachelint.source import display_path

    return display_path(path, cwd)
