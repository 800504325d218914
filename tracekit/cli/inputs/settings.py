"""Settings: what holds where no option is given, and from where it comes.

An option precedes a variable of the environment, and that the file of settings (`settings_file`). The keys are few on
purpose: a file that comes with a downloaded run must not choose what is executed, or where data goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from tracekit.cli.inputs.options import AMOUNT
from tracekit.cli.inputs.settings_file import CONFIG_VARIABLE, SettingsFile, find_settings_file
from tracekit.errors import UsageError

__all__ = ["KEYS", "LEFT_TO_CHECK", "OTHER_VARIABLES", "Key", "Setting", "option_defaults", "settings", "similar_name"]

LEFT_TO_CHECK = "gates"
"""The table of the file that `tracekit check` reads."""


_NO_CACHE = "0"
_CACHE_DIR = "cache_dir"


class _Rules(click.ParamType[tuple[str, ...]]):
    name = "rules"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from tracekit.analysis.events.communication_rules import parse_rule

        rules = value.split() if isinstance(value, str) else value
        for rule in rules:
            if not isinstance(rule, str):
                self.fail(f"{rule!r} is no text such as '^my_ring=all_to_all'")
            try:
                parse_rule(rule)
            except UsageError as error:
                self.fail(f"{error.message}; {error.hint}")
        return tuple(rules)


class _Limits(click.ParamType[tuple[str, ...]]):
    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        from tracekit.limits import parse_limits

        texts = value.split() if isinstance(value, str) else value
        try:
            parse_limits(map(str, texts))
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}")
        return tuple(texts)


class _Path(click.ParamType[str]):
    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("the path is empty")
        return str(Path(value).expanduser())


class _Cache(_Path):
    """A folder, or no cache: "0", and in a file `false`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value is True:
            self.fail("true is neither a folder nor false")
        return _NO_CACHE if value is False or value == _NO_CACHE else super().convert(value, param, ctx)


@dataclass(frozen=True, kw_only=True)
class Key:
    """A setting that there can be.

    Attributes:
        name: in the file.
        variable: of the environment.
        option: whose default it is.
        parameter: the name of that option's value in a command.
        kind: of the value; converts text of the environment, too.
        written: the types that a file may have, and what to call them.
        default: what holds without it.
    """

    name: str
    variable: str
    option: str
    parameter: str
    kind: click.ParamType[Any]
    written: tuple[tuple[type, ...], str]
    default: str

    @property
    def is_path(self) -> bool:
        return isinstance(self.kind, _Path)


_NUMBER = ((int, float), "a number")
_TEXT = ((str,), "a text")
KEYS: tuple[Key, ...] = (
    Key(
        name="communication_rules",
        variable="TRACEKIT_COMMUNICATION_RULES",
        option="--communication-rule",
        parameter="communication_rule",
        kind=_Rules(),
        written=((list,), "a list of texts"),
        default="those of public libraries",
    ),
    Key(
        name="limits",
        variable="TRACEKIT_LIMITS",
        option="--limit",
        parameter="limit",
        kind=_Limits(),
        written=((list,), "a list of texts"),
        default="those in docs/settings.md",
    ),
    Key(
        name="jobs",
        variable="TRACEKIT_JOBS",
        option="--jobs",
        parameter="jobs",
        kind=click.IntRange(min=1),
        written=((int,), "a whole number"),
        default="as many as processors",
    ),
    Key(
        name="cache",
        variable="TRACEKIT_CACHE",
        option="--cache-dir, --no-cache",
        parameter=_CACHE_DIR,
        kind=_Cache(),
        written=((str, bool), "a folder, or false"),
        default="beside the traces",
    ),
    Key(
        name="links",
        variable="TRACEKIT_LINKS",
        option="--links",
        parameter="links",
        kind=_Path(),
        written=_TEXT,
        default="not measured",
    ),
    Key(
        name="flops_per_step",
        variable="TRACEKIT_FLOPS_PER_STEP",
        option="--flops-per-step",
        parameter="flops_per_step",
        kind=AMOUNT,
        written=_NUMBER,
        default="by the shapes of operators",
    ),
    Key(
        name="peak_tflops",
        variable="TRACEKIT_PEAK_TFLOPS",
        option="--peak-tflops",
        parameter="peak_tflops",
        kind=AMOUNT,
        written=_NUMBER,
        default="by the device's data sheet",
    ),
    Key(
        name="strict",
        variable="TRACEKIT_STRICT",
        option="--strict",
        parameter="strict",
        kind=click.BOOL,
        written=((bool,), "true or false"),
        default="false",
    ),
)

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
    written = {} if file is None else _known(file)
    return [_setting(key, file, written) for key in KEYS]


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
        found = {s.key.parameter: s.value for s in settings(named) if s.value is not None}
        no_cache = found.get(_CACHE_DIR) == _NO_CACHE
        return {**found, _CACHE_DIR: None, "no_cache": True} if no_cache else found

    unset = {"communication_rule": (), "limit": (), "no_cache": False, "strict": False}
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


def _setting(key: Key, file: SettingsFile | None, written: Mapping[str, Any]) -> Setting:
    if text := os.environ.get(key.variable):
        return Setting(key=key, value=_converted(key, text, f"{key.variable}={text}"), source=key.variable)
    if file is None or key.name not in written:
        return Setting(key=key, value=None, source=None)
    value = written[key.name]
    types, called = key.written
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise UsageError(f"{file.path}: {key.name} = {value!r}: not {called}", hint="write it as in docs/settings.md")
    value = _converted(key, value, f"{file.path}: {key.name}")
    if key.is_path and value != _NO_CACHE:
        value = str(file.path.parent / value)
    return Setting(key=key, value=value, source=str(file.path))


def _converted(key: Key, value: object, named: str) -> Any:
    try:
        return key.kind.convert(value, None, None)
    except click.BadParameter as error:
        raise UsageError(f"{named}: {error.message}", hint=f"it is the default of {key.option}") from None
