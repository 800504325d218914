"""Operation graphs of a few ranks that work side by side, written as one task a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.replay.operation_graph import WORK, GraphSteps, OperationGraph
from tracekit.replay.replay import build_graph

TRANSFER = "transfer"
"""The kind of tasks that transfer; any other name is one of work."""


@dataclass(frozen=True, kw_only=True)
class TaskOf:
    """A task of one operation.

    Attributes:
        ns: how long it takes in each replica.
        kind: what it is.
        comparison_class: what it is compared with; by default its kind.
        host, device: index of the task that it is tied to.
    """

    rank: int
    ns: Sequence[float]
    kind: str = "work"
    comparison_class: str | None = None
    stage: int = -1
    role: int = WORK
    host: int = -1
    device: int = -1
    host_share: float = 0.0
    link: int = -1


def graph_of(
    tasks: Sequence[TaskOf],
    *,
    links: Sequence[tuple[int, ...]] = (),
    machines: Mapping[int, str | None] | None = None,
    devices: Mapping[int, str | None] | None = None,
    message_bytes: Mapping[str, int] | None = None,
) -> OperationGraph:
    """Return an operation graph in which no task waits for another. message_bytes: of messages, by kind."""
    count = len(tasks)
    kinds = list(dict.fromkeys(task.kind for task in tasks))
    of_class = [task.comparison_class or task.kind for task in tasks]
    classes = list(dict.fromkeys(of_class))
    duration_ns = np.array([task.ns for task in tasks], dtype=np.float64)
    none = np.empty(0, dtype=np.int64)

    def column(values: Sequence[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    kind = column([kinds.index(task.kind) for task in tasks])
    steps = GraphSteps(
        graph=build_graph(count, none, none, np.full(count, -1)),
        duration_ns=duration_ns,
        task=np.arange(count),
        kind=kind,
        comparison_class=column([classes.index(name) for name in of_class]),
        type=kind,
        rank=column([task.rank for task in tasks]),
        stage=column([task.stage for task in tasks]),
        replica=np.full(count, -1),
        steps=np.arange(duration_ns.shape[1]),
        measured_ns=duration_ns.max(axis=0),
        role=column([task.role for task in tasks]),
        host_task=column([task.host for task in tasks]),
        device_task=column([task.device for task in tasks]),
        host_share=np.array([task.host_share for task in tasks], dtype=np.float64),
        network_link=column([task.link for task in tasks]),
    )
    return OperationGraph(
        step_groups=(steps,),
        types=tuple(kinds),
        communication_kinds=frozenset(kinds.index(name) for name in kinds if name.startswith(TRANSFER)),
        network_links=tuple(links),
        machines=machines or {},
        devices=devices or {},
        message_bytes={kinds.index(name): size for name, size in (message_bytes or {}).items()},
    )
