"""The forwards and backwards of a table as a run, so that the analysis of pipelines reads it like a recorded one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.operation_tables.operations import COMPUTE, KINDS, RECEIVES, SENDS, Operations, OperationTable
from tracekit.analysis.pipeline.layout.inferred import with_inferred_pipelines
from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.analysis.pipeline.transfers import MessageExchange
from tracekit.analysis.stats.rows_by_pair import rows_by_value
from tracekit.errors import InputError
from tracekit.model.clocks import ClockModel
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary, StepParts

__all__ = ["exchanges_of", "run_of_table"]

_MACHINE = "the table"
_F = KINDS.index("F")
_PRODUCERS = tuple(kind for kind in COMPUTE if kind != "W")
"""Kinds whose result another stage waits for."""


def run_of_table(table: OperationTable) -> Run:
    """Return the forwards and backwards as a run of ranks on one clock. Raises InputError without any, or if ranks do
    not hold each stage of their replica once.
    """
    operations = table.operations
    if not operations.of_kinds(COMPUTE).any():
        raise InputError(f"{table.path}: no forward and no backward in it", hint="the table needs their rows")
    replicas = _replicas(operations, table.path)
    groups = tuple(GroupKey(description="pipeline", ranks=ranks, parallelism="pp") for ranks in replicas)
    ranks = with_inferred_pipelines([_summary(table, of_rank) for of_rank in _by_rank(operations)], groups)
    return Run(
        paths=(table.path,),
        run_id=None,
        attempt=0,
        world_size=len(ranks),
        ranks=ranks,
        missing_ranks=(),
        selected_ranks=None,
        groups=groups,
        clocks=tuple(ClockModel(rank=summary.rank, method="none") for summary in ranks),
        other_runs=(),
        notes=(),
    )


def exchanges_of(operations: Operations) -> dict[tuple[int, int], MessageExchange]:
    """Return the messages of a table that lists its receives, by the sending and the receiving rank.

    A message is the receive of a rank, and what the stage before, or behind, computed for it. A table need not list
    sends: then a message is sent when that is computed.
    """
    computes = operations.rows(operations.of_kinds(_PRODUCERS))
    made = {
        (step, replica, stage, microbatch, kind == _F): (rank, end_ns)
        for step, replica, stage, microbatch, kind, rank, _, end_ns in _rows(computes)
    }
    sends = operations.rows(operations.of_kinds(SENDS))
    sent_at = {
        (step, replica, stage, microbatch, kind == KINDS.index("forward-send")): start_ns
        for step, replica, stage, microbatch, kind, _, start_ns, _ in _rows(sends)
    }
    receives = operations.rows(operations.of_kinds(RECEIVES))
    messages: dict[tuple[int, int], list[tuple[int, int, int, int, int]]] = {}
    for step, replica, stage, microbatch, kind, rank, start_ns, end_ns in _rows(receives):
        is_forward = kind == KINDS.index("forward-recv")
        key = (step, replica, stage - 1 if is_forward else stage + 1, microbatch, is_forward)
        if key in made and made[key][0] != rank:
            source, made_ns = made[key]
            sent_ns = sent_at.get(key, made_ns)
            messages.setdefault((source, rank), []).append((step, made_ns, sent_ns, start_ns, end_ns))
    return {pair: _exchange(np.array(sorted(rows), dtype=np.int64)) for pair, rows in messages.items()}


def _exchange(rows: Int64) -> MessageExchange:
    """Return messages of columns step, when their content was computed, sent, awaited and received; int64 [m, 5]."""
    step, _, sent_ns, awaited_ns, ended_ns = rows.T
    unknown = np.full(len(rows), ABSENT)
    return MessageExchange(
        step=step,
        sent_ns=sent_ns,
        received_ns=awaited_ns,
        posted_ns=awaited_ns,
        ended_ns=ended_ns,
        alone_ns=unknown,
        send_kernel=unknown,
        recv_kernel=unknown,
    )


def _rows(operations: Operations) -> list[tuple[int, int, int, int, int, int, int, int]]:
    """Return step, replica, stage, microbatch, kind, rank, start and end of each operation."""
    columns = (
        *(operations.step, operations.replica, operations.stage, operations.microbatch, operations.kind),
        *(operations.rank, operations.start_ns, operations.end_ns),
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _replicas(operations: Operations, path: str) -> list[tuple[int, ...]]:
    """Return the ranks of each replica. Raises InputError if a stage of one is missing, or on two ranks."""
    computes = operations.rows(operations.of_kinds(COMPUTE))
    places = np.unique(np.stack((computes.replica, computes.stage, computes.rank)), axis=1)
    stages = np.unique(places[1])
    result = []
    for replica, rows in rows_by_value(places[0]).items():
        _, stage, rank = places[:, rows]
        twice = np.flatnonzero(np.diff(stage) == 0)
        if len(twice):
            first = int(twice[0])
            both = f"ranks {rank[first]} and {rank[first + 1]} both run stage {stage[first]} of replica {replica}"
            raise InputError(f"{path}: {both}", hint="give each rank its replica of the model, column `replica`")
        absent = np.flatnonzero(stage != np.arange(len(stage)))
        if len(absent) or len(stage) <= stages.max():
            missing = int(absent[0]) if len(absent) else len(stage)
            what = f"stage {missing} of replica {replica} has no forward and no backward"
            raise InputError(f"{path}: {what}", hint="number stages from 0, and give the operations of all ranks")
        result.append(tuple(sorted(set(rank.tolist()))))
    return result


def _by_rank(operations: Operations) -> Iterator[Operations]:
    """Yield the operations of each rank, by step and start."""
    for rows in rows_by_value(operations.rank).values():
        yield operations.rows(rows)


def _summary(table: OperationTable, of_rank: Operations) -> RankSummary:
    computes = of_rank.rows(of_rank.of_kinds(COMPUTE))
    actions = _actions(computes, _serial_others_ns(of_rank, computes))
    steps = tuple(_steps(of_rank, computes))
    return RankSummary(
        rank=int(of_rank.rank[0]),
        world_size=None,
        files=(table.path,),
        run_id=None,
        attempt=0,
        host=_MACHINE,
        host_id=_MACHINE,
        device="gpu",
        device_name=None,
        serves_only=False,
        strategies=(),
        strategies_inferred=True,
        groups=(),
        mesh=None,
        pipeline=None,
        clock=None,
        recorded_steps=tuple(step.step for step in steps),
        steps=steps,
        event_count=len(of_rank),
        first_event_ns=int(of_rank.start_ns.min()),
        notes=(),
        parts={ACTIONS.name: actions},
    )


def _actions(computes: Operations, other_ns: Int64) -> Actions:
    kinds = np.array([ACTION_KINDS.index(kind) if kind in ACTION_KINDS else ABSENT for kind in KINDS], dtype=np.int32)
    nothing = np.zeros(len(computes), dtype=np.int64)
    return Actions(
        step=computes.step,
        stage=computes.stage.astype(np.int32),
        microbatch=computes.microbatch.astype(np.int32),
        kind=kinds[computes.kind],
        issue_ns=computes.start_ns,
        start_ns=computes.start_ns,
        end_ns=computes.end_ns,
        wait_ns=nothing,
        idle_ns=nothing,
        other_ns=other_ns,
        data_ns=nothing,
    )


def _serial_others_ns(of_rank: Operations, computes: Operations) -> Int64:
    """Return how long other operations than messages lasted between each forward or backward and the one before it."""
    others = of_rank.rows(~of_rank.of_kinds((*COMPUTE, *SENDS, *RECEIVES)))
    time = Intervals.union_of(others.start_ns, others.end_ns)
    opens = np.diff(computes.step, prepend=computes.step[:1] - 1) != 0
    step_begins_ns = of_rank.start_ns[np.searchsorted(of_rank.step, computes.step)]
    begin_ns = np.where(opens, step_begins_ns, np.roll(computes.end_ns, 1))
    return np.asarray(np.maximum(time.covered_ns(begin_ns, computes.start_ns), 0))


def _steps(of_rank: Operations, computes: Operations) -> Iterator[StepParts]:
    """Yield the parts of each step of a rank. computes: its forwards and backwards."""
    numbers, opens = np.unique(of_rank.step, return_index=True)
    starts_ns = np.minimum.reduceat(of_rank.start_ns, opens)
    lengths_ns = np.maximum.reduceat(of_rank.end_ns, opens) - starts_ns
    first, stop = np.searchsorted(computes.step, numbers), np.searchsorted(computes.step, numbers, side="right")
    columns = (column.tolist() for column in (numbers, starts_ns, lengths_ns, first, stop))
    for number, start_ns, step_ns, begin, end in zip(*columns, strict=True):
        compute_ns = Intervals.union_of(computes.start_ns[begin:end], computes.end_ns[begin:end]).len_ns
        yield StepParts(
            step=number,
            start_ns=start_ns,
            complete=end > begin,
            data_ns=None,
            step_ns=step_ns,
            compute_ns=compute_ns,
            comm_ns=0,
            overlapped_comm_ns=0,
            exposed_comm_ns=0,
            exposed_copy_ns=0,
            idle_ns=step_ns - compute_ns,
        )
