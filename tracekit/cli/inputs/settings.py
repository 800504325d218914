"""Settings: what holds where no option is given, and from where it comes.

An option precedes a variable of the environment, and the variable precedes the file of settings. The
keys are few on purpose: a file that comes with a downloaded run must not choose what is executed, or where data goes.

The file is `tracekit.toml`, or `pyproject.toml` with the table `[tool.tracekit]`: the nearest one in the current folder
or a folder above it. `tracekit --config FILE` and `TRACEKIT_CONFIG` name another one, and `TRACEKIT_CONFIG=0` none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from tracekit.cli.inputs.options import AMOUNT, Amount, ParamType
from tracekit.errors import InputError, UsageError
from tracekit.read.files.storage import read_small_file

CONFIG_VARIABLE = "TRACEKIT_CONFIG"

LEFT_TO_CHECK = "gates"
"""The table of the file that `tracekit check` reads."""

_NO_CACHE = "0"
_CACHE_DIR = "cache_dir"

OTHER_VARIABLES = {
    CONFIG_VARIABLE: "the file of settings; 0: none",
    "TRACEKIT_NATIVE": "0: portable parts, 1: compiled ones",
    "TRACEKIT_TRACE_PROCESSOR": "Perfetto's trace processor for queries",
    "TRACEKIT_DEBUG": "1: a traceback with each error",
    "TRACEKIT": "0: the probe records nothing",
    "TRACEKIT_PATH": "the probe's path",
    "TRACEKIT_SKIP": "the probe's skip",
    "TRACEKIT_WARMUP": "the probe's warmup",
    "TRACEKIT_STEPS": "the probe's steps",
    "TRACEKIT_MAX_BYTES": "the probe's max_bytes",
    "TRACEKIT_MIN_FREE_BYTES": "the probe's min_free_bytes",
}
"""Variables that are no settings, and what they choose."""

_NAME = "tracekit.toml"
_PROJECT = "pyproject.toml"


class _Rules(ParamType[tuple[str, ...]]):
    name = "rules"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from tracekit.rank.communication_rules import parse_rule

        rules = value.split() if isinstance(value, str) else value
        for rule in rules:
            if not isinstance(rule, str):
                self.fail(f"{rule!r} is no text such as '^my_ring=all_to_all'")
            try:
                parse_rule(rule)
            except UsageError as error:
                self.fail(f"{error.message}; {error.hint}")
        return tuple(rules)


class _Limits(ParamType[tuple[str, ...]]):
    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from tracekit.limits import parse_limits

        texts = tuple(value.split() if isinstance(value, str) else map(str, value))
        try:
            parse_limits(texts)
        except UsageError as error:
            self.fail(error.message)
        return texts


class _Cache(ParamType[str]):
    """A folder, or no cache: "0", and in a file `false`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value is True:
            self.fail("true is neither a folder nor false")
        if value is False or value == _NO_CACHE:
            return _NO_CACHE
        if not value:
            self.fail("the path is empty")
        return str(Path(value).expanduser())


@dataclass(frozen=True, kw_only=True)
class Key:
    """A setting that there can be.

    Attributes:
        name: in the file.
        option: whose default it is.
        parameter: the name of that option's value in a command.
        kind: of the value; converts text of the environment, too.
        file_types: those that a value in a file may have.
        called: what such a value is, for messages.
        default: what holds without it.
        example: a value as it is written in a file.
    """

    name: str
    option: str
    parameter: str
    kind: ParamType[Any]
    file_types: tuple[type, ...]
    called: str
    default: str
    example: str

    @property
    def variable(self) -> str:
        """Return the variable of the environment that sets it."""
        return f"TRACEKIT_{self.name.upper()}"


