"""The pipelines of a table: as a run whose bubbles are analysed like a recorded one's, and as a graph for replays.

What waits for what:

* A rank's forwards and backwards run in the order of their starts.
* A forward waits for the forward of the stage before it, a backward for the backward of the stage behind it, by a
  transfer (`pipeline.transfers`). It takes what the receiving rank waited once both were ready.
* Another operation waits for the last forward or backward that ended before it began, and for the other operation
  before it. What lies between two forwards or backwards delays the second. What runs beside them delays none.
* The n-th collective of a kind and stage is the same one on all replicas, and synchronises them.
* A pause is the time before an operation that none of these explains. It stays as long as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline
from tracekit.explain.pipeline.manual_layout import with_inferred_pipelines
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel, Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary, StepParts
from tracekit.optables.operation_table import COLLECTIVES, COMPUTE, OTHERS, OperationTable
from tracekit.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.replay.replay import build_graph

_TRANSFERS = ("forward transfer", "backward transfer")
TYPES = ("forward", "backward", "input backward", "weight backward", *_TRANSFERS, "pause", *OTHERS)
"""Types of operations; the first ones are those of `ACTION_KINDS`."""
_PAUSE = TYPES.index("pause")
_STEP = ["step", "start_ns", "end_ns", "compute_ns"]
_FORWARD = ACTION_KINDS.index("F")


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedGraph:
    """Operations that can be replayed, with what to call them.

    Attributes:
        graph: the operations; their types name them. Tasks are operations.
        names: of each group of steps the `stage` and `microbatch` to name for each operation, int64, or -1. A transfer
            and a pause have those of the operation that waits for them.
        compute_types: types of forwards and backwards.
        pause_types: types of time in which a rank does nothing that the table has.
    """

    graph: OperationGraph
    names: tuple[pd.DataFrame, ...]
    compute_types: tuple[int, ...]
    pause_types: tuple[int, ...] = ()


@dataclass(kw_only=True)
class _Builder:
    """Operations of k steps, added in blocks, and what waits for what.

    Attributes:
        collectives: by stage, kind and number their operations, with starts and ends, int64 [k].
    """

    blocks: list[pd.DataFrame] = field(default_factory=list)
    durations_ns: list[Float64] = field(default_factory=list)
    edges: list[Int64] = field(default_factory=list)
    count: int = 0
    collectives: dict[tuple[int, str, int], list[tuple[int, Int64, Int64]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, duration_ns: Int64, type_: Int64 | int, rank: Int64 | int, **columns: Int64) -> Int64:
        """Add operations that last `duration_ns`, [m, k], and return their numbers, int64 [m].

        columns: `stage`, `microbatch`; `named_stage` is also of what runs for a stage without being its work.
        """
        numbers = self.count + np.arange(len(duration_ns))
        self.count += len(numbers)
        absent = dict.fromkeys(("stage", "named_stage", "microbatch"), ABSENT)
        self.blocks.append(pd.DataFrame({**absent, "type": type_, "rank": rank, **columns}, index=numbers))
        self.durations_ns.append(np.maximum(duration_ns, 0).astype(np.float64))
        return numbers

    def wait(self, before: Int64, after: Int64) -> None:
        """Let operations wait for others, int64 [m] each; a pair with -1 is none."""
        self.edges.append(np.stack((before, after))[:, (before != ABSENT) & (after != ABSENT)])

    def wait_with_pauses(
        self, waits: Iterable[tuple[Int64, Int64]], operations: Int64, pause_ns: Int64, rank: Int64, **columns: Int64
    ) -> None:
        """Let each of the operations wait for those in `waits`, pairs of before and after, and then pause.

        operations: int64 [m], ascending. pause_ns: int64 [m, k]; at 0 or below there is none. columns: as in `add`.
        """
        paused = (pause_ns > 0).any(axis=1)
        pauses = self.add(
            pause_ns[paused], _PAUSE, rank[paused], **{name: values[paused] for name, values in columns.items()}
        )
        self.wait(pauses, operations[paused])
        entry = operations.copy()
        entry[paused] = pauses
        for before, after in waits:
            self.wait(before, entry[np.searchsorted(operations, after)])

    def build(self, steps: Sequence[int], measured_ns: Float64, replicas: int) -> tuple[GraphSteps, pd.DataFrame]:
        """Return the graph of the steps, and the names of its operations. Collectives of all replicas synchronise."""
        rows, duration_ns = pd.concat(self.blocks).astype(np.int64), np.concatenate(self.durations_ns)
        group = np.full(self.count, ABSENT)
        for number, members in enumerate(self.collectives.values()):
            if len(members) == replicas > 1:
                operations, start_ns, end_ns = (np.array(values) for values in zip(*members, strict=True))
                group[operations], duration_ns[operations] = number, np.maximum(end_ns - start_ns.max(axis=0), 0)
        before, after = np.concatenate(self.edges, axis=1)
        type_, stage = rows["type"].to_numpy(), rows["stage"].to_numpy()
        graph_steps = GraphSteps(
            graph=build_graph(self.count, before, after, group),
            duration_ns=duration_ns,
            task=np.arange(self.count),
            kind=type_,
            comparison_class=type_ * (int(stage.max(initial=0)) + 2) + stage + 1,
            type=type_,
            rank=rows["rank"].to_numpy(),
            stage=stage,
            replica=np.full(self.count, ABSENT),
            steps=np.array(steps, dtype=np.int64),
            measured_ns=measured_ns,
        )
        return graph_steps, rows[["named_stage", "microbatch"]].rename(columns={"named_stage": "stage"})


def graph_of_table(table: OperationTable, pipelines: Sequence[MeasuredPipeline]) -> NamedGraph:
    """Return the graph. pipelines: one for each replica, as measured from the table's forwards and backwards."""
    rest = table.operations[table.operations["kind"].isin(OTHERS)]
    others = dict(iter(rest.groupby(["step", "rank"])))
    kinds = {key: tuple(rows["kind"]) for key, rows in others.items()}
    spans = table.operations.groupby("step").agg({"start_ns": "min", "end_ns": "max"})
    ranks = sorted({rank for pipeline in pipelines for rank in pipeline.ranks})
    orders_and_columns = [
        {
            step: (number, column)
            for number, order in enumerate(pipeline.action_orders)
            for column, step in enumerate(order.steps.tolist())
        }
        for pipeline in pipelines
    ]
    alike: dict[object, list[int]] = defaultdict(list)
    for step in sorted(set.intersection(*map(set, orders_and_columns))):
        orders = tuple(of_pipeline[step][0] for of_pipeline in orders_and_columns)
        alike[orders, tuple(kinds.get((step, rank)) for rank in ranks)].append(step)
    built = []
    for steps in alike.values():
        builder = _Builder()
        begins_ns = spans["start_ns"][steps].to_numpy()
        for pipeline, of_pipeline in zip(pipelines, orders_and_columns, strict=True):
            of_ranks = [[others[step, rank] for step in steps if (step, rank) in others] for rank in pipeline.ranks]
            columns = np.array([of_pipeline[step][1] for step in steps])
            _add_pipeline(builder, pipeline, of_pipeline[steps[0]][0], columns, of_ranks, begins_ns)
        measured_ns = (spans["end_ns"] - spans["start_ns"])[steps].to_numpy(np.float64)
        built.append(builder.build(steps, measured_ns, len(pipelines)))
    computes = range(len(ACTION_KINDS))
    return NamedGraph(
        graph=OperationGraph(
            step_groups=tuple(steps for steps, _ in built),
            types=TYPES,
            communication_kinds=frozenset(TYPES.index(name) for name in (*_TRANSFERS, *COLLECTIVES)),
            stage_kinds=frozenset(computes),
        ),
        compute_types=tuple(computes),
        pause_types=(_PAUSE,),
        names=tuple(names for _, names in built),
    )


