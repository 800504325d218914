"""Which ranks' clocks jump: their models are against the clock of one rank, the reference, which may be what jumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tracekit.analysis.clocks.reference import jumps_of, offset_at_ns, pieces_of
from tracekit.model.clocks import ClockModel
from tracekit.model.events import Int64
from tracekit.model.summary import RankSummary

_NOTABLE_NS = 50_000  # the reference's jumps leave smaller traces in the models of other ranks
_ALIKE = 1 / 4  # of a jump, within which those of all ranks lie if it is the reference that jumps
_TOUCHING_NS = 20_000  # by which two times between neighbouring ends may overlap, as ends are that far apart

__all__ = ["RankJump", "jumping_clocks"]


class RankJump(NamedTuple):
    """A jump of a rank's clock.

    Attributes:
        between_ns: two moments of the clock, ascending, between which it jumps. A clock that is set back shows times
            around them twice.
        by_ns: by how much it jumps ahead.
        or_ranks: whose clocks may have jumped instead, the other way; none if it is known that this one did.
        at_least: it may have jumped further.
    """

    between_ns: tuple[int, int]
    by_ns: int
    or_ranks: frozenset[int] = frozenset()
    at_least: bool = False


@dataclass(frozen=True, kw_only=True)
class _SeemingJump:
    """A jump of a rank's clock against the reference.

    Attributes:
        begin_ns: a moment of the run before it.
        end_ns: a moment of the run behind it, no earlier one.
        ahead_ns: how far the clock is ahead at these two.
        by_ns: by how much it jumps ahead.
        at_least: it may have jumped further.
        unproven: as in `ClockJump`. It does not jump at all if it jumps by nothing notable.
    """

    rank: int
    begin_ns: int
    end_ns: int
    ahead_ns: tuple[int, int]
    by_ns: int
    at_least: bool
    unproven: bool


def jumping_clocks(ranks: Sequence[RankSummary], models: Sequence[ClockModel]) -> dict[int, tuple[RankJump, ...]]:
    """Return the jumps of ranks' clocks, in order of time, of those that jump or may.

    At each jump, ranks whose clocks jump against the reference stand against those whose clocks do not. It is known
    which of them jump if the others have at least twice as many machines. Of two machines, or two ranks, nothing tells.
    Nor does anything if the jump may be larger, or if nothing shows that a clock is steady there.
    """
    known = {model.rank: model for model in models if model.method != "none"}
    machines = {summary.rank: summary.machine for summary in ranks if summary.rank in known}
    result: dict[int, list[RankJump]] = {}
    for at_once in _at_once(jump for model in known.values() for jump in _seeming_jumps(model)):
        together = [jump for jump in at_once if abs(jump.by_ns) >= _NOTABLE_NS]
        if not together:
            continue
        # The jump lies in what the intervals have in common. Where it may be larger, it may be anywhere in a wide one.
        wide = [jump for jump in together if jump.at_least]
        at_least = bool(wide)
        begin_ns = min(jump.begin_ns for jump in wide) if wide else max(jump.begin_ns for jump in together)
        end_ns = max(jump.end_ns for jump in wide) if wide else min(jump.end_ns for jump in together)
        jumping = frozenset(jump.rank for jump in together)
        steady = known.keys() - jumping
        sizes_ns = np.array([jump.by_ns for jump in together])
        tells = not any(jump.at_least or jump.unproven for jump in at_once)
        which = _which_jump(machines, jumping, steady, sizes_ns) if tells else "unknown"
        if which != "steady":
            or_ranks = frozenset(steady) if which == "unknown" else frozenset[int]()
            for jump in together:
                first_ns, last_ns = sorted((begin_ns + jump.ahead_ns[0], end_ns + jump.ahead_ns[1]))
                result.setdefault(jump.rank, []).append(RankJump((first_ns, last_ns), jump.by_ns, or_ranks, at_least))
        if which != "jumping":
            or_ranks = jumping if which == "unknown" else frozenset()
            by_ns = -round(float(np.median(sizes_ns)))
            for rank in steady:
                pieces, drift = pieces_of(known[rank]), (known[rank].drift_ppm or 0.0) * 1e-6
                first_ns, last_ns = (ns + offset_at_ns(pieces, ns, drift) for ns in (begin_ns, end_ns))
                result.setdefault(rank, []).append(RankJump((first_ns, last_ns), by_ns, or_ranks, at_least))
    return {rank: tuple(sorted(jumps, key=lambda jump: jump.between_ns)) for rank, jumps in sorted(result.items())}


def _seeming_jumps(model: ClockModel) -> list[_SeemingJump]:
    """Return the jumps of a clock against the reference that are notable, and where it may have jumped unseen."""
    drift = (model.drift_ppm or 0.0) * 1e-6
    result: list[_SeemingJump] = []
    for jump in jumps_of(model):
        if abs(jump.by_ns) >= _NOTABLE_NS or jump.behind.unproven:
            begin_ns, end_ns = jump.between_ns
            seeming = _SeemingJump(
                rank=model.rank,
                begin_ns=begin_ns,
                end_ns=end_ns,
                ahead_ns=(jump.before.offset_at_ns(begin_ns, drift), jump.behind.offset_at_ns(end_ns, drift)),
                by_ns=jump.by_ns,
                at_least=jump.behind.at_least,
                unproven=jump.behind.unproven,
            )
            result.append(seeming)
    return result


def _at_once(jumps: Iterable[_SeemingJump]) -> list[list[_SeemingJump]]:
    """Return the jumps that may be at one time, those of each time together, at most one of a rank."""
    result: list[list[_SeemingJump]] = []
    begin_ns, end_ns = 0, 0
    for jump in sorted(jumps, key=lambda jump: (jump.begin_ns, jump.end_ns, jump.rank)):
        shorter_ns = min(jump.end_ns - jump.begin_ns, end_ns - begin_ns)
        common_ns = min(jump.end_ns, end_ns) - max(jump.begin_ns, begin_ns)
        is_new = not result or any(jump.rank == other.rank for other in result[-1])
        if is_new or common_ns < min(_TOUCHING_NS, shorter_ns // 2):
            result.append([jump])
            begin_ns, end_ns = jump.begin_ns, jump.end_ns
        else:
            result[-1].append(jump)
            begin_ns, end_ns = max(begin_ns, jump.begin_ns), min(end_ns, jump.end_ns)
    return result


def _which_jump(
    machines: Mapping[int, str | None], jumping: Collection[int], steady: Collection[int], sizes_ns: Int64
) -> Literal["jumping", "steady", "unknown"]:
    """Return which clocks jump: those that seem to, or those that do not, as the reference does.

    Ranks whose machines have no name count as one machine, unless a single rank stands against all others.
    """
    members: dict[str, list[bool]] = {}
    unnamed = Counter[bool]()
    for ranks, jumps in ((jumping, True), (steady, False)):
        for rank in ranks:
            machine = machines[rank]
            if machine is None:
                unnamed[jumps] += 1
            else:
                members.setdefault(machine, []).append(jumps)
    most = 1 if min(len(jumping), len(steady)) > 1 else len(machines)
    votes = Counter({side: min(count, most) for side, count in unnamed.items()})
    for of_machine in members.values():
        if 2 * sum(of_machine) != len(of_machine):
            votes[2 * sum(of_machine) > len(of_machine)] += 1
    if votes[False] and votes[False] >= 2 * votes[True]:
        return "jumping"
    is_one_jump = np.ptp(sizes_ns) <= _NOTABLE_NS + _ALIKE * abs(float(np.median(sizes_ns)))
    return "steady" if votes[True] and votes[True] >= 2 * votes[False] and is_one_jump else "unknown"
