"""The changes that a replay tries, and the durations of operations that each of them makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tracekit.analysis.communication.link_references import Reference
from tracekit.analysis.finding import Remedy
from tracekit.analysis.model_parallel.imbalance import HIGHEST_RATIO
from tracekit.analysis.replay.even_stages import even_stage_factors
from tracekit.analysis.replay.operation_graph import LIMIT, NEVER_NS, REGATHER, ROLES, OperationGraph
from tracekit.analysis.whatif.even_load import even_load
from tracekit.analysis.whatif.peer_levels import at_peers_level, with_limits
from tracekit.analysis.whatif.slow_links import find_slow_links, link_at_others_speed
from tracekit.analysis.whatif.slow_sets import name_of_set, slow_sets
from tracekit.model.events import Float64
from tracekit.model.ranks import format_ranges

__all__ = [
    "BALANCED_STAGES",
    "Candidate",
    "candidates",
    "made_together",
]

BALANCED_STAGES = "perfectly balanced stages"
_WITHOUT: Mapping[Remedy, str] = {
    "data": "data loaded ahead",
    "checkpoint": "checkpoints that hold nobody up",
    "evaluation": "no evaluation",
    "logging": "logging that takes no time",
}
_EVEN_LOAD = "even expert load"
_HOST_GAPS_CLOSED = "host-bound gaps closed"
_KEPT_PARAMETERS = "parameters kept from forward to backward"
_HIDDEN_COMMUNICATION = "communication hidden where data dependencies allow"
_FREE_COMMUNICATION = "communication that takes no time"
_TRIED_RANKS = 8
_TRIED_LINKS = 8
_TRIED_OF_MANY = 2  # ranks, and links, of very many operations
_SPEED_OF: Mapping[Reference, str] = {
    "others alike": "the others",
    "links within hosts": "those within hosts",
    "links between hosts": "those between hosts",
    "NVLink": "NVLink",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A change to be tried.

    Attributes:
        what: the change in words.
        remedy: what is changed.
        durations: returns those of the operations of each group of steps, float64 [n, k].
        ranks: the ranks that it is about: those to change, or those that a link connects.
    """

    what: str
    remedy: Remedy
    durations: Callable[[], list[Float64]]
    ranks: tuple[int, ...] = ()


def candidates(graph: OperationGraph, ranks: Iterable[int], *, steps: int, many: bool) -> list[Candidate]:
    """Return what to try. ranks: those to try first. many: the run has very many operations, so fewer are tried."""
    sets = slow_sets(graph) if steps > 1 else []  # in one step some are slow together by chance
    return [
        *_single_ranks(graph, list(ranks)[: _TRIED_OF_MANY if many else _TRIED_RANKS]),
        *(_at_peers(graph, f"{name_of_set(graph, several)} at the others' median", several) for several in sets),
        *_without_interruptions(graph),
        *_without_host_gaps(graph),
        *_slow_links(graph, _TRIED_OF_MANY if many else _TRIED_LINKS),
        *_even_load(graph),
        *_kept_parameters(graph),
        *_hidden_communication(graph),
        *_without_communication(graph),
        *_balanced_stages(graph),
    ]


def made_together(graph: OperationGraph, candidates: list[Candidate]) -> Candidate:
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

    what = f"together: {'; '.join(candidate.what for candidate in candidates)}"
    return Candidate(what=what, remedy="together", durations=durations)


def _at_peers(graph: OperationGraph, what: str, ranks: tuple[int, ...]) -> Candidate:
    return Candidate(what=what, remedy="ranks", durations=partial(at_peers_level, graph, ranks), ranks=ranks)


def _single_ranks(graph: OperationGraph, ranks: Iterable[int]) -> Iterator[Candidate]:
    for rank in ranks:
        yield _at_peers(graph, f"rank {rank} at its peers' median", (rank,))


def _without_interruptions(graph: OperationGraph) -> Iterator[Candidate]:
    """Yield for each thing that ranks do instead of training: that none does, then that only the rank that does it
    longest does not.

    What an evaluation launches on devices stays, so that one is not tried there.
    """
    for remedy, what in _WITHOUT.items():
        if remedy != "evaluation" or not graph.host_kinds:
            yield from _without(graph, remedy, what)


