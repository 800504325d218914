"""Which changes a replay tries, and how long operations take with each of them.

With an even load of experts, their work and the exchanges of their tokens take as long as if all ranks had the same
load. The load of a rank is what an exchange brings to it: bytes, or an estimate where no sizes are known. If the work
behind it lasts longer the more it brings, the work is taken to grow with it: by the slope of a line through the
deviations from the mean of the ranks that exchange. An exchange takes as long as its busiest rank, so that it changes
by the ratio of the mean to the largest amount.

Ranks that are slow together, such as those of one machine or one stage, are tried together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from tracekit.explain.communication.slow_messages import Reference
from tracekit.explain.model_parallel.expert_load import HIGHEST_RATIO, LEAST_OVERLOAD
from tracekit.explain.whatif.peer_speed import (
    at_peers_speed,
    find_slow_links,
    link_at_others_speed,
    median_by_class,
    with_limits,
)
from tracekit.findings.finding import Remedy
from tracekit.model.events import Bool, Float64, Int64
from tracekit.model.run import format_ranges
from tracekit.replay.operation_graph import (
    EARLY,
    LIMIT,
    NEVER_NS,
    REGATHER,
    ROLES,
    SYNCHRONISATION,
    GraphSteps,
    OperationGraph,
)
from tracekit.replay.replay import even_stage_factors

BALANCED_STAGES = "perfectly balanced stages"
_WITHOUT: Mapping[Remedy, str] = {
    "data": "data loaded ahead",
    "checkpoint": "checkpoints that hold nobody up",
    "evaluation": "no evaluation",
    "logging": "logging that takes no time",
    "allocator": "no allocation of memory",
    "garbage_collection": "no garbage collection",
}
_EVEN_LOAD = "even expert load"
_HOST_GAPS_CLOSED = "host-bound gaps closed"
_KEPT_PARAMETERS = "parameters kept from forward to backward"
_LAST_MICRO_BATCH = "gradients reduced in the last micro-batch only"
_HIDDEN_COMMUNICATION = "communication hidden where data dependencies allow"
_FREE_COMMUNICATION = "upper bound, if communication were free"
_TRIED_RANKS = 8
_TRIED_LINKS = 8
_TRIED_OF_MANY = 2  # ranks, and links, of very many operations
_SPEED_OF: Mapping[Reference, str] = {
    "others alike": "the others",
    "links within hosts": "those within hosts",
    "links between hosts": "those between hosts",
    "NVLink": "NVLink",
}

_EXPLAINED = 0.5  # of the variance of the work that its load explains
_UNEVEN = 1.1  # times the mean: with less there is nothing to even out


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
        *_left_out(graph, REGATHER, "reshard", _KEPT_PARAMETERS),
        *_left_out(graph, EARLY, "accumulate", _LAST_MICRO_BATCH),
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
    return Candidate(what=what, remedy="ranks", durations=partial(at_peers_speed, graph, ranks), ranks=ranks)


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
        ranks = graph.network_links[slow.number]
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


def _left_out(graph: OperationGraph, role: int, remedy: Remedy, what: str) -> Iterator[Candidate]:
    """Yield the change that the transfers of a role are not made: nothing waits for one."""
    of_role = [
        np.zeros(len(group.kind), dtype=np.bool_) if group.role is None else group.role == role
        for group in graph.step_groups
    ]
    if not graph.transfers_are_known or not any(of_group.any() for of_group in of_role):
        return

    def durations() -> list[Float64]:
        return [
            np.where(of_group[group.task][:, None], NEVER_NS, group.duration_ns)
            for group, of_group in zip(graph.step_groups, of_role, strict=True)
        ]

    yield Candidate(what=what, remedy=remedy, durations=durations)


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
    samples = []
    for group in graph.step_groups:
        computes = ~graph.is_transfer(group) & (group.task_stage >= 0)
        keys = np.stack((group.kind[computes], group.task_stage[computes], group.task_rank[computes]))
        times_ns = group.task_ns[computes]
        samples.append((np.repeat(keys, times_ns.shape[1], axis=1), times_ns.ravel()))
    kind, stage, rank = np.concatenate([keys for keys, _ in samples], axis=1)
    task_ns = np.concatenate([times_ns for _, times_ns in samples])
    return even_stage_factors(kind, stage, rank, task_ns, kinds=kinds, stages=stages)


@dataclass(frozen=True, kw_only=True, eq=False)
class EvenLoad:
    """What changes with even loads.

    Attributes:
        durations: float64 [n, k] of each group of steps.
        rank: the rank that has much more load than the others, None without one.
        ratio: its load by the mean of the ranks that it exchanges with, `HIGHEST_RATIO` at most.
        estimated: whether a load is estimated from how long experts compute.
    """

    durations: list[Float64]
    rank: int | None
    ratio: float
    estimated: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class _Loads:
    """The exchanges of a group of steps whose load decides how long the work behind them takes.

    Attributes:
        rows: of the exchanges, int64 [x].
        number: of the exchange over all its ranks, int64 [x].
        mean: that the ranks of each exchange receive, float64 [x].
        others: that those of them receive that are not this one, on average, float64 [x].
        largest: that one of them sends or receives, float64 [x].
    """

    rows: Int64
    number: Int64
    mean: Float64
    others: Float64
    largest: Float64


def even_load(graph: OperationGraph) -> EvenLoad | None:
    """Return the durations with even loads; None where no work depends on uneven exchanges."""
    loads = [_loads(group) for group in graph.step_groups]
    slopes = _slopes(graph, loads)
    result, changed, estimated = [], False, False
    received, by_others = Counter[int](), Counter[int]()
    for group, of_group in zip(graph.step_groups, loads, strict=True):
        exchanges = group.exchanges.rows(of_group.rows)
        duration_ns, task_ns = group.duration_ns.copy(), group.task_ns.copy()
        classes = group.comparison_class[exchanges.task]
        slope = np.array([slopes.get(number, 0.0) for number in classes.tolist()])
        beyond = exchanges.received - of_group.mean
        for_experts = slope > 0
        evened = np.maximum(task_ns[exchanges.task] - (slope * beyond)[:, None], 0.0)
        task_ns[exchanges.task[for_experts]] = evened[for_experts]
        shorter = of_group.mean / np.maximum(of_group.largest, 1.0)
        duration_ns = group.with_task_times(with_limits(group, task_ns))
        duration_ns[exchanges.operation] *= np.minimum(shorter, 1.0)[:, None]
        uneven = for_experts & (of_group.largest > _UNEVEN * of_group.mean)
        changed |= bool(uneven.any())
        estimated |= bool((uneven & exchanges.estimated).any())
        ranks = group.rank[exchanges.operation[for_experts]]
        _count(received, ranks, exchanges.received[for_experts])
        _count(by_others, ranks, of_group.others[for_experts])
        result.append(duration_ns)
    if not changed:
        return None
    hottest, times = _hottest(received, by_others)
    return EvenLoad(durations=result, rank=hottest, ratio=times, estimated=estimated)


def _loads(group: GraphSteps) -> _Loads:
    exchanges = group.exchanges
    rows = np.flatnonzero((exchanges.group >= 0) & (exchanges.received >= 0))
    _, number, counts = np.unique(exchanges.group[rows], return_inverse=True, return_counts=True)
    rows = rows[counts[number] > 1]  # a rank that is alone, as the others are missing, has none to even out with
    _, number, counts = np.unique(exchanges.group[rows], return_inverse=True, return_counts=True)
    mean = np.bincount(number, exchanges.received[rows], len(counts)) / np.maximum(counts, 1)
    largest = np.zeros(len(counts))
    busiest = np.maximum(exchanges.sent[rows], exchanges.received[rows])
    np.maximum.at(largest, number, busiest.astype(np.float64))
    others = (mean * counts)[number] - exchanges.received[rows]
    return _Loads(
        rows=rows,
        number=number,
        mean=mean[number],
        others=others / np.maximum(counts[number] - 1, 1),
        largest=largest[number],
    )


def _slopes(graph: OperationGraph, loads: list[_Loads]) -> dict[int, float]:
    """Return by comparison class how many ns of work a byte more takes, for those whose work depends on the load."""
    classes, beyond, longer_ns = [], [], []
    for group, of_group in zip(graph.step_groups, loads, strict=True):
        exchanges = group.exchanges.rows(of_group.rows)
        task_ns = group.task_ns[exchanges.task].mean(axis=1)
        counts = np.bincount(of_group.number)
        mean_ns = np.bincount(of_group.number, task_ns) / np.maximum(counts, 1)
        classes.append(group.comparison_class[exchanges.task])
        beyond.append(exchanges.received - of_group.mean)
        longer_ns.append(task_ns - mean_ns[of_group.number])
    label, x, y = np.concatenate(classes), np.concatenate(beyond), np.concatenate(longer_ns)
    if not len(label):
        return {}
    xy, xx, yy = (np.bincount(label, product) for product in (x * y, x * x, y * y))
    depends: Bool = (xy > 0) & (xy * xy >= _EXPLAINED * xx * yy)
    return {number: float(xy[number] / xx[number]) for number in np.flatnonzero(depends).tolist()}


def _count(total: Counter[int], ranks: Int64, amounts: Int64 | Float64) -> None:
    """Add amounts of ranks, [x] both, to their totals, in whole numbers."""
    for rank in np.unique(ranks).tolist():
        total[rank] += round(float(amounts[ranks == rank].sum()))


def _hottest(received: Counter[int], by_others: Counter[int]) -> tuple[int | None, float]:
    """Return the rank with the most by what the others get, and that ratio; no rank if it is not much."""
    ratios = {rank: _ratio(amount, by_others[rank]) for rank, amount in received.items()}
    hottest = max(ratios, key=lambda rank: (ratios[rank], received[rank], -rank))
    return (hottest if ratios[hottest] >= LEAST_OVERLOAD else None), ratios[hottest]


def _ratio(amount: int, of_others: int) -> float:
    """Return a load by that of the others, `HIGHEST_RATIO` at most."""
    if not of_others:
        return HIGHEST_RATIO if amount else 1.0
    return min(amount / of_others, HIGHEST_RATIO)


def slow_sets(graph: OperationGraph) -> list[tuple[int, ...]]:
    """Return sets of two ranks or more, and at most half of them, whose work takes longer than others' for the same.

    A set is what is above the largest gap between the ranks' excess. Tasks are the same if they are of one comparison
    class, or of one kind, unless that is the work of stages, which have other layers.
    """
    sets = []
    for by_kind in (False, True):
        excess_ns = _excess_by_rank(graph, by_kind=by_kind)
        slowest = sorted(excess_ns, key=lambda rank: -excess_ns[rank])
        gaps_ns = [excess_ns[slower] - excess_ns[faster] for slower, faster in pairwise(slowest)][: len(slowest) // 2]
        size = int(np.argmax(gaps_ns)) + 1 if gaps_ns else 0
        if size > 1:
            sets.append(tuple(sorted(slowest[:size])))
    return list(dict.fromkeys(sets))


def name_of_set(graph: OperationGraph, ranks: tuple[int, ...]) -> str:
    """Return what to call some ranks: their machine or stage, if it has no others."""
    machines = {graph.machines.get(rank) for rank in ranks}
    on_machine = {rank for rank, name in graph.machines.items() if name in machines}
    if len(machines) == 1 and None not in machines and on_machine == set(ranks):
        return f"host {machines.pop()} (ranks {format_ranges(ranks)})"
    stage_of = np.concatenate([np.stack((group.rank, group.stage)) for group in graph.step_groups], axis=1)
    stages: Int64 = np.unique(stage_of[1, np.isin(stage_of[0], ranks)])
    with_stage = np.unique(stage_of[0, np.isin(stage_of[1], stages)])
    if len(stages) == 1 and stages[0] >= 0 and set(with_stage.tolist()) == set(ranks):
        return f"stage {int(stages[0])} (ranks {format_ranges(ranks)})"
    return f"ranks {format_ranges(ranks)}"


def _excess_by_rank(graph: OperationGraph, *, by_kind: bool) -> dict[int, float]:
    """Return how much longer the work of each rank takes than the median of all ranks for the same."""
    chosen = [
        (group.task_rank >= 0) & ~graph.is_transfer(group) & ~(by_kind & graph.is_stage_work(group))
        & (True if group.role is None else ~np.isin(group.role, (LIMIT, SYNCHRONISATION)))
        for group in graph.step_groups
    ]  # fmt: skip
    median_ns, _ = median_by_class(graph, chosen, by_kind=by_kind)
    result: dict[int, float] = {}
    for group, mask in zip(graph.step_groups, chosen, strict=True):
        labels = group.kind if by_kind else group.comparison_class
        beyond_ns = (group.task_ns[mask] - median_ns[labels[mask]][:, None]).sum(axis=1)
        ranks, number = np.unique(group.task_rank[mask], return_inverse=True)
        for rank, rank_ns in zip(ranks.tolist(), np.bincount(number, beyond_ns).tolist(), strict=True):
            result[rank] = result.get(rank, 0.0) + rank_ns
    return result
