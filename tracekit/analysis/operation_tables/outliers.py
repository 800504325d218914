"""Operations that last far longer in one step than in the others, and what each of them costs its step.

What is usual of an operation is its median over the steps; of few steps, that of its rank and type. What operations of
a rank and type vary by is 1.4826 times the median of their absolute deviations from that, the standard deviation of
normal values. An operation is an outlier

* 6 such deviations above what is usual, half as long again, and longer by 0.5 % of a step;
* *sure* from 12 deviations and twice the usual time on, where 5 steps or more tell what is usual; else *likely*.

A step in which most forwards and backwards are longer is slow as a whole, and has no outliers.

The saving is the step as replayed less the step as replayed with this one operation as usual, and all else as measured.
A replay is the longest of sums of durations, so no saving exceeds the time that the operation lasts beyond the usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.finding import Certainty
from tracekit.analysis.operation_tables import columns
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.replay.critical_chain import synchronised_members
from tracekit.analysis.replay.even_stages import group_values
from tracekit.analysis.replay.operation_graph import GraphSteps
from tracekit.analysis.stats.medians import MAD_TO_SIGMA
from tracekit.analysis.stats.rows_by_pair import rows_by_value
from tracekit.analysis.table import Frame
from tracekit.model.events import ABSENT, Bool, Float64, Int64

__all__ = ["Outlier", "Outliers", "find_outliers"]

_ENOUGH_STEPS = 5
_DEVIATIONS = {"sure": 12.0, "likely": 6.0}
_LONGER = {"sure": 1.0, "likely": 0.5}  # beyond the usual time, as a share of that
_LEAST_SHARE = 0.005  # of a step
_SLOW_STEP = 1.25  # times as long as usual are most operations of a step that is slow as a whole
_MOST_REPLAYED = 10_000
_MOST_REPLAYED_OPERATIONS = 1_000_000_000  # over all outliers of a group of steps
_ALIKE = 0.5  # of how much longer an operation is, as a share, so is the other pass of a long microbatch
_AT_ONCE = 2_000_000  # durations


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """An operation that lasts far longer in one step than in the others.

    Attributes:
        operation: its type.
        stage: -1 where it has none.
        microbatch: -1 where it has none.
        waits_on_others: it is a transfer or a collective, and no work of the rank.
        is_of_long_microbatch: forward and backward of this microbatch are both longer on this rank and in this step, so
            that nothing stalled: the microbatch has more work.
        usual_ns: how long it usually lasts.
        saves_ns: by how much its step would be shorter if it lasted as usual.
    """

    step: int
    rank: int
    stage: int
    operation: str
    microbatch: int
    waits_on_others: bool
    is_of_long_microbatch: bool
    duration_ns: int
    usual_ns: int
    saves_ns: int
    certainty: Certainty


@dataclass(frozen=True, kw_only=True)
class Outliers:
    """The outliers of a job, the largest saving first.

    Attributes:
        outliers: all of them.
        rows: rows of columns.OUTLIERS.
        slow_steps: by number how many times as long as usual a step's operations are that is slow as a whole.
        stalls_ns: by how much the mean step would be shorter if all those that are work lasted as usual.
        transfers_ns: by how much if all those that are transfers or collectives did.
    """

    outliers: tuple[Outlier, ...]
    slow_steps: dict[int, float]
    stalls_ns: int
    transfers_ns: int
    rows: Frame = Frame(columns.OUTLIERS)


def find_outliers(named: NamedGraph) -> Outliers:
    """Return the outliers of all steps, and what removing each of them saves."""
    groups = named.graph.step_groups
    usual_ns = _usual_times(groups)
    deviation_ns = _deviations(groups, usual_ns)
    step_ns = float(np.median(np.concatenate([group.measured_ns for group in groups])))
    steps = sum(len(group.steps) for group in groups)
    found: list[Outlier] = []
    slow_steps: dict[int, float] = {}
    together_ns = {False: 0.0, True: 0.0}
    for number, group in enumerate(groups):
        usual, deviation = usual_ns[number], deviation_ns[number]
        slowness = _slowness(group, usual, named.compute_types)
        slow_steps |= {int(group.steps[i]): float(slowness[i]) for i in np.flatnonzero(slowness >= _SLOW_STEP)}
        beyond_ns = group.duration_ns - usual[:, None]
        least_ns = np.maximum(_DEVIATIONS["likely"] * deviation, _LONGER["likely"] * usual)
        is_outlier = beyond_ns > np.maximum(least_ns, _LEAST_SHARE * step_ns)[:, None]
        is_outlier &= (slowness < _SLOW_STEP)[None, :]
        replayed_ns = group.step_ns(group.duration_ns)
        transfers = np.isin(group.kind, sorted(named.graph.communication_kinds))
        for of_transfers in together_ns:
            without = is_outlier & (transfers == of_transfers)[:, None]
            without_ns = np.where(without, usual[:, None], group.duration_ns)
            together_ns[of_transfers] += float((replayed_ns - group.step_ns(without_ns)).sum()) / steps
        members = synchronised_members(group.graph)
        places = _places(members, is_outlier, beyond_ns)
        partner = _other_pass(group, named.microbatches[number], named.compute_types)
        saved_ns = _savings(group, members, places, is_outlier, usual, replayed_ns)
        for (operation, place), saves_ns in zip(places, saved_ns.tolist(), strict=True):
            excess_ns = float(beyond_ns[operation, place])
            is_sure = steps >= _ENOUGH_STEPS and excess_ns >= max(
                _DEVIATIONS["sure"] * float(deviation[operation]), _LONGER["sure"] * float(usual[operation])
            )
            found.append(
                Outlier(
                    step=int(group.steps[place]),
                    rank=int(group.rank[operation]),
                    stage=int(named.stages[number][operation]),
                    operation=named.graph.types[int(group.type[operation])],
                    microbatch=int(named.microbatches[number][operation]),
                    waits_on_others=bool(transfers[operation]),
                    is_of_long_microbatch=_is_longer_too(partner[operation], beyond_ns[:, place], usual, operation),
                    duration_ns=round(float(group.duration_ns[operation, place])),
                    usual_ns=round(float(usual[operation])),
                    saves_ns=round(max(saves_ns, 0.0)),
                    certainty="sure" if is_sure else "likely",
                )
            )
    found.sort(key=lambda outlier: (-outlier.saves_ns, outlier.step, outlier.rank, outlier.operation))
    return Outliers(
        outliers=tuple(found),
        slow_steps=slow_steps,
        stalls_ns=round(together_ns[False]),
        transfers_ns=round(together_ns[True]),
        rows=_rows(found),
    )


def _usual_times(groups: Sequence[GraphSteps]) -> list[Float64]:
    """Return how long each operation usually lasts, float64 [n] for each group of steps."""
    result = [
        np.median(group.duration_ns, axis=1) if len(group.steps) >= _ENOUGH_STEPS else np.zeros(len(group.rank))
        for group in groups
    ]
    few = {number for number, group in enumerate(groups) if len(group.steps) < _ENOUGH_STEPS}
    for numbers, rows, values in _by_class(groups, [group.duration_ns for group in groups]):
        usual_ns = float(np.median(values))
        for number, of_group in zip(numbers, rows, strict=True):
            if number in few:
                result[number][of_group] = usual_ns
    return result


def _deviations(groups: Sequence[GraphSteps], usual_ns: Sequence[Float64]) -> list[Float64]:
    """Return by how much operations like each one vary, float64 [n] for each group of steps."""
    result = [np.zeros(len(group.rank)) for group in groups]
    beyond_ns = [group.duration_ns - usual[:, None] for group, usual in zip(groups, usual_ns, strict=True)]
    for numbers, rows, values in _by_class(groups, beyond_ns):
        deviation_ns = MAD_TO_SIGMA * float(np.median(np.abs(values)))
        for number, of_group in zip(numbers, rows, strict=True):
            result[number][of_group] = deviation_ns
    return result


def _by_class(
    groups: Sequence[GraphSteps], values: Sequence[Float64]
) -> Iterator[tuple[list[int], list[Int64], Float64]]:
    """Yield for the operations of each rank, type and stage the groups that have some, their rows there, and all their
    values.
    """
    identity = np.concatenate([np.stack((group.rank, group.type, group.stage)) for group in groups], axis=1)
    label = np.unique(identity, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    group_of = np.repeat(np.arange(len(groups)), [len(group.rank) for group in groups])
    row_of = np.concatenate([np.arange(len(group.rank)) for group in groups])
    for _, members in group_values(label, np.arange(len(label), dtype=np.float64)):
        place = members.astype(np.int64)
        by_group = {number: row_of[place[there]] for number, there in rows_by_value(group_of[place]).items()}
        numbers, rows = list(by_group), list(by_group.values())
        every = np.concatenate(
            [values[number][of_group].ravel() for number, of_group in zip(numbers, rows, strict=True)]
        )
        yield numbers, rows, every


def _slowness(group: GraphSteps, usual_ns: Float64, compute_types: frozenset[int]) -> Float64:
    """Return how many times as long as usual the forwards and backwards of each step are, float64 [k], the median."""
    computes = np.flatnonzero(np.isin(group.type, sorted(compute_types)) & (usual_ns > 0))
    if not len(computes):
        return np.ones(len(group.steps))
    return np.asarray(np.median(group.duration_ns[computes] / usual_ns[computes, None], axis=0))


def _other_pass(group: GraphSteps, microbatch: Int64, compute_types: frozenset[int]) -> Int64:
    """Return the backward of each forward, and the forward of each backward, int64 [n], or -1."""
    partner = np.full(len(group.rank), ABSENT)
    computes = np.flatnonzero(np.isin(group.type, sorted(compute_types)) & (microbatch >= 0))
    seen: dict[tuple[int, int, int], int] = {}
    keys = zip(*(column[computes].tolist() for column in (group.rank, group.stage, microbatch)), strict=True)
    for operation, key in zip(computes.tolist(), keys, strict=True):
        if key in seen:
            partner[[operation, seen[key]]] = seen[key], operation
        seen[key] = operation
    return partner


def _is_longer_too(partner: int, beyond_ns: Float64, usual_ns: Float64, operation: int) -> bool:
    """Return whether the other pass of an operation's microbatch is longer than usual, too."""
    if partner == ABSENT or not usual_ns[partner] or not usual_ns[operation]:
        return False
    return bool(beyond_ns[partner] / usual_ns[partner] >= _ALIKE * beyond_ns[operation] / usual_ns[operation])


