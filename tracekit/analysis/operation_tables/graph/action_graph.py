"""What waits for what in a table whose operations name their stage and microbatch, as a graph that can be replayed.

* A rank's forwards and backwards run in the order of their starts.
* A forward waits for the forward of the stage before it, a backward for the backward of the stage behind it, by a
  transfer (`pipeline.transfers`). It takes what the receiving rank waited once both were ready.
* Other operations run as `other_operations` says.
* A pause is the time before an operation that none of these explains. It stays as long as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.analysis.operation_tables.graph.graph_builder import PAUSE, TRANSFERS, TYPES, GraphBuilder
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.operation_tables.graph.other_operations import (
    AddedOthers,
    OtherOperations,
    RankActions,
    add_others,
    others_by_step,
    synchronised_collectives,
)
from tracekit.analysis.operation_tables.operations import COLLECTIVES, OperationTable
from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.model.events import ABSENT, Int64
from tracekit.model.spans import ACTION_KINDS

__all__ = ["build_action_graph"]

_FORWARD = ACTION_KINDS.index("F")


def build_action_graph(table: OperationTable, pipelines: Sequence[MeasuredPipeline]) -> NamedGraph:
    """Return the graph. pipelines: one for each replica, as measured from the table's forwards and backwards."""
    others = others_by_step(table.operations)
    places = [_places_of_steps(pipeline) for pipeline in pipelines]
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for step in sorted(set.intersection(*(set(of_pipeline) for of_pipeline in places))):
        orders = (of_pipeline[step][0] for of_pipeline in places)
        kinds = (tuple((rank, rest.kinds) for rank, rest in sorted(others.get(step, {}).items())),)
        alike[*orders, *kinds].append(step)
    groups = [_graph_steps(table, pipelines, places, others, steps) for steps in alike.values()]
    return NamedGraph(
        graph=OperationGraph(
            step_groups=tuple(steps for steps, _, _ in groups),
            types=TYPES,
            communication_kinds=frozenset(TYPES.index(name) for name in (*TRANSFERS, *COLLECTIVES)),
            stage_kinds=frozenset(range(len(ACTION_KINDS))),
        ),
        compute_types=frozenset(range(len(ACTION_KINDS))),
        pause_types=frozenset({TYPES.index(PAUSE)}),
        microbatches=tuple(microbatch for _, microbatch, _ in groups),
        stages=tuple(stage for _, _, stage in groups),
    )


_Places = Mapping[int, tuple[int, int]]
"""Of each step the number of its order in a pipeline, and its place in the steps of that order."""


def _places_of_steps(pipeline: MeasuredPipeline) -> _Places:
    return {
        step: (number, place)
        for number, order in enumerate(pipeline.action_orders)
        for place, step in enumerate(order.steps.tolist())
    }


def _graph_steps(
    table: OperationTable,
    pipelines: Sequence[MeasuredPipeline],
    places: Sequence[_Places],
    others: Mapping[int, Mapping[int, OtherOperations]],
    steps: Sequence[int],
) -> tuple[GraphSteps, Int64, Int64]:
    """Return the graph of steps with the same operations, and the microbatch and stage to name for each operation."""
    of_steps = [table.operations.of_step(step) for step in steps]
    origin_ns = np.array([rows.start_ns.min() for rows in of_steps])
    measured_ns = np.array([rows.end_ns.max() for rows in of_steps]) - origin_ns
    builder = GraphBuilder(steps=np.array(steps, dtype=np.int64))
    added: list[tuple[int, AddedOthers]] = []
    for pipeline, of_pipeline in zip(pipelines, places, strict=True):
        columns = np.array([of_pipeline[step][1] for step in steps])
        of_ranks = [[others.get(step, {}).get(rank) for step in steps] for rank in pipeline.ranks]
        known = [[rest for rest in of_rank if rest is not None] for of_rank in of_ranks]
        added += _add_pipeline(builder, pipeline, of_pipeline[steps[0]][0], columns, known, origin_ns)
    known_ns = [
        table.measured_ns.get(step, measured) for step, measured in zip(steps, measured_ns.tolist(), strict=True)
    ]
    return builder.build(np.array(known_ns, dtype=np.float64), synchronised_collectives(added, len(pipelines)))


def _add_pipeline(
    builder: GraphBuilder,
    pipeline: MeasuredPipeline,
    number: int,
    columns: Int64,
    others: Sequence[Sequence[OtherOperations]],
    origin_ns: Int64,
) -> list[tuple[int, AddedOthers]]:
    """Add one replica's operations in some steps, and return its others with the first stage of their rank.

    number: of the order that the ranks ran. columns: the places of the steps in that order, int64 [k]. others: of each
    rank and step. origin_ns: when each step began, int64 [k].
    """
    order, edges, sent = pipeline.action_orders[number], pipeline.edges[number], pipeline.transfers[number]
    start_ns, end_ns = order.start_ns[:, columns], order.end_ns[:, columns]
    rank = np.array(pipeline.ranks)[order.rank]
    stage, microbatch = order.stage.astype(np.int64), order.microbatch.astype(np.int64)
    actions = builder.add(
        order.work_ns[:, columns],
        type=order.kind.astype(np.int64),
        rank=rank,
        stage=stage,
        named_stage=stage,
        microbatch=microbatch,
    )
    forward, backward = (TYPES.index(name) for name in TRANSFERS)
    transfers = builder.add(
        (sent.took_ns + sent.late_ns)[:, columns],
        type=np.where(order.kind[edges.consumers] == _FORWARD, forward, backward),
        rank=rank[edges.consumers],
        named_stage=stage[edges.consumers],
        microbatch=microbatch[edges.consumers],
    )
    builder.wait(actions[edges.producers], transfers)
    builder.wait(np.where(sent.posted_after == ABSENT, ABSENT, actions[sent.posted_after]), transfers)
    waits = [
        (np.where(order.first, ABSENT, np.roll(actions, 1)), actions),
        (transfers, actions[edges.consumers]),
    ]
    ready_ns = np.where(order.first[:, None], origin_ns, np.roll(end_ns, 1, axis=0))
    np.maximum.at(ready_ns, edges.consumers, sent.ended_ns[:, columns])
    added = []
    for place, (number_of_rank, of_rank) in enumerate(zip(pipeline.ranks, others, strict=True)):
        if not of_rank:
            continue
        rows = np.flatnonzero(order.rank == place)
        own = RankActions(numbers=actions[rows], start_ns=start_ns[rows], end_ns=end_ns[rows])
        rest = add_others(builder, of_rank, own, origin_ns, rank=number_of_rank)
        added.append((int(stage[rows].min()), rest))
        delayed = np.flatnonzero(rest.delays != ABSENT)
        np.maximum.at(ready_ns, rows[rest.delays[delayed]], rest.end_ns[delayed])
        waits.append((rest.numbers[delayed], own.numbers[rest.delays[delayed]]))
    builder.wait_with_pauses(waits, actions, start_ns - ready_ns)
    return added