KEYS: tuple[Key, ...] = (
    Key(
        name="communication_rules",
        option="--communication-rule",
        parameter="communication_rule",
        kind=_Rules(),
        file_types=(list,),
        called="a list of texts",
        default="those of public libraries",
        example='["^my_ring=all_to_all"]',
    ),
    Key(
        name="limits",
        option="--limit",
        parameter="limit",
        kind=_Limits(),
        file_types=(list,),
        called="a list of texts",
        default="those in docs/settings.md",
        example='["text_bytes=128G"]',
    ),
    Key(
        name="jobs",
        option="--jobs",
        parameter="jobs",
        kind=click.IntRange(min=1),
        file_types=(int,),
        called="a whole number of at least 1",
        default="as many as processors",
        example="4",
    ),
    Key(
        name="cache",
        option="--cache-dir, --no-cache",
        parameter=_CACHE_DIR,
        kind=_Cache(),
        file_types=(str, bool),
        called="a folder, or false",
        default="as tracekit cache says",
        example='"/scratch/tracekit"',
    ),
    Key(
        name="flops_per_step",
        option="--flops-per-step",
        parameter="flops_per_step",
        kind=AMOUNT,
        file_types=(int, float),
        called="a number",
        default="by the shapes of operators",
        example="1.2e15",
    ),
    Key(
        name="peak_tflops",
        option="--peak-tflops",
        parameter="peak_tflops",
        kind=AMOUNT,
        file_types=(int, float),
        called="a number",
        default="by the device's data sheet",
        example="989",
    ),
    Key(
        name="anonymize",
        option="--anonymize",
        parameter="anonymize",
        kind=click.BOOL,
        file_types=(bool,),
        called="true or false",
        default="false",
        example="true",
    ),
    Key(
        name="strict",
        option="--strict",
        parameter="strict",
        kind=click.BOOL,
        file_types=(bool,),
        called="true or false",
        default="false",
        example="true",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What holds for a key.

    Attributes:
        value: None where the default holds.
        source: the variable, the path of the file, or None for the default.
    """

    key: Key
    value: Any
    source: str | None


def settings(named: str | None = None) -> list[Setting]:
    """Return what holds for each key. `named` is the file of `--config`.

    Raises UsageError for a value that is none, an unknown key, and what `find_settings_file` raises.
    """
    file = find_settings_file(named)
    in_file = {} if file is None else _known(file)
    return [_setting(key, file, in_file) for key in KEYS]


def similar_name(name: str, names: Iterable[str]) -> str:
    """Return the question whether the nearest of the names was meant; empty if none is near."""
    import difflib  # only a wrong name needs it

    similar = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean '{similar[0]}'?" if similar else ""


def option_defaults(named: str | None = None) -> dict[str, Callable[[], Any]]:
    """Return a function for each option that a setting is the default of, by the name of its parameter.

    It returns the setting, and raises what `settings` does. No file is read before the first call.
    """

    @cache
    def values() -> dict[str, Any]:
        in_effect = {s.key.parameter: s.value for s in settings(named) if s.value is not None}
        no_cache = in_effect.get(_CACHE_DIR) == _NO_CACHE
        return {**in_effect, _CACHE_DIR: None, "no_cache": True} if no_cache else in_effect

    unset = {"communication_rule": (), "limit": (), "no_cache": False, "strict": False, "anonymize": False}
    return {name: partial(lambda name: values().get(name, unset.get(name)), name) for name in _PARAMETERS}


_PARAMETERS = (*(key.parameter for key in KEYS), "no_cache")


def _known(file: SettingsFile) -> Mapping[str, Any]:
    """Return what the file sets. Raises UsageError for an unknown key."""
    names = [key.name for key in KEYS]
    for name in file.content:
        if name not in names and name != LEFT_TO_CHECK:
            also = similar_name(name, [*names, LEFT_TO_CHECK])
            raise UsageError(f"{file.path}: no setting is named '{name}'.{also}", hint=f"there are {', '.join(names)}")
    return file.content


def _setting(key: Key, file: SettingsFile | None, in_file: Mapping[str, Any]) -> Setting:
    if text := os.environ.get(key.variable):
        named, example = f"{key.variable}={text}", key.example.strip('["]')
        value = _converted(key, text, named, named, hint=f"write it as in {key.variable}={example}")
        return Setting(key=key, value=value, source=key.variable)
    if file is None or key.name not in in_file:
        return Setting(key=key, value=None, source=None)
    value = in_file[key.name]
    named, hint = f"{file.path}: {key.name}", f"write it as in {key.name} = {key.example}"
    with_value = f"{named} = {json.dumps(value, default=str, ensure_ascii=False)}"
    if not isinstance(value, key.file_types) or (isinstance(value, bool) and bool not in key.file_types):
        raise UsageError(f"{with_value}: not {key.called}", hint=hint)
    value = _converted(key, value, named, with_value, hint=hint)
    if isinstance(key.kind, _Cache) and value != _NO_CACHE:
        value = str(file.path.parent / value)
    return Setting(key=key, value=value, source=str(file.path))


def _converted(key: Key, value: object, named: str, with_value: str, *, hint: str) -> Any:
    try:
        return key.kind.convert(value, None, None)
    except click.BadParameter as error:
        if isinstance(key.kind, _Rules | _Limits | _Cache | Amount):
            raise UsageError(f"{named}: {error.message}", hint=hint) from None
        # Click would say "not a valid integer range" of text.
        raise UsageError(f"{with_value}: not {key.called}", hint=hint) from None


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """The settings of a file, as they are written.

    Attributes:
        path: absolute; relative paths in it are below its folder.
        content: the table of tracekit.
    """

    path: Path
    content: Mapping[str, Any]


def find_settings_file(named: str | None = None, folder: Path | None = None) -> SettingsFile | None:
    """Return the file that is `named`, by default the nearest at or above `folder`; None without one.

    named: of the option; by default that of `TRACEKIT_CONFIG`. "0" is none. folder: by default the current one.

    Raises UsageError when the named file is not there or has no settings, or when a file is no TOML. Raises InputError
    when it cannot be read.
    """
    named = named or os.environ.get(CONFIG_VARIABLE) or None
    if named == "0":
        return None
    if named is not None:
        path = Path(named).expanduser().absolute()
        try:
            if not path.is_file():
                raise UsageError(f"{named}: no such file of settings", hint="name a tracekit.toml, or 0 for none")
        except OSError as error:  # such as a folder above it that may not be entered
            raise InputError(f"{named}: {error.strerror or error}", hint="check the path and its permissions") from None
        settings = _read(path)
        if settings is None:
            raise UsageError(f"{named}: it has no table [tool.tracekit]", hint="add it, or name a tracekit.toml")
        return settings
    start = (folder or Path.cwd()).absolute()
    for above in (start, *start.parents):
        for name in (_NAME, _PROJECT):
            if (above / name).is_file() and (settings := _read(above / name)) is not None:
                return settings
    return None


def _read(path: Path) -> SettingsFile | None:
    """Return the settings of a file; None of a `pyproject.toml` without any."""
    try:
        content = read_small_file(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="check the file and its permissions") from None
    is_project = path.name == _PROJECT
    if is_project and b"tracekit" not in content:
        return None
    import tomllib

    try:
        table: Any = tomllib.loads(content.decode())
        json.dumps(table, default=str)  # messages write values, and hexadecimal numbers may have more digits than those
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: no TOML, which is UTF-8: {error}", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: no TOML: {error}", hint="mend that line") from None
    except ValueError:
        raise UsageError(f"{path}: a number has too many digits", hint="write a number of at most 18 digits") from None
    except RecursionError:
        raise UsageError(f"{path}: tables or lists in it are nested too deeply", hint="no setting needs that") from None
    if is_project:
        tools = table.get("tool")
        table = tools.get("tracekit") if isinstance(tools, dict) else None
        if table is None:
            return None
        if not isinstance(table, dict):
            raise UsageError(f"{path}: tool.tracekit is no table", hint="write [tool.tracekit] and the keys below it")
    return SettingsFile(path=path, content=table)