def _places(members: Mapping[int, Int64], is_outlier: Bool, beyond_ns: Float64) -> list[tuple[int, int]]:
    """Return the outliers, as operation and place of the step, the longest first.

    members: of its group, for each operation that is not alone. They last as long as each other: the one that is
    longest stands for all.
    """
    operations, places = np.nonzero(is_outlier)
    order = np.argsort(-beyond_ns[operations, places], kind="stable")
    result: list[tuple[int, int]] = []
    taken: set[tuple[int, int]] = set()
    for operation, place in zip(operations[order].tolist(), places[order].tolist(), strict=True):
        together = members.get(operation)
        key = (operation if together is None else int(together.min()), place)
        if key not in taken:
            taken.add(key)
            result.append((operation, place))
    return result[: min(_MOST_REPLAYED, _MOST_REPLAYED_OPERATIONS // max(len(is_outlier), 1))]


def _savings(
    group: GraphSteps,
    members: Mapping[int, Int64],
    places: Sequence[tuple[int, int]],
    is_outlier: Bool,
    usual_ns: Float64,
    replayed_ns: Float64,
) -> Float64:
    """Return by how much the step of each outlier is shorter if it alone lasts as usual, float64 [m]."""
    saved_ns = np.zeros(len(places))
    at_once = max(1, _AT_ONCE // max(len(group.rank), 1))
    for first in range(0, len(places), at_once):
        batch = places[first : first + at_once]
        step = np.array([place for _, place in batch])
        duration_ns = group.duration_ns[:, step]
        for column, (operation, place) in enumerate(batch):
            together = members.get(operation, np.array([operation]))
            changed = together[is_outlier[together, place]]
            duration_ns[changed, column] = usual_ns[changed]
        saved_ns[first : first + at_once] = replayed_ns[step] - group.step_ns(duration_ns)
    return saved_ns


def _rows(outliers: Sequence[Outlier]) -> list[dict[str, object]]:
    return [
        {
            "step": outlier.step,
            "rank": outlier.rank,
            "stage": None if outlier.stage == ABSENT else outlier.stage,
            "operation": outlier.operation,
            "microbatch": None if outlier.microbatch == ABSENT else outlier.microbatch,
            "duration_ns": outlier.duration_ns,
            "usual_ns": outlier.usual_ns,
            "saves_ns": outlier.saves_ns,
            "certainty": outlier.certainty,
        }
        for outlier in outliers
    ]