def _add_pipeline(
    builder: _Builder,
    pipeline: MeasuredPipeline,
    number: int,
    columns: Int64,
    others: Sequence[Sequence[pd.DataFrame]],
    begins_ns: Int64,
) -> None:
    """Add one replica's operations in some steps.

    number: of the order that the ranks ran. columns: the columns of the steps in that order, int64 [k]. others: of each
    rank and step. begins_ns: when each step began, int64 [k].
    """
    order, edges, sent = pipeline.action_orders[number], pipeline.edges[number], pipeline.transfers[number]
    start_ns, end_ns = order.start_ns[:, columns], order.end_ns[:, columns]
    rank, stage = np.array(pipeline.ranks)[order.rank], order.stage.astype(np.int64)
    names = {"named_stage": stage, "microbatch": order.microbatch.astype(np.int64)}
    actions = builder.add(order.work_ns[:, columns], order.kind.astype(np.int64), rank, stage=stage, **names)
    consumers = edges.consumers
    forward, backward = (TYPES.index(name) for name in _TRANSFERS)
    transfers = builder.add(
        (sent.took_ns + sent.late_ns)[:, columns],
        np.where(order.kind[consumers] == _FORWARD, forward, backward),
        rank[consumers],
        **{name: values[consumers] for name, values in names.items()},
    )
    builder.wait(actions[edges.producers], transfers)
    builder.wait(np.where(sent.posted_after == ABSENT, ABSENT, actions[sent.posted_after]), transfers)
    waits = [(np.where(order.first, ABSENT, np.roll(actions, 1)), actions), (transfers, actions[consumers])]
    ready_ns = np.where(order.first[:, None], begins_ns, np.roll(end_ns, 1, axis=0))
    np.maximum.at(ready_ns, consumers, sent.ended_ns[:, columns])
    for index, of_rank in enumerate(others):
        if of_rank:
            rows = np.flatnonzero(order.rank == index)
            times = actions[rows], start_ns[rows], end_ns[rows], begins_ns
            delaying, delayed, until_ns = _add_others(builder, of_rank, rank[rows[0]], stage[rows].min(), *times)
            np.maximum.at(ready_ns, rows[delayed], until_ns)
            waits.append((delaying, actions[rows[delayed]]))
    builder.wait_with_pauses(waits, actions, start_ns - ready_ns, rank, **names)


