"""At which rate ranks that do not wait for each other take their steps, and which of them are slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.findings.finding import Finding
from tracekit.findings.steps import longer_compute, slow_rate
from tracekit.findings.thresholds import LONGER_COMPUTE, SLOW_RATE
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.stats.uncertainty import student_deviations

INDEPENDENT = "the ranks do not communicate with each other in these steps, so none is seen to wait for another"
_SPREADS = 1.0  # what is slow is slower by more than the peers differ, so many times
_ERRORS = 3.0  # and by more than so many standard errors of the ratio of two mean steps


@dataclass(frozen=True, kw_only=True)
class SlowRates:
    """Ranks that take fewer steps a second than the others. Rates are per rank, in steps a second.

    Attributes:
        slow: the ranks.
        peers: the others.
        rates: of the slow ones, ascending.
        peers_rate: the mean of the others.
        longer_ns: by how much a slow rank's mean step is longer than the mean of the peers'.
        longer_parts_ns: how that divides: compute, data, remote calls, other. They sum to `longer_ns`.
        job_rate: of all ranks together.
        even_job_rate: the same if the slow ranks kept up.
    """

    slow: tuple[int, ...]
    peers: tuple[int, ...]
    rates: tuple[float, ...]
    peers_rate: float
    longer_ns: int
    longer_parts_ns: Mapping[str, int]
    job_rate: float
    even_job_rate: float


def steps_per_s(summary: RankSummary) -> float | None:
    """Return how many complete steps a rank takes a second; None without any."""
    step_ns = _lengths(summary)
    return 1e9 / statistics.fmean(step_ns) if step_ns and sum(step_ns) else None


def find_slow_rates(
    ranks: Sequence[RankSummary], waits_ns: Mapping[int, int], steadier_ns: Sequence[Mapping[int, Sequence[int]]] = ()
) -> SlowRates | None:
    """Return the ranks, at most half of them, that are clearly slower than the others; None without any.

    Their steps are longer, or else a part of these that varies less; and their rates are lower than their peers' mean.

    ranks: two or more that do the same work at their own pace. waits_ns: how long each waits for remote calls, in all
    its complete steps. steadier_ns: parts of each rank's complete steps, those that are asked first first.
    """
    steps_ns = {summary.rank: lengths_ns for summary in ranks if any(lengths_ns := _lengths(summary))}
    measures: list[Mapping[int, Sequence[int]]] = [
        steps_ns,
        *({rank: part_ns[rank] for rank in steps_ns} for part_ns in steadier_ns),
    ]
    names = next((found for times_ns in measures if (found := _clearly_longer(times_ns)) is not None), None)
    if names is None:
        return None
    slow = [summary for summary in ranks if summary.rank in names]
    peers = [summary for summary in ranks if summary.rank in steps_ns and summary.rank not in names]
    rates = sorted(rate for summary in slow if (rate := steps_per_s(summary)) is not None)
    peers_rates = [rate for summary in peers if (rate := steps_per_s(summary)) is not None]
    if SLOW_RATE * rates[-1] > statistics.fmean(peers_rates):
        return None
    of_slow, of_peers = _parts_ns(slow, waits_ns), _parts_ns(peers, waits_ns)
    return SlowRates(
        slow=tuple(sorted(summary.rank for summary in slow)),
        peers=tuple(sorted(summary.rank for summary in peers)),
        rates=tuple(rates),
        peers_rate=statistics.fmean(peers_rates),
        longer_ns=sum(of_slow.values()) - sum(of_peers.values()),
        longer_parts_ns={name: of_slow[name] - of_peers[name] for name in of_slow},
        job_rate=sum(rates) + sum(peers_rates),
        even_job_rate=(len(rates) + len(peers_rates)) * statistics.fmean(peers_rates),
    )


def slow_rate_finding(found: SlowRates, *, names: Mapping[int, str] | None = None) -> Finding:
    """Return the finding on slow ranks. names: of trainers that a server answers, by rank; None for other ranks."""
    one = len(found.slow) == 1
    cause = max(found.longer_parts_ns, key=lambda part: found.longer_parts_ns[part])
    return slow_rate(
        rank=found.slow[0] if one else None,
        ranks=found.slow if not one else (),
        cause="rpc" if cause == "rpc" else f"slow_{cause}",
        time_ns=found.longer_ns * len(found.slow) // (len(found.slow) + len(found.peers)),
        evidence={
            "slow": list(found.slow),
            "peers": len(found.peers),
            "worker": (names or {}).get(found.slow[0]),
            "steps_per_s": found.rates[0] if one else list(found.rates),
            "peers_steps_per_s": found.peers_rate,
            "job_steps_per_s": found.job_rate,
            "even_job_steps_per_s": found.even_job_rate,
            "longer_ns": found.longer_ns,
            "longer_parts_ns": dict(found.longer_parts_ns),
            "of_trainers": names is not None,
            "no_replay": "no rank is seen to wait for another, so no other would have a shorter step",
        },
        conditions=[SLOW_RATE.reached_by(found.peers_rate / found.rates[-1])],
    )


def slow_rates_of_ranks(run: Run) -> list[Finding]:
    """Find ranks that are slower than others of which none is seen to wait. They may meet outside of the recording."""
    found = find_slow_rates([summary for summary in run.ranks if summary.is_measured], {})
    if found is None:
        return []
    return [slow_rate_finding(found)]


def longer_computes(run: Run) -> list[Finding]:
    """Find ranks that compute clearly longer than the others, in a job whose communication is not recorded.

    Where their steps are longer as well, they have a low rate, which is another finding.
    """
    ranks = [summary for summary in run.ranks if any(_lengths(summary))]
    compute_ns = {s.rank: [step.compute_ns for step in s.steps if step.complete] for s in ranks}
    slow = _clearly_longer(compute_ns, LONGER_COMPUTE)
    if slow is None or find_slow_rates(ranks, {}) is not None:
        return []
    medians_ns = {rank: statistics.median(times_ns) for rank, times_ns in compute_ns.items()}
    least_ns = min(medians_ns[rank] for rank in slow)
    others_ns = statistics.median(medians_ns[rank] for rank in medians_ns.keys() - slow)
    idle_ns = statistics.fmean(part.idle_ns for s in ranks if s.rank not in slow for part in s.steps if part.complete)
    return [
        longer_compute(
            rank=min(slow) if len(slow) == 1 else None,
            ranks=tuple(sorted(slow)),
            cause="slow_compute",
            time_ns=round(least_ns - others_ns),
            evidence={
                "compute_ns": least_ns,
                "others_compute_ns": others_ns,
                "others_idle_ns": idle_ns,
                "no_replay": "no communication is recorded, so no replay shows who waits",
            },
            conditions=[LONGER_COMPUTE.reached_by(least_ns / others_ns)],
        )
    ]


def _lengths(summary: RankSummary) -> list[int]:
    return [step.step_ns for step in summary.steps if step.complete]


def _clearly_longer(times_ns: Mapping[int, Sequence[int]], ratio: float = SLOW_RATE) -> frozenset[int] | None:
    """Return the ranks, at most half of them, whose times are clearly longer; None without any.

    times_ns: of the steps of each rank. ratio: the least of their times to the others'.
    """
    longest = sorted(times_ns, key=lambda rank: -statistics.median(times_ns[rank]))
    if len(longest) < 2:
        return None
    medians_ns = [max(statistics.median(times_ns[rank]), 1) for rank in longest]
    count = max(range(1, len(longest) // 2 + 1), key=lambda n: medians_ns[n - 1] / medians_ns[n])
    least_ns, most_ns, fewest_ns = medians_ns[count - 1], medians_ns[count], medians_ns[-1]
    is_clear = (
        least_ns >= ratio * most_ns
        and least_ns - most_ns > _SPREADS * (most_ns - fewest_ns)
        and math.log(least_ns / most_ns) > _chance(times_ns, longest[:count])
        and min(min(times_ns[rank]) for rank in longest[:count]) > most_ns
    )
    return frozenset(longest[:count]) if is_clear else None


def _chance(times_ns: Mapping[int, Sequence[int]], longest: Sequence[int]) -> float:
    """Return by how much the logarithms of two ranks' typical times may differ by chance: `_ERRORS` standard errors.

    What varies is the time of the rank in the middle, or of one of the longest if that varies more. Few steps tell
    little of how they vary: Student's distribution takes the place of the normal one.

    longest: ranks that may be slow.
    """
    several = {rank: of_rank for rank, of_rank in times_ns.items() if len(of_rank) > 1}
    if not several:
        return 0.0  # of one step each: it is not known
    count = statistics.fmean(map(len, several.values()))
    varies = max(
        statistics.median(map(_variation, several.values())),
        max((_variation(several[rank]) for rank in longest if rank in several), default=0.0),
    )
    errors = student_deviations(_ERRORS, 2 * (count - 1))
    return errors * varies * math.sqrt(2 / count)


def _variation(times_ns: Sequence[int]) -> float:
    """Return the deviation of times below their median, as a share of it: a stall makes them longer, never shorter."""
    median_ns = statistics.median(times_ns)
    below_ns = [median_ns - time_ns for time_ns in times_ns if time_ns < median_ns]
    return math.sqrt(statistics.fmean(time_ns**2 for time_ns in below_ns)) / max(median_ns, 1) if below_ns else 0.0


def _parts_ns(ranks: Sequence[RankSummary], waits_ns: Mapping[int, int]) -> dict[str, int]:
    """Return the mean over ranks of the parts of their mean steps."""
    parts: dict[str, list[float]] = {"compute": [], "data": [], "rpc": [], "host": []}
    for summary in ranks:
        steps = [step for step in summary.steps if step.complete]
        compute_ns = sum(step.compute_ns for step in steps)
        data_ns = sum(step.data_ns or 0 for step in steps)
        waited_ns = waits_ns.get(summary.rank, 0)
        rest_ns = sum(step.step_ns for step in steps) - compute_ns - data_ns - waited_ns
        for part, time_ns in zip(parts, (compute_ns, data_ns, waited_ns, rest_ns), strict=True):
            parts[part].append(time_ns / len(steps))
    return {part: round(statistics.fmean(of_ranks)) for part, of_ranks in parts.items()}
