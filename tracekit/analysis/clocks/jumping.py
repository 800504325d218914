"""Whose clock jumps. Models are against the clock of one rank, the reference, and that may be the one that jumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from tracekit.model.clocks import ClockModel
from tracekit.model.summary import RankSummary

_NOTABLE_NS = 50_000
_ALIKE = 1 / 4  # of a jump, within which those of all ranks lie if it is the reference that jumps

__all__ = ["JumpingClock", "jumping_clocks"]


@dataclass(frozen=True, kw_only=True)
class JumpingClock:
    """The jumps of a rank's clock.

    Attributes:
        jumps: when each is, on the clock itself, and by how much it jumps ahead, in ns.
        or_ranks: whose clocks may have jumped instead, the other way; none if it is known that this one did.
    """

    jumps: tuple[tuple[int, int], ...]
    or_ranks: tuple[int, ...] = ()

    @property
    def largest_ns(self) -> int:
        """Return by how much the clock jumps ahead where it jumps most."""
        return max((by_ns for _, by_ns in self.jumps), key=abs)


def jumping_clocks(ranks: Sequence[RankSummary], models: Sequence[ClockModel]) -> dict[int, JumpingClock]:
    """Return the ranks whose clocks jump, or may.

    Ranks whose clocks jump against the reference stand against those whose clocks do not. It is known which of them
    jump if the others have at least twice as many machines. Of two machines, or two ranks, nothing tells it.
    """
    known = {model.rank: model for model in models if model.method != "none"}
    shown = {rank: model for rank, model in known.items() if model.method != "probe" and _jumps_notably(model)}
    if not shown:
        return {}
    still = {rank: model for rank, model in known.items() if rank not in shown}
    whose = _whose(ranks, known, shown)
    result: dict[int, JumpingClock] = {}
    if whose != "reference":
        or_ranks = tuple(still) if whose == "unknown" else ()
        result |= {rank: JumpingClock(jumps=_jumps(model), or_ranks=or_ranks) for rank, model in shown.items()}
    if whose != "others":
        or_ranks = tuple(shown) if whose == "unknown" else ()
        shows = shown[min(shown)]
        result |= {
            rank: JumpingClock(jumps=_jumps_of_frame(shows, model), or_ranks=or_ranks) for rank, model in still.items()
        }
    return dict(sorted(result.items()))


def _whose(
    ranks: Sequence[RankSummary], known: Collection[int], shown: Mapping[int, ClockModel]
) -> Literal["reference", "others", "unknown"]:
    """Return whose clocks jump: of the reference and those that agree with it, or the others, which are `shown` to."""
    votes = Counter[bool]()
    for members in _machines(ranks, known):
        jumping = sum(rank in shown for rank in members)
        if 2 * jumping != len(members):
            votes[2 * jumping > len(members)] += 1
    if votes[False] and votes[False] >= 2 * votes[True]:
        return "others"
    total_ns = np.array([sum(jump_sizes_ns(model)) for model in shown.values()])
    alike = np.ptp(total_ns) <= _NOTABLE_NS + _ALIKE * abs(float(np.median(total_ns)))
    return "reference" if votes[True] and votes[True] >= 2 * votes[False] and alike else "unknown"


def _machines(ranks: Sequence[RankSummary], known: Collection[int]) -> list[list[int]]:
    """Return the known ranks of each machine. A rank whose machine nothing names is alone."""
    members: dict[object, list[int]] = {}
    for summary in ranks:
        if summary.rank in known:
            members.setdefault(summary.machine or summary.rank, []).append(summary.rank)
    return list(members.values())


def _jumps(model: ClockModel) -> tuple[tuple[int, int], ...]:
    return tuple(zip((jump.from_ns for jump in model.jumps), jump_sizes_ns(model), strict=True))


def _jumps_of_frame(shows: ClockModel, model: ClockModel) -> tuple[tuple[int, int], ...]:
    """Return the jumps of the frame, which the model of another clock `shows`, as jumps of a clock that shares them."""
    jumps = []
    for from_ns, by_ns in _jumps(shows):
        # Halfway between what the other model says before and after is where the frame's clock itself jumps.
        run_ns = (shows.moment_to_run(from_ns - 1) + shows.moment_to_run(from_ns)) // 2
        own_ns = run_ns + model.offset_ns
        jumps.append((own_ns + round((own_ns - model.at_ns) * (model.drift_ppm or 0.0) * 1e-6), -by_ns))
    return tuple(jumps)


def jump_sizes_ns(model: ClockModel) -> list[int]:
    """Return by how much a clock jumps ahead at each of its jumps."""
    offsets = [(model.offset_ns, model.at_ns), *((jump.offset_ns, jump.at_ns) for jump in model.jumps)]
    drift = (model.drift_ppm or 0.0) * 1e-6
    by_ns = []
    for (was_ns, was_at_ns), (is_ns, at_ns) in pairwise(offsets):
        elapsed_ns = (at_ns - is_ns) - (was_at_ns - was_ns)
        by_ns.append(is_ns - was_ns - round(drift * elapsed_ns))
    return by_ns


def _jumps_notably(model: ClockModel) -> bool:
    """Return whether a clock jumps itself. The reference's jumps leave small traces in the models of other ranks."""
    return bool(model.jumps) and max(map(abs, jump_sizes_ns(model))) >= _NOTABLE_NS