def _add_others(
    builder: _Builder,
    others: Sequence[pd.DataFrame],
    rank: int,
    stage: int,
    actions: Int64,
    started_ns: Int64,
    ended_ns: Int64,
    begins_ns: Int64,
) -> tuple[Int64, Int64, Int64]:
    """Add the other operations of a rank to the graph, and return those that delay a forward or backward, the index of
    that, int64 [d] each, and when they ended, int64 [d, k].

    others: of each step, of the same kinds. stage: the first one of the rank, by which collectives are matched.
    actions: the rank's forwards and backwards in the graph, int64 [n]. started_ns, ended_ns: int64 [n, k]. begins_ns:
    when each step began, int64 [k]: what waits for nothing is paused since then.
    """
    start_ns, end_ns = (np.stack([rows[name] for rows in others], axis=1) for name in ("start_ns", "end_ns"))
    kinds = tuple(others[0]["kind"])
    # The forwards and backwards that ended before each one, and those that began before it ended, in most steps.
    after = _median_position(np.maximum.accumulate(ended_ns), start_ns, "right")
    before = _median_position(started_ns, end_ns, "left")
    numbers = builder.add(end_ns - start_ns, np.array([TYPES.index(kind) for kind in kinds]), rank)
    ready_ns = np.vstack((begins_ns, ended_ns))[after]
    follows = np.append(False, (end_ns[:-1] <= start_ns[1:]).all(axis=1))
    ready_ns[follows] = np.maximum(ready_ns, np.roll(end_ns, 1, axis=0))[follows]
    waits = [
        (np.where(after == 0, ABSENT, actions[after - 1]), numbers),
        (np.where(follows, np.roll(numbers, 1), ABSENT), numbers),
    ]
    builder.wait_with_pauses(waits, numbers, start_ns - ready_ns, np.full(len(numbers), rank))
    for index, kind in enumerate(kinds):
        if kind in COLLECTIVES:
            collective = (int(stage), kind, kinds[:index].count(kind))
            builder.collectives[collective].append((numbers[index], start_ns[index], end_ns[index]))
    delays = (after == before) & (before < len(actions))
    return numbers[delays], before[delays], end_ns[delays]


