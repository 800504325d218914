"""Clock rates of devices, as counters of the recording show them, and whether a slow rank's is lower than others'."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.model.summary import RankSummary, sums_part
from tracekit.rank.lanes import complete_steps
from tracekit.rank.recorded_steps import RecordedSteps

_CLOCK = re.compile(r"clock|\bsclk\b|\bmclk\b|freq(?:uency)?\b|cycles_elapsed\S*per_second", re.IGNORECASE)
_DEVICE = re.compile(r"\bgpu[ _:]?\d+", re.IGNORECASE)
_LOWER = 0.95  # of the others' clock: boost clocks of equal devices differ by a few percent


@dataclass(frozen=True, kw_only=True)
class ClockRate:
    """A clock of a device of the rank's host in its complete steps.

    Attributes:
        name: of the counter, without the number of the device.
        total: the sum of its samples, in the counter's unit.
        count: how many samples there are.
    """

    name: str
    total: float
    count: int


CLOCK_RATES = sums_part("clock_rates", ClockRate, key=("name",), amounts=("total", "count"))


def clock_rates(recorded: RecordedSteps) -> tuple[ClockRate, ...]:
    """Return the clocks that are recorded in the complete steps, of each device that has counters."""
    samples = recorded.trace.events.counters
    in_steps = complete_steps(recorded.lanes, recorded.steps).time.covers(samples.time_ns)
    rates = []
    for series, name in enumerate(samples.names):
        value = samples.value[(samples.series == series) & in_steps]
        if len(value) and _CLOCK.search(name):
            rates.append(ClockRate(name=_DEVICE.sub("GPU", name), total=float(value.sum()), count=len(value)))
    return tuple(rates)


def lower_clock(slow: Sequence[RankSummary], others: Sequence[RankSummary]) -> Mapping[str, object] | None:
    """Return the clock that is lower on slow ranks than on others, the most so, with both rates; None without one."""
    found = []
    for name in {rate.name for summary in slow for rate in summary[CLOCK_RATES]}:
        own, usual = _median_rate(slow, name), _median_rate(others, name)
        if own is not None and usual is not None and 0 < own < _LOWER * usual:
            found.append((own / usual, name, own, usual))
    return dict(zip(("name", "rate", "others_rate"), min(found)[1:], strict=True)) if found else None


def _median_rate(ranks: Sequence[RankSummary], name: str) -> float | None:
    rates = [rate.total / rate.count for summary in ranks for rate in summary[CLOCK_RATES] if rate.name == name]
    return statistics.median(rates) if rates else None
