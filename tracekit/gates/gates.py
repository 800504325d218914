"""Which limits a project sets its metrics: gates, as its configuration has them.

    [gates]
    allow = ["inconclusive"]

    [gates.step_time]
    max_increase = "5%"     # against the baseline
    max = "200ms"

    [gates.mfu]
    min = 0.4

    [gates.findings]
    fail_on = ["straggler", "data-loading"]
    ignore = {data-loading = 2027-01-31}

Limits are as people write them: `5%`, `200ms`, `40GB`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, NoReturn, cast, get_args

from tracekit.comparison.step_verdict import DEFAULT_RUN_NOISE
from tracekit.errors import UsageError
from tracekit.explain.sections import SECTIONS
from tracekit.findings.catalogue import catalogue
from tracekit.gates.metrics import METRICS, Metric, Unit

LimitKind = Literal["max", "min", "max_increase", "max_decrease"]
"""max, min: the value itself. max_increase, max_decrease: its change against the baseline, as a share of it."""

Doubt = Literal["inconclusive", "incomparable", "unavailable", "incomplete"]
"""Why a gate can neither pass nor fail.

inconclusive: the limit lies within what noise may do. incomparable: the baseline is another job. unavailable: the run
does not have the metric. incomplete: ranks of the run are missing.
"""

_KINDS: dict[str, tuple[LimitKind, ...]] = {"higher": ("max", "max_increase"), "lower": ("min", "max_decrease")}

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A limit of a metric.

    Attributes:
        limit: in the metric's unit, or a share.
    """

    metric: Metric
    kind: LimitKind
    limit: float

    @property
    def is_relative(self) -> bool:
        return self.kind in {"max_increase", "max_decrease"}

    @property
    def name(self) -> str:
        """Return `step_time.max_increase`."""
        return f"{self.metric.name}.{self.kind}"


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The gates of a project.

    Attributes:
        gates: limits of metrics.
        fail_on: ids of findings that a run may not have.
        ignore: those of them that it may have, until the end of a day.
        allow: a gate in such doubt passes. Otherwise it fails.
        run_noise: the share by which runs are taken to differ where fewer than three baselines show it.
        source: where the gates are from, as a user would call it.
    """

    gates: tuple[Gate, ...] = ()
    fail_on: tuple[str, ...] = ()
    ignore: Mapping[str, date] = field(default_factory=dict)
    allow: frozenset[Doubt] = frozenset()
    run_noise: float = DEFAULT_RUN_NOISE
    source: str

    @property
    def sections(self) -> frozenset[str]:
        """Return the names of the sections of a report that the gates read: all, if findings are among them."""
        read = (name for gate in self.gates for name in gate.metric.sections)
        return frozenset(SECTIONS if self.fail_on else read)


DEFAULT_GATES = Gates(
    gates=(Gate(metric=METRICS["step_time"], kind="max_increase", limit=0.05),),
    source="no gates are configured, so the default",
)
"""What a run is held to when there is a baseline and no gate."""


def parse_gates(table: Mapping[str, object], source: str) -> Gates:
    """Return the gates of a table of a configuration, as in the module's documentation.

    source: the file and the table's name, for messages. Raises UsageError for anything that is no gate: a gate with a
    spelling mistake would never fail.
    """
    gates: list[Gate] = []
    fail_on: tuple[str, ...] = ()
    ignore: Mapping[str, date] = {}
    allow: frozenset[Doubt] = frozenset()
    run_noise = DEFAULT_RUN_NOISE
    for key, value in table.items():
        if key == "allow":
            allow = _allow(value, source)
        elif key == "run_noise":
            run_noise = _run_noise(value, source)
        elif key == "findings":
            fail_on, ignore = _findings(value, source)
        elif key in METRICS:
            gates += _gates_of(METRICS[key], value, source)
        else:
            known = f"there are {', '.join(METRICS)}, findings, and the settings allow, run_noise"
            _fail(f"{source}: no gate {key!r}", known)
    if not gates and not fail_on:
        _fail(f"{source}: no gate is in it", "add one, such as: [gates.step_time] max_increase = '5%'")
    return Gates(gates=tuple(gates), fail_on=fail_on, ignore=ignore, allow=allow, run_noise=run_noise, source=source)


def _gates_of(metric: Metric, value: object, source: str) -> list[Gate]:
    where, kinds = f"{source}: {metric.name}", _KINDS[metric.worse]
    if not isinstance(value, Mapping) or not value:
        _fail(f"{where} is no table with a limit", f"write [gates.{metric.name}] with {' or '.join(kinds)}")
    gates = []
    for key, limit in value.items():
        if key not in kinds:
            _fail(f"{where} has no limit {key!r}", f"there are {' and '.join(kinds)}")
        kind = cast(LimitKind, key)
        try:
            amount = parse_share(limit) if kind.endswith("crease") else parse_limit(limit, metric.unit)
        except ValueError as error:
            _fail(f"{where}: {kind} = {limit!r} is not understood", f"give {error}")
        gates.append(Gate(metric=metric, kind=kind, limit=amount))
    return gates


def _findings(value: object, source: str) -> tuple[tuple[str, ...], Mapping[str, date]]:
    """Return the ids that a run may not have, and those that are ignored until a day."""
    table = value if isinstance(value, Mapping) else {}
    ids, ignore = table.get("fail_on"), table.get("ignore", {})
    if not isinstance(ids, list) or not isinstance(ignore, Mapping) or not table.keys() <= {"fail_on", "ignore"}:
        hint = 'write fail_on = ["straggler"], ignore = {straggler = 2027-01-31}'
        _fail(f"{source}: findings is not understood", hint)
    try:
        return as_finding_ids(ids), {as_finding_ids([name])[0]: as_day(day) for name, day in ignore.items()}
    except ValueError as error:
        _fail(f"{source}: findings: {error}", "tracekit explain lists all ids")


def as_finding_ids(names: Iterable[object]) -> tuple[str, ...]:
    """Return the names, which are ids of findings. Raises ValueError for any other."""
    names = [*names]
    if unknown := [name for name in names if name not in catalogue()]:
        raise ValueError(f"{unknown[0]!r} is no finding")
    return tuple(map(str, names))


def as_day(value: object) -> date:
    """Return a day, given as such or as 2027-01-31. Raises ValueError for anything else."""
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is no day such as 2027-01-31") from None


def as_doubts(names: Iterable[object]) -> frozenset[Doubt]:
    """Return the doubts of these names. Raises ValueError for a name of none."""
    doubts: dict[object, Doubt] = {doubt: doubt for doubt in get_args(Doubt)}
    try:
        return frozenset(doubts[name] for name in names)
    except (KeyError, TypeError):
        raise ValueError(f"a list of {', '.join(get_args(Doubt))}") from None


def _allow(value: object, source: str) -> frozenset[Doubt]:
    try:
        return as_doubts(value if isinstance(value, list) else [None])
    except ValueError as error:
        _fail(f"{source}: allow = {value!r} is not understood", f"give {error}")


def _run_noise(value: object, source: str) -> float:
    try:
        share = parse_share(value)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        _fail(f"{source}: run_noise = {value!r} is not understood", "give a share between 0 and 1, such as '2%'")
    return share


def _fail(message: str, hint: str) -> NoReturn:
    raise UsageError(message, hint=hint)


def parse_limit(value: object, unit: Unit) -> float:
    """Return a limit in ns, bytes or as a fraction of 1. Raises ValueError, which says what is wanted."""
    if unit == "time":
        return _quantity(value, _NANOSECONDS, "a time with its unit, such as '200ms'")
    if unit == "bytes":
        return _quantity(value, _BYTES, "a size with its unit, such as '40GB' or '40GiB'")
    return parse_share(value)


def parse_share(value: object) -> float:
    """Return a fraction for `'5%'` or 0.05. Raises ValueError for anything else, such as 5, which may mean 5 %."""
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value.strip())):
        return float(percent[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("a percentage such as '5%', or a number from 0 to 1")


def _quantity(value: object, units: dict[str, int], wanted: str) -> float:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        raise ValueError(wanted)
    amount = float(found[1]) * units[found[2]]
    if not math.isfinite(amount):
        raise ValueError(wanted)
    return amount
