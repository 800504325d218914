"""Which changes would shorten the step, and by how much: each is tried in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracekit.analysis.communication.link_references import Reference
from tracekit.analysis.finding import Remedy
from tracekit.analysis.model_parallel.imbalance import HIGHEST_RATIO
from tracekit.analysis.replay.even_stages import even_stage_factors
from tracekit.analysis.replay.operation_graph import DATA, LIMIT, NEVER_NS, OperationGraph
from tracekit.analysis.replay.replay import Float64
from tracekit.analysis.whatif.even_load import even_load
from tracekit.analysis.whatif.peer_levels import at_peers_level, with_limits
from tracekit.analysis.whatif.replays import Replays
from tracekit.analysis.whatif.slow_links import find_slow_links, link_at_others_speed
from tracekit.analysis.whatif.slow_sets import name_of_set, slow_sets
from tracekit.model.ranks import format_ranges

__all__ = [
    "BALANCED_STAGES",
    "DATA_AHEAD",
    "EVEN_LOAD",
    "FREE_COMMUNICATION",
    "HIDDEN_COMMUNICATION",
    "HOST_GAPS_CLOSED",
    "TOGETHER",
    "Change",
    "find_worthwhile_changes",
]

BALANCED_STAGES = "perfectly balanced stages"
DATA_AHEAD = "data loaded ahead"
EVEN_LOAD = "even expert load"
HOST_GAPS_CLOSED = "host-bound gaps closed"
HIDDEN_COMMUNICATION = "communication hidden where data dependencies allow"
FREE_COMMUNICATION = "communication that takes no time"
TOGETHER = "together"
_TRIED_RANKS = 8
_TRIED_LINKS = 8
_TRIED_OF_MANY = 2  # ranks, and links, of very many operations
_SHOWN = 3
_SHOWN_TOGETHER = 4  # changes that are made at once
_CLEARLY_MORE = 1.02  # times the saving without one of several changes: with less it is not worth the effort
_LEAST_SHARE = 0.01  # of the measured step: a smaller saving is not shown
_LEAST_ERRORS = 2  # a saving below this many times its uncertainty may be none
_MORE_THAN_ONE = 1.25  # times the saving of one of its ranks: with less a set says nothing new
_LEAST_OF_EVEN_LOAD = 0.5  # of what it saves if the rank with the most is as the others
_SPEED_OF: Mapping[Reference, str] = {
    "others alike": "the others",
    "links within hosts": "those within hosts",
    "links between hosts": "those between hosts",
    "NVLink": "NVLink",
}
_MOSTLY = 0.8  # of the saving: if one rank alone has it, that rank is named


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change and what it saves.

    Attributes:
        what: the change in words.
        remedy: what is changed.
        saves_ns_per_step: how much shorter the mean step would be.
        error_ns: the uncertainty of that, from the replay's error, the spread over steps and the clocks' uncertainty.
        share: the saving as a share of the measured step.
        rank: the rank to change, if it is one.
        ranks: the ranks that it is about: those to change, or those that a link connects.
    """

    what: str
    remedy: Remedy
    saves_ns_per_step: int
    error_ns: int
    share: float
    rank: int | None = None
    ranks: tuple[int, ...] = ()


