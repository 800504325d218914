"""At which rate ranks that do not wait for each other take their steps, and which of them are slow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.analysis.finding import Finding
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

INDEPENDENT = "the ranks do not communicate with each other in these steps, so none is seen to wait for another"
_SLOWER = 1.25  # times the steps of the peers: less is not worth a finding
_SPREADS = 1.0  # what is slow is slower by more than the peers differ, so many times
_ERRORS = 3.0  # and by more than so many standard errors of the ratio of two mean steps

__all__ = ["INDEPENDENT", "SlowRates", "find_slow_rates", "slow_rate_finding", "slow_rates_of_ranks", "steps_per_s"]


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

    @property
    def even_rate_text(self) -> str:
        """Return what the job would gain if the slow ranks kept up."""
        return f"the job would make {self.even_job_rate:.3g} steps a second, not {self.job_rate:.3g}"


def steps_per_s(summary: RankSummary) -> float | None:
    """Return how many complete steps a rank takes a second; None without any."""
    step_ns = _lengths(summary)
    return 1e9 / statistics.fmean(step_ns) if step_ns and sum(step_ns) else None


def find_slow_rates(ranks: Sequence[RankSummary], waits_ns: Mapping[int, int]) -> SlowRates | None:
    """Return the ranks, at most half of them, that are clearly slower than the others; None without any.

    ranks: two or more that do the same work at their own pace. waits_ns: how long each waits for remote calls, in all
    its complete steps.
    """
    by_length = sorted((summary for summary in ranks if any(_lengths(summary))), key=_median_ns, reverse=True)
    if len(by_length) < 2:
        return None
    medians_ns = [_median_ns(summary) for summary in by_length]
    count = max(range(1, len(by_length) // 2 + 1), key=lambda n: medians_ns[n - 1] / max(medians_ns[n], 1))
    slow, peers = by_length[:count], by_length[count:]
    beyond_ns = medians_ns[count - 1] - medians_ns[count]
    clear = (
        medians_ns[count - 1] >= _SLOWER * medians_ns[count]
        and beyond_ns > _SPREADS * (medians_ns[count] - medians_ns[-1])
        and math.log(medians_ns[count - 1] / medians_ns[count]) > _ERRORS * _ratio_error(by_length)
        and min(map(min, map(_lengths, slow))) > medians_ns[count]
    )
    if not clear:
        return None
    rates = sorted(rate for summary in slow if (rate := steps_per_s(summary)) is not None)
    peers_rates = [rate for summary in peers if (rate := steps_per_s(summary)) is not None]
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


def slow_rate_finding(found: SlowRates, names: Mapping[int, str], besides: str, advice: str) -> Finding:
    """Return the finding on slow ranks. names: of ranks that have one. besides: what else is true of them.

    advice: what to know or do after looking for the cause.
    """
    name = names.get(found.slow[0])
    who = f"rank{'s' * (len(found.slow) > 1)} {format_ranges(found.slow)}"
    if len(found.slow) == 1 and name is not None:
        who = f"{name} ({who})"
    rates = f"{found.rates[0]:.3g}" + (f" to {found.rates[-1]:.3g}" if found.rates[-1] > found.rates[0] else "")
    one = len(found.slow) == 1
    text = (
        f"{who} make{'s' * one} {rates} steps a second, {'its' if one else 'their'} "
        f"peer{'s' * (len(found.peers) > 1)} {found.peers_rate:.3g}; {besides}"
    )
    cause = max(found.longer_parts_ns, key=lambda part: found.longer_parts_ns[part])
    where = f"{found.longer_parts_ns[cause] / 1e6:.1f} ms longer"
    action = {
        "compute": f"compare what {'it runs' if one else 'they run'} with {'its' if one else 'their'} peers: a step "
        f"computes {where}",
        "data": f"load {'its' if one else 'their'} data ahead: a step loads {where}",
        "rpc": f"compare the way to the servers: a step waits for remote calls {where}",
        "host": f"look what {'it does' if one else 'they do'} outside of operators: a step spends {where} there",
    }[cause]
    return Finding(
        severity="warning",
        text=text,
        rank=found.slow[0] if one else None,
        ranks=found.slow if not one else (),
        cause="rpc" if cause == "rpc" else f"slow_{cause}",
        time_ns=found.longer_ns * len(found.slow) // (len(found.slow) + len(found.peers)),
        action=f"{action}; {advice}",
        evidence={
            "steps_per_s": found.rates[0] if one else list(found.rates),
            "peers_steps_per_s": found.peers_rate,
            "job_steps_per_s": found.job_rate,
            "even_job_steps_per_s": found.even_job_rate,
            "longer_ns": found.longer_ns,
            "longer_parts_ns": dict(found.longer_parts_ns),
            "no_replay": "no rank is seen to wait for another, so no other would have a shorter step",
        },
    )


def slow_rates_of_ranks(run: Run) -> list[Finding]:
    """Find ranks that are slower than others of which none is seen to wait. They may meet outside of the recording."""
    found = find_slow_rates([summary for summary in run.ranks if summary.is_measured], {})
    if found is None:
        return []
    advice = "if ranks meet in other steps, record these to see who waits there"
    return [slow_rate_finding(found, {}, "no rank is seen to wait for another", advice)]


def _lengths(summary: RankSummary) -> list[int]:
    return [step.step_ns for step in summary.steps if step.complete]


def _ratio_error(ranks: Sequence[RankSummary]) -> float:
    """Return the standard error of the ratio of two ranks' mean steps, from how steps of all ranks vary."""
    lengths = [lengths_ns for summary in ranks if len(lengths_ns := _lengths(summary)) > 1]
    if not lengths:
        return 0.0  # of one step each: it is not known
    variances = [(statistics.stdev(of_rank) / statistics.fmean(of_rank)) ** 2 for of_rank in lengths]
    return math.sqrt(2 * statistics.fmean(variances) / statistics.fmean(map(len, lengths)))


def _median_ns(summary: RankSummary) -> float:
    return statistics.median(_lengths(summary))


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
