"""Which clocks jump within the recording, or run at another rate than the others: their ranks are not compared.

A jump is a level shift: how far a rank leaves collectives after most others stays as it is, and changes at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tracekit.job.clocks.collective_samples import CollectiveSamples
from tracekit.job.clocks.fit import ODD_RATE
from tracekit.model.events import Float64
from tracekit.model.run import ClockModel, largest_pair_error_ns
from tracekit.stats.grouped import grouped

_BLOCKS = 32
_FEWEST_ON_A_SIDE = 3  # blocks
_SMALLEST_NS = 50_000
_MOST = 0.75  # of the blocks are no farther off
_STANDS_OUT = 8.0  # times as long as most blocks are off their side
_BETTER = 3.0  # times as far off a line: a drift looks like a jump, too
_AGREEING = 2 / 3


def with_jumps(
    models: Sequence[ClockModel], samples: Sequence[CollectiveSamples], hosts: Mapping[int, str]
) -> tuple[ClockModel, ...]:
    """Return the models, of which those of clocks that jump say by how much.

    If as many clocks of a group seem to jump as do not, nothing tells which do: then none of these is known.
    The clock of a host jumps for all of its ranks, so among ranks of one host nothing is a jump: a busy processor, or
    turns on a device that they share, lets one leave late. Ranks whose hosts are not known may share a device, too: a
    jump must then be longer than two transfers.
    """
    known = {model.rank: model for model in models if model.method != "none"}
    jumping: dict[int, int] = {}
    unclear: dict[int, int] = {}
    for group in samples:
        members = [r for r, rank in enumerate(group.ranks) if rank in known]
        if len(members) < 2:
            continue
        here = [group.ranks[r] for r in members]
        of_host = grouped((hosts.get(rank, f"of rank {rank} alone"), rank) for rank in here)
        if len(of_host) < 2:
            continue
        are_known = all(group.ranks[r] in hosts for r in members)
        least_ns = _SMALLEST_NS if are_known else max(_SMALLEST_NS, 2 * group.transfer_ns)
        jumps_ns = _impossible_ns(known, group, members, least_ns) | _jumps_ns(group, members, least_ns)
        jumps_ns = {
            rank: jumps_ns[rank]
            for ranks in of_host.values()
            for rank in ranks
            if {np.sign(jumps_ns.get(other, 0)) for other in ranks} in ({1}, {-1})
        }
        found = unclear if 2 * len(jumps_ns) >= len(members) else jumping
        found |= jumps_ns
    return tuple(
        replace(model, jump_ns=jumping[model.rank])
        if model.rank in jumping
        else ClockModel(rank=model.rank, method="none", jump_ns=unclear[model.rank])
        if model.rank in unclear
        else model
        for model in models
    )


def _impossible_ns(
    models: Mapping[int, ClockModel], samples: CollectiveSamples, members: Sequence[int], least_ns: float
) -> dict[int, int]:
    """Return the ranks that alone seem to enter a collective when all others have left it, or to leave before any other
    enters, and by how much.
    """
    chosen = np.flatnonzero(samples.there[members].all(axis=0))
    if not len(chosen):
        return {}
    clocks = [models[samples.ranks[r]] for r in members]
    ends_ns, took_ns = samples.end_ns[members][:, chosen], samples.duration_ns[members][:, chosen]
    end_ns = np.stack([clock.to_run(of_rank) for clock, of_rank in zip(clocks, ends_ns, strict=True)])
    start_ns = end_ns - took_ns
    least_ns += largest_pair_error_ns(clocks)
    result: dict[int, int] = {}
    for sign, enters_ns, leaves_ns in ((1, start_ns, end_ns), (-1, -end_ns, -start_ns)):
        last = enters_ns.argmax(axis=0)
        others_left_ns = np.sort(leaves_ns, axis=0)[0]  # the last to enter leaves later
        by_ns = enters_ns.max(axis=0) - others_left_ns
        for i in np.flatnonzero(by_ns > least_ns).tolist():
            alone = np.delete(enters_ns[:, i], last[i]).max() - others_left_ns[i] <= least_ns
            if alone and (len(members) > 2 or sign > 0):
                result.setdefault(samples.ranks[members[last[i]]], sign * int(by_ns[i]))
    return result


def _jumps_ns(samples: CollectiveSamples, members: Sequence[int], least_ns: float) -> dict[int, int]:
    """Return by how much the clocks of ranks, given as members in a group, jump by more than `least_ns`, by rank.

    The level of a rank is how much later than at first it leaves collectives, less what the ranks have in common.
    """
    chosen = np.flatnonzero(samples.there[members].all(axis=0))
    if len(chosen) < 2 * _FEWEST_ON_A_SIDE:
        return {}
    end_ns = samples.end_ns[members][:, chosen]
    end_ns = end_ns[:, np.argsort(end_ns[0], kind="stable")]
    x = (end_ns[0] - end_ns[0, 0]).astype(np.float64)
    level = (end_ns - end_ns[0]).astype(np.float64)
    level -= np.median(level[:, : max(_FEWEST_ON_A_SIDE, len(chosen) // 4)], axis=1, keepdims=True)
    level = (level - np.median(level, axis=0)) * (2 if len(members) == 2 else 1)  # the median of two is halfway
    rows = np.flatnonzero(np.ptp(level, axis=1) > least_ns)  # usually none
    edges = np.linspace(0, len(x), min(_BLOCKS, len(x)) + 1).astype(np.int64).tolist()
    at = np.array([np.median(x[begin:end]) for begin, end in pairwise(edges)])
    blocks = np.stack([np.median(level[rows, begin:end], axis=1) for begin, end in pairwise(edges)], axis=1)
    jumps_ns = {samples.ranks[members[r]]: _jump(at, of_rank) for r, of_rank in zip(rows.tolist(), blocks, strict=True)}
    return {rank: round(jump_ns) for rank, jump_ns in jumps_ns.items() if abs(jump_ns) > least_ns}


def _jump(at: Float64, blocks: Float64) -> float:
    """Return by how much the level jumps at one time; 0 if it does not.

    The two levels must explain what a line through all of it does not: a drift is no jump.

    at, blocks: times and levels of blocks of samples, float64 [b] each, in order of time.
    """
    if np.ptp(blocks) <= _SMALLEST_NS:
        return 0.0
    sides = [_sides(blocks, index) for index in range(_FEWEST_ON_A_SIDE, len(blocks) - _FEWEST_ON_A_SIDE + 1)]
    jump, deviations = min(sides, key=lambda side: float(side[1].mean()))
    from_middle = at - at.mean()
    slope = float(from_middle @ blocks) / max(float(from_middle @ from_middle), 1.0)
    off_line = np.abs(blocks - blocks.mean() - slope * from_middle)
    least = min(abs(jump) / _STANDS_OUT, float(np.quantile(off_line, _MOST)) / _BETTER)
    return jump if float(np.quantile(deviations, _MOST)) < least else 0.0


def _sides(blocks: Float64, index: int) -> tuple[float, Float64]:
    """Return by how much the median of the blocks changes at an index, and how far each block is off its side."""
    before, behind = np.median(blocks[:index]), np.median(blocks[index:])
    return float(behind - before), np.abs(np.concatenate((blocks[:index] - before, blocks[index:] - behind)))


def odd_rates(models: Sequence[ClockModel]) -> dict[int, float]:
    """Return the ranks whose clocks run at another rate than two thirds of the known ones: how long their second is."""
    rates = _rates(models)
    if not rates:
        return {}
    usual = statistics.median_low(rates.values())
    odd = {rank: rate / usual for rank, rate in rates.items() if abs(rate / usual - 1) >= ODD_RATE}
    return odd if len(rates) - len(odd) >= _AGREEING * len(rates) else {}


def with_comparable_rates(models: Sequence[ClockModel]) -> tuple[ClockModel, ...]:
    """Return the models. None of them is known if their rates differ, and most do not agree."""
    rates = _rates(models).values()
    differ = rates and max(rates) - min(rates) >= ODD_RATE and not odd_rates(models)
    return tuple(ClockModel(rank=model.rank, method="none") for model in models) if differ else tuple(models)


def _rates(models: Sequence[ClockModel]) -> dict[int, float]:
    """Return how long a second of the reference is on each clock that is known."""
    return {model.rank: 1 / (1 - (model.drift_ppm or 0.0) * 1e-6) for model in models if model.method != "none"}