def find_worthwhile_changes(
    replays: Replays, steps_ns: Float64, measured_ns: float, replay_error: float, ranks: Iterable[int]
) -> tuple[Change, ...]:
    """Return the changes whose saving exceeds its uncertainty, the largest saving first.

    steps_ns: float64 [s], the steps as replayed. measured_ns: the mean measured step. ranks: those to try first.
    """
    graph = replays.graph
    many = replays.are_long
    sets = slow_sets(graph) if len(steps_ns) > 1 else []  # in one step some are slow together by chance
    candidates = [
        *_single_ranks(graph, list(ranks)[: _TRIED_OF_MANY if many else _TRIED_RANKS]),
        *(_at_peers(graph, f"{name_of_set(graph, several)} at the others' median", several) for several in sets),
        *_without_data(graph),
        *_without_host_gaps(graph),
        *_slow_links(graph, _TRIED_OF_MANY if many else _TRIED_LINKS),
        *_even_load(graph),
        *_hidden_communication(graph),
        *_without_communication(graph),
        *_balanced_stages(graph),
    ]
    if not candidates:
        return ()

    def changes_of(several: list[_Candidate]) -> list[Change | None]:
        saved_ns = steps_ns[:, None] - replays.each_step_ns(candidate.durations() for candidate in several)
        return [
            _change(candidate, of_steps_ns, measured_ns, replay_error, graph.clock_error_ns)
            for candidate, of_steps_ns in zip(several, saved_ns.T, strict=True)
        ]

    tried = changes_of(candidates)
    worthwhile = [change for change in tried if change is not None]
    shown = _without_repetition(_without_explained_by_load(worthwhile))
    kept = [candidates[tried.index(change)] for change in shown]
    parts = sorted(zip(shown, kept, strict=True), key=lambda pair: -pair[0].saves_ns_per_step)
    parts = [(change, candidate) for change, candidate in parts if change.remedy != "network"]
    shown += _best_together(graph, parts[:_SHOWN_TOGETHER], changes_of)
    return tuple(sorted(shown, key=lambda change: -change.saves_ns_per_step))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Candidate:
    """A change to be tried. durations: returns float64 [n, k] of each group of steps; the rest is as in `Change`."""

    what: str
    remedy: Remedy
    durations: Callable[[], list[Float64]]
    ranks: tuple[int, ...] = ()


def _change(
    candidate: _Candidate, saved_ns: Float64, measured_ns: float, replay_error: float, clock_error_ns: int
) -> Change | None:
    """Return the change if its saving exceeds its uncertainty. saved_ns: of each step, float64 [s]."""
    mean_ns = min(float(saved_ns.mean()), measured_ns)
    spread_ns = float(saved_ns.std(ddof=1)) / len(saved_ns) ** 0.5 if len(saved_ns) > 1 else 0.0
    error_ns = float(np.sqrt((mean_ns * replay_error) ** 2 + spread_ns**2 + clock_error_ns**2))
    if mean_ns <= _LEAST_ERRORS * error_ns or mean_ns <= _LEAST_SHARE * measured_ns:
        return None
    return Change(
        what=candidate.what,
        remedy=candidate.remedy,
        saves_ns_per_step=round(mean_ns),
        error_ns=round(error_ns),
        share=mean_ns / measured_ns,
        rank=candidate.ranks[0] if len(candidate.ranks) == 1 else None,
        ranks=candidate.ranks,
    )


def _without_explained_by_load(changes: list[Change]) -> list[Change]:
    """Return the changes without those that treat what uneven expert load does: a rank that computes longer, and a
    group whose exchanges take longer, because of one rank's load. Even load saves at least half as much: of two ranks,
    the other gets half of the excess.
    """
    loads = [change for change in changes if change.remedy == "load" and change.rank is not None]

    def explained(change: Change) -> bool:
        treats = change.rank is not None if change.remedy == "ranks" else change.remedy == "link"
        return treats and any(
            load.rank in change.ranks and load.saves_ns_per_step >= _LEAST_OF_EVEN_LOAD * change.saves_ns_per_step
            for load in loads
        )

    return [change for change in changes if not explained(change)]


def _without_repetition(changes: list[Change]) -> list[Change]:
    """Return the changes without those that say nothing new.

    At most `_SHOWN` ranks and links are shown. A set of ranks has to save more than one of them does. Data that is
    loaded ahead everywhere has to save more than on one rank.
    """
    alone = [change for change in changes if change.remedy == "ranks" and change.rank is not None]
    alone_ns = {change.rank: change.saves_ns_per_step for change in alone}
    links = [change for change in changes if change.remedy == "link"]
    dropped = [*alone[_SHOWN:], *links[_SHOWN:]]
    for change in changes:
        if change.remedy == "ranks" and change.rank is None:
            most_ns = max(alone_ns.get(rank, 0) for rank in change.ranks)
            dropped += [change] if change.saves_ns_per_step <= _MORE_THAN_ONE * most_ns else []
    data = [change for change in changes if change.remedy == "data"]
    if len(data) == 2:
        everywhere, one = data
        dropped.append(everywhere if one.saves_ns_per_step >= _MOSTLY * everywhere.saves_ns_per_step else one)
    return [change for change in changes if not any(change is other for other in dropped)]