def _without(graph: OperationGraph, remedy: Remedy, what: str) -> Iterator[Candidate]:
    role, of_rank = ROLES.index(remedy), dict[int, float]()
    for group in graph.step_groups:
        for task in np.flatnonzero(group.role == role).tolist() if group.role is not None else ():
            rank = int(group.task_rank[task])
            of_rank[rank] = of_rank.get(rank, 0.0) + float(group.task_ns[task].sum())
    if not of_rank:
        return

    def durations(rank: int | None) -> list[Float64]:
        result = []
        for group in graph.step_groups:
            vanishes = np.zeros(len(group.kind), dtype=np.bool_) if group.role is None else group.role == role
            vanishes = vanishes if rank is None else vanishes & (group.task_rank == rank)
            result.append(np.where(vanishes[group.task][:, None], 0.0, group.duration_ns))
        return result

    worst = max(of_rank, key=lambda rank: (of_rank[rank], -rank))
    yield Candidate(what=what, remedy=remedy, durations=partial(durations, None))
    of_worst = f"{what} on rank {worst}"
    yield Candidate(what=of_worst, remedy=remedy, durations=partial(durations, worst), ranks=(worst,))


def _without_host_gaps(graph: OperationGraph) -> Iterator[Candidate]:
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

    yield Candidate(what=_HOST_GAPS_CLOSED, remedy="host", durations=durations)


def _slow_links(graph: OperationGraph, most: int) -> Iterator[Candidate]:
    for slow in find_slow_links(graph)[:most] if graph.transfers_are_known else ():
        ranks = graph.links[slow.number]
        name = f"link between ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 else f"group {format_ranges(ranks)}"
        what = f"{name} at the speed of {_SPEED_OF[slow.reference]}"
        yield Candidate(what=what, remedy="link", durations=partial(link_at_others_speed, graph, slow), ranks=ranks)


def _even_load(graph: OperationGraph) -> Iterator[Candidate]:
    even = even_load(graph)
    if even is not None:
        estimated = ", estimated from compute times" if even.estimated else ""
        much = f"{even.ratio:.2f} times that of the others" if even.ratio < HIGHEST_RATIO else "nearly all tokens"
        hot = "" if even.rank is None else f" (rank {even.rank} has {much}{estimated})"
        ranks = () if even.rank is None else (even.rank,)
        yield Candidate(what=_EVEN_LOAD + hot, remedy="load", durations=lambda: even.durations, ranks=ranks)


def _kept_parameters(graph: OperationGraph) -> Iterator[Candidate]:
    """Yield the change that FSDP gathers no parameters again in the backward pass: nothing waits for such a gather."""
    again = [
        np.zeros(len(group.kind), dtype=np.bool_) if group.role is None else group.role == REGATHER
        for group in graph.step_groups
    ]
    if not graph.transfers_are_known or not any(of_group.any() for of_group in again):
        return

    def durations() -> list[Float64]:
        return [
            np.where(of_group[group.task][:, None], NEVER_NS, group.duration_ns)
            for group, of_group in zip(graph.step_groups, again, strict=True)
        ]

    yield Candidate(what=_KEPT_PARAMETERS, remedy="reshard", durations=durations)


def _hidden_communication(graph: OperationGraph) -> Iterator[Candidate]:
    """Yield the change that work waits for gradients only where it needs them, and parameters are gathered early."""
    if not (graph.transfers_are_known and graph.order_kinds):
        return

    def durations() -> list[Float64]:
        kinds = sorted(graph.order_kinds)
        return [
            np.where(np.isin(group.kind, kinds)[group.task][:, None], NEVER_NS, group.duration_ns)
            for group in graph.step_groups
        ]

    yield Candidate(what=_HIDDEN_COMMUNICATION, remedy="communication", durations=durations)


def _without_communication(graph: OperationGraph) -> Iterator[Candidate]:
    """Yield the change that transfers take no time. No remedy does that: it bounds what faster links may save."""
    if graph.transfers_are_known and any(graph.is_transfer(group).any() for group in graph.step_groups):

        def durations() -> list[Float64]:
            return _durations(
                graph, [np.where(graph.is_transfer(group)[:, None], 0.0, group.task_ns) for group in graph.step_groups]
            )

        yield Candidate(what=_FREE_COMMUNICATION, remedy="network", durations=durations)


def _balanced_stages(graph: OperationGraph) -> Iterator[Candidate]:
    groups = graph.step_groups
    stages = {stage for group in groups for stage in np.unique(group.task_stage).tolist() if stage >= 0}
    if len(stages) > 1:

        def durations() -> list[Float64]:
            factors = _stage_factors(graph)
            return _durations(
                graph, [group.task_ns * factors[group.kind, group.task_stage][:, None] for group in groups]
            )

        yield Candidate(what=BALANCED_STAGES, remedy="stages", durations=durations)


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
