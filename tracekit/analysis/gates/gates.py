"""Which limits a project sets its metrics: gates, as its configuration has them.

    [gates]
    allow = ["inconclusive"]

    [gates.step_time]
    max_increase = "5%"     # against the baseline
    max = "200ms"

    [gates.mfu]
    min = 0.4

Limits are as people write them: `5%`, `200ms`, `40GB`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn, cast, get_args

from tracekit.analysis.comparison.run_noise import DEFAULT_RUN_NOISE
from tracekit.analysis.gates.metrics import METRICS, Metric, Unit
from tracekit.errors import UsageError

__all__ = ["DEFAULT_GATES", "Doubt", "Gate", "Gates", "as_doubts", "parse_gates", "parse_limit", "parse_share"]

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
        text: the limit as it was written.
    """

    metric: Metric
    kind: LimitKind
    limit: float
    text: str

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
        gates: at least one.
        allow: a gate in such doubt passes. Otherwise it fails.
        run_noise: the share by which runs are taken to differ where fewer than three baselines show it.
        source: where the gates are from, as a user would call it.
    """

    gates: tuple[Gate, ...]
    allow: frozenset[Doubt] = frozenset()
    run_noise: float = DEFAULT_RUN_NOISE
    source: str

    @property
    def sections(self) -> frozenset[str]:
        """Return the names of the sections of a report that the metrics read."""
        return frozenset(name for gate in self.gates for name in gate.metric.sections)


DEFAULT_GATES = Gates(
    gates=(Gate(metric=METRICS["step_time"], kind="max_increase", limit=0.05, text="5%"),),
    source="no gates are configured, so the default",
)
"""What a run is held to when there is a baseline and no gate."""


def parse_gates(table: Mapping[str, object], source: str) -> Gates:
    """Return the gates of a table of a configuration, as in the module's documentation.

    source: the file and the table's name, for messages. Raises UsageError for anything that is no gate: a gate with a
    spelling mistake would never fail.
    """
    gates: list[Gate] = []
    allow: frozenset[Doubt] = frozenset()
    run_noise = DEFAULT_RUN_NOISE
    for key, value in table.items():
        if key == "allow":
            allow = _allow(value, source)
        elif key == "run_noise":
            run_noise = _run_noise(value, source)
        elif key in METRICS:
            gates += _gates_of(METRICS[key], value, source)
        else:
            _fail(f"{source}: no gate {key!r}", f"there are {', '.join(METRICS)}, and the settings allow, run_noise")
    if not gates:
        _fail(f"{source}: no gate is in it", "add one, such as: [gates.step_time] max_increase = '5%'")
    return Gates(gates=tuple(gates), allow=allow, run_noise=run_noise, source=source)


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
        gates.append(Gate(metric=metric, kind=kind, limit=amount, text=str(limit)))
    return gates


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
