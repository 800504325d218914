"""At which rate ranks that do not wait for each other take their steps, and which of them are slow."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracekit.findings.finding import Finding
from tracekit.findings.steps import longer_compute, slow_rate, waited_for_trainer
from tracekit.findings.thresholds import LONGER_COMPUTE, MOSTLY_FOR_ONE, NOTABLE_SHARE, SLOW_RATE
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.stats.uncertainty import student_deviations

INDEPENDENT = "no rank that trains communicates with another in these steps, so none is seen to wait for another"
_Times = Mapping[int, Sequence[int]]  # of the steps of each rank
NO_REPLAY = "what servers do is no part of the replay"
_SERVERS = ("rpc", "servers")  # parts of a step that are waits for servers
_SPREADS = 1.0  # what is slow is slower by more than the peers differ, so many times
_EXPLAINED = 0.5  # of the wait for a rank at a server, by what it computes longer
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
        longer_parts_ns: how that divides: compute, data, waits for servers, other. They sum to `longer_ns`.
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
    ranks: Sequence[RankSummary], waits_ns: Mapping[int, int], steadier_ns: Sequence[_Times] = (), waits: str = "rpc"
) -> SlowRates | None:
    """Return the ranks, at most half of them, that are clearly slower than the others; None without any.

    Their steps are longer, or else a part of these that varies less; and their rates are lower than their peers' mean.

    ranks: two or more that do the same work at their own pace. waits_ns: how long each waits for servers, in all its
    complete steps. steadier_ns: parts of each rank's complete steps, those that are asked first first. waits: what to
    call the waits among the parts of a step, "rpc" for remote calls or "servers" for messages.
    """
    steps_ns = {summary.rank: lengths_ns for summary in ranks if any(lengths_ns := _lengths(summary))}
    measures: list[_Times] = [
        steps_ns,
        *({rank: part_ns[rank] for rank in steps_ns} for part_ns in steadier_ns),
    ]
    names = next((found for times_ns in measures if (found := clearly_longer(times_ns)) is not None), None)
    if names is None:
        return None
    slow = [summary for summary in ranks if summary.rank in names]
    peers = [summary for summary in ranks if summary.rank in steps_ns and summary.rank not in names]
    rates = sorted(rate for summary in slow if (rate := steps_per_s(summary)) is not None)
    peers_rates = [rate for summary in peers if (rate := steps_per_s(summary)) is not None]
    if SLOW_RATE * rates[-1] > statistics.fmean(peers_rates):
        return None
    of_slow, of_peers = _parts_ns(slow, waits_ns, waits), _parts_ns(peers, waits_ns, waits)
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
        cause=cause if cause in _SERVERS else f"slow_{cause}",
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


@dataclass(frozen=True, kw_only=True)
class HeldTime:
    """How long one rank waited at a server that had to wait for another rank.

    Attributes:
        rank: the one that waited, in its complete steps.
        by: the one that the server waited for; None if it has no recording.
        server: what to call the server.
    """

    rank: int
    by: int | None
    server: str
    total_ns: int


def waited_for_at_servers(
    ranks: Sequence[RankSummary], held: Sequence[HeldTime], cause: str, names: Mapping[int, str]
) -> Iterator[Finding]:
    """Yield a finding on the rank that others wait for at servers, mostly, for a notable part of their steps.

    ranks: those that train. cause: of the waiting, if that rank does not compute longer. names: what the job calls
    ranks.
    """
    by: Counter[int | None] = Counter()
    for time in held:
        by[time.by] += time.total_ns
    rank, total_ns = max(by.items(), key=lambda item: item[1], default=(None, 0))
    others = [summary for summary in ranks if summary.rank != rank]
    if rank is None or not others:
        return
    step_ns = [length_ns for summary in others for length_ns in _lengths(summary)]
    servers = Counter({time.server: time.total_ns for time in held if time.by == rank})
    wait_ns = total_ns // max(len(step_ns), 1)
    slow = [summary for summary in ranks if summary.rank == rank]
    beyond_ns = _mean_compute_ns(slow) - _mean_compute_ns(others) if slow else 0.0
    longer_ns = round(beyond_ns) if slow and beyond_ns >= _EXPLAINED * wait_ns else None
    yield waited_for_trainer(
        rank=rank,
        cause=cause if longer_ns is None else "slow_compute",
        time_ns=wait_ns,
        evidence={
            "others_wait_ns": wait_ns,
            "callee": servers.most_common(1)[0][0],
            "worker": names.get(rank),
            "longer_ns": longer_ns,
            "no_replay": NO_REPLAY,
        },
        conditions=[
            NOTABLE_SHARE.reached_by(total_ns / max(sum(step_ns), 1)),
            MOSTLY_FOR_ONE.reached_by(total_ns / max(by.total(), 1)),
        ],
    )


def _mean_compute_ns(ranks: Sequence[RankSummary]) -> float:
    steps = [step.compute_ns for summary in ranks for step in summary.steps if step.complete]
    return statistics.fmean(steps) if steps else 0.0


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
    slow = clearly_longer(compute_ns, LONGER_COMPUTE)
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


def clearly_longer(times_ns: _Times, ratio: float = SLOW_RATE) -> frozenset[int] | None:
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


def _chance(times_ns: _Times, longest: Sequence[int]) -> float:
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


def _parts_ns(ranks: Sequence[RankSummary], waits_ns: Mapping[int, int], waits: str) -> dict[str, int]:
    """Return the mean over ranks of the parts of their mean steps."""
    parts: dict[str, list[float]] = {"compute": [], "data": [], waits: [], "host": []}
    for summary in ranks:
        steps = [step for step in summary.steps if step.complete]
        compute_ns = sum(step.compute_ns for step in steps)
        data_ns = sum(step.data_ns or 0 for step in steps)
        waited_ns = waits_ns.get(summary.rank, 0)
        rest_ns = sum(step.step_ns for step in steps) - compute_ns - data_ns - waited_ns
        for part, time_ns in zip(parts, (compute_ns, data_ns, waited_ns, rest_ns), strict=True):
            parts[part].append(time_ns / len(steps))
    return {part: round(statistics.fmean(of_ranks)) for part, of_ranks in parts.items()}