def _at_peers(graph: OperationGraph, what: str, ranks: tuple[int, ...]) -> _Candidate:
    return _Candidate(what=what, remedy="ranks", durations=partial(at_peers_level, graph, ranks), ranks=ranks)


def _single_ranks(graph: OperationGraph, ranks: Iterable[int]) -> Iterator[_Candidate]:
    for rank in ranks:
        yield _at_peers(graph, f"rank {rank} at its peers' median", (rank,))


def _without_data(graph: OperationGraph) -> Iterator[_Candidate]:
    """Yield the change that no rank loads data, then that the rank does not that loads longest."""
    of_rank: dict[int, float] = {}
    for group in graph.step_groups:
        for task in np.flatnonzero(group.role == DATA).tolist() if group.role is not None else ():
            rank = int(group.task_rank[task])
            of_rank[rank] = of_rank.get(rank, 0.0) + float(group.task_ns[task].sum())
    if not of_rank:
        return

    def durations(rank: int | None) -> list[Float64]:
        result = []
        for group in graph.step_groups:
            loads = np.zeros(len(group.kind), dtype=np.bool_) if group.role is None else group.role == DATA
            loads = loads if rank is None else loads & (group.task_rank == rank)
            result.append(np.where(loads[group.task][:, None], 0.0, group.duration_ns))
        return result

    worst = max(of_rank, key=lambda rank: (of_rank[rank], -rank))
    yield _Candidate(what=DATA_AHEAD, remedy="data", durations=partial(durations, None))
    what = f"{DATA_AHEAD} on rank {worst}"
    yield _Candidate(what=what, remedy="data", durations=partial(durations, worst), ranks=(worst,))


def _without_host_gaps(graph: OperationGraph) -> Iterator[_Candidate]:
    """Yield the change that no device waits for its host: launches take no time. Data that is loaded still does."""
    if not graph.host_kinds:
        return

    def durations() -> list[Float64]:
        result = []
        for group in graph.step_groups:
            vanishes = np.isin(group.kind, sorted(graph.host_kinds))
            if group.role is not None:
                vanishes |= group.role == LIMIT
            result.append(np.where(vanishes[group.task][:, None], 0.0, group.duration_ns))
        return result

    yield _Candidate(what=HOST_GAPS_CLOSED, remedy="host", durations=durations)


def _slow_links(graph: OperationGraph, most: int) -> Iterator[_Candidate]:
    for slow in find_slow_links(graph)[:most] if graph.transfers_are_known else ():
        ranks = graph.links[slow.number]
        name = f"link between ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 else f"group {format_ranges(ranks)}"
        what = f"{name} at the speed of {_SPEED_OF[slow.reference]}"
        yield _Candidate(what=what, remedy="link", durations=partial(link_at_others_speed, graph, slow), ranks=ranks)


def _even_load(graph: OperationGraph) -> Iterator[_Candidate]:
    even = even_load(graph)
    if even is not None:
        estimated = ", estimated from compute times" if even.estimated else ""
        much = f"{even.ratio:.2f} times that of the others" if even.ratio < HIGHEST_RATIO else "nearly all tokens"
        hot = "" if even.rank is None else f" (rank {even.rank} has {much}{estimated})"
        ranks = () if even.rank is None else (even.rank,)
        yield _Candidate(what=EVEN_LOAD + hot, remedy="load", durations=lambda: even.durations, ranks=ranks)


def _hidden_communication(graph: OperationGraph) -> Iterator[_Candidate]:
    """Yield the change that work waits for gradients only where it needs them, and parameters are gathered early."""
    if not (graph.transfers_are_known and graph.order_kinds):
        return

    def durations() -> list[Float64]:
        kinds = sorted(graph.order_kinds)
        return [
            np.where(np.isin(group.kind, kinds)[group.task][:, None], NEVER_NS, group.duration_ns)
            for group in graph.step_groups
        ]

    yield _Candidate(what=HIDDEN_COMMUNICATION, remedy="communication", durations=durations)