def _median_position(sorted_ns: Int64, values_ns: Int64, side: Literal["left", "right"]) -> Int64:
    """Return where values are in sorted times, [m, k] in [n, k], the median over the k steps, int64 [m]."""
    positions = [np.searchsorted(times, values, side) for times, values in zip(sorted_ns.T, values_ns.T, strict=True)]
    return np.asarray(np.sort(positions, axis=0)[(len(positions) - 1) // 2])


def run_of_table(table: OperationTable) -> Run:
    """Return the forwards and backwards as a run of ranks on one clock. Raises InputError if the ranks of a
    replica do not hold each stage once.
    """
    operations = table.operations
    lasted_ns = operations["end_ns"] - operations["start_ns"]
    operations = operations.assign(compute_ns=lasted_ns.where(operations["kind"].isin(COMPUTE), 0))
    steps = operations.groupby(["rank", "step"], as_index=False).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), compute_ns=("compute_ns", "sum")
    )
    steps_of = dict(list(steps.groupby("rank")))
    summaries = [_summary(table.path, rows, steps_of[rank]) for rank, rows in operations.groupby("rank")]
    computes = operations[operations["kind"].isin(COMPUTE)]
    replicas = [tuple(sorted(set(ranks))) for _, ranks in computes.groupby("replica")["rank"]]
    groups = tuple(GroupKey(description="pipeline", ranks=ranks, parallelism="pp") for ranks in replicas)
    ranks = with_inferred_pipelines(summaries, groups)
    if any(summary.pipeline is None or not summary.pipeline.ranks for summary in ranks):
        raise InputError(
            f"{table.path}: the ranks of a replica do not have forwards and backwards of each stage once",
            hint="number stages from 0; give all ranks, and each its replica of the model (column `replica`)",
        )
    return Run(
        paths=(table.path,),
        world_size=len(ranks),
        ranks=ranks,
        groups=groups,
        clocks=tuple(ClockModel(rank=summary.rank, method="host") for summary in ranks),
    )


def _summary(path: str, operations: pd.DataFrame, steps: pd.DataFrame) -> RankSummary:
    return RankSummary(
        rank=int(steps["rank"].iloc[0]),
        files=(path,),
        host_id="the table",
        device="gpu",
        recorded_steps=tuple(steps["step"].tolist()),
        steps=tuple(_step(*row) for row in steps[_STEP].itertuples(index=False)),
        event_count=len(operations),
        first_event_ns=None,
        parts={ACTIONS.name: _actions(operations)},
    )


def _actions(operations: pd.DataFrame) -> Actions:
    computes = operations[operations["kind"].isin(COMPUTE)]
    others = operations[operations["kind"].isin(OTHERS)]
    busy = Intervals.union_of(others["start_ns"].to_numpy(), others["end_ns"].to_numpy())
    start_ns, end_ns = computes["start_ns"].to_numpy(), computes["end_ns"].to_numpy()
    opens = computes["step"].diff().ne(0).to_numpy()
    begins_ns = computes["step"].map(operations.groupby("step")["start_ns"].min()).to_numpy()
    nothing = np.zeros(len(computes), dtype=np.int64)
    return Actions(
        step=computes["step"].to_numpy(),
        stage=computes["stage"].to_numpy(dtype=np.int32),
        microbatch=computes["microbatch"].to_numpy(dtype=np.int32),
        kind=computes["kind"].map(ACTION_KINDS.index).to_numpy(dtype=np.int32),
        issue_ns=start_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        wait_ns=nothing,
        idle_ns=nothing,
        other_ns=np.maximum(busy.covered_ns(np.where(opens, begins_ns, np.roll(end_ns, 1)), start_ns), 0),
        data_ns=nothing,
    )


def _step(step: int, start_ns: int, end_ns: int, compute_ns: int) -> StepParts:
    step_ns = end_ns - start_ns
    return StepParts(
        step=step,
        start_ns=start_ns,
        complete=compute_ns > 0,
        data_ns=None,
        step_ns=step_ns,
        compute_ns=min(compute_ns, step_ns),
        idle_ns=max(step_ns - compute_ns, 0),
    )