def _without_communication(graph: OperationGraph) -> Iterator[_Candidate]:
    """Yield the change that transfers take no time. No remedy does that: it bounds what faster links may save."""
    if graph.transfers_are_known and any(graph.is_transfer(group).any() for group in graph.step_groups):

        def durations() -> list[Float64]:
            return _durations(
                graph, [np.where(graph.is_transfer(group)[:, None], 0.0, group.task_ns) for group in graph.step_groups]
            )

        yield _Candidate(what=FREE_COMMUNICATION, remedy="network", durations=durations)


def _best_together(
    graph: OperationGraph,
    parts: list[tuple[Change, _Candidate]],
    changes_of: Callable[[list[_Candidate]], list[Change | None]],
) -> list[Change]:
    """Return the change that makes several of the others at once; none if no two save more than one of them.

    parts: those with the largest savings first. One after another is added if the step is then clearly shorter.
    """
    if not parts:
        return []
    best, made = parts[0][0], [parts[0][1]]
    for _, part in parts[1:]:
        (change,) = changes_of([_together(graph, [*made, part])])
        if change is not None and change.saves_ns_per_step > _CLEARLY_MORE * best.saves_ns_per_step:
            best, made = change, [*made, part]
    return [best] if len(made) > 1 else []


def _together(graph: OperationGraph, candidates: list[_Candidate]) -> _Candidate:
    """Return the change that makes several changes at once: each operation takes the least time that one gives it."""

    def durations() -> list[Float64]:
        result = [group.duration_ns.copy() for group in graph.step_groups]
        changed = [np.zeros(len(group.duration_ns), dtype=np.bool_) for group in graph.step_groups]
        for candidate in candidates:
            of_groups = zip(graph.step_groups, candidate.durations(), result, changed, strict=True)
            for group, duration_ns, least_ns, before in of_groups:
                differs = (duration_ns != group.duration_ns).any(axis=1)
                again = differs & before
                least_ns[differs & ~before] = duration_ns[differs & ~before]
                least_ns[again] = np.minimum(least_ns[again], duration_ns[again])
                before |= differs
        return result

    what = f"{TOGETHER}: {'; '.join(candidate.what for candidate in candidates)}"
    return _Candidate(what=what, remedy="together", durations=durations)


def _balanced_stages(graph: OperationGraph) -> Iterator[_Candidate]:
    groups = graph.step_groups
    stages = {stage for group in groups for stage in np.unique(group.task_stage).tolist() if stage >= 0}
    if len(stages) > 1:

        def durations() -> list[Float64]:
            factors = _stage_factors(graph)
            return _durations(
                graph, [group.task_ns * factors[group.kind, group.task_stage][:, None] for group in groups]
            )

        yield _Candidate(what=BALANCED_STAGES, remedy="stages", durations=durations)


def _durations(graph: OperationGraph, task_ns: list[Float64]) -> list[Float64]:
    """Return durations with which the tasks of each group of steps last `task_ns`, and limits follow them."""
    groups = zip(graph.step_groups, task_ns, strict=True)
    return [group.with_task_times(with_limits(group, times_ns)) for group, times_ns in groups]


def _stage_factors(graph: OperationGraph) -> Float64:
    """Return the factors, float64 [kinds, stages + 1], that make all stages compute equally long."""
    kinds = max(int(group.kind.max(initial=0)) for group in graph.step_groups) + 1
    stages = max(int(group.task_stage.max(initial=0)) for group in graph.step_groups) + 1
    kind, stage, task_ns = [], [], []
    for group in graph.step_groups:
        computes = ~graph.is_transfer(group) & (group.task_stage >= 0)
        replicas = group.task_ns.shape[1]
        kind.append(np.repeat(group.kind[computes], replicas))
        stage.append(np.repeat(group.task_stage[computes], replicas))
        task_ns.append(group.task_ns[computes].ravel())
    return even_stage_factors(
        np.concatenate(kind), np.concatenate(stage), np.concatenate(task_ns), kinds=kinds, stages=stages
    )
