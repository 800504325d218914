"""What waits for what in a table of Megatron's operations, which also lists every send, receive and collective.

The traces published with

    Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025

are such tables (`formats.straggler_analysis`). Their dependency model of Megatron-style training is used here. Of a
step:

* A rank's forward and backward computations run in the order of their starts.
* A receive is posted after the computation before the one that needs it, and ends before that one starts. A send
  follows its computation. Sends of one direction run in order, and so do receives.
* The send of a chunk's microbatch and the receive of the next chunk's synchronise; backward, the previous chunk's.
  Sends and receives without a peer, at the ends of the model, synchronise with nothing. Nor do those before the first
  or after the last computation of their direction.
* Parameters of a chunk are gathered before its first forward. Gradients are reduced after the last backward. If
  reduction overlaps with the backward pass, that is the last of the chunk, otherwise the last of all. It overlaps if
  the table has `separate-grads-all-reduce`.
* Then follow, in this order: gradients of layer norms, gradients of embeddings (shared by the first and the last
  stage), separate gradients, clipping (which synchronises all ranks) and the optimizer.
* Collectives of data parallelism synchronise the same operation of all replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.operation_tables.formats.straggler_analysis import INTEGERS, chunks_of_model
from tracekit.analysis.operation_tables.graph.megatron_dependencies import (
    BACKWARD,
    CHAIN,
    COMMUNICATION,
    DIRECTION,
    FORWARD,
    IS_SEND,
    OPTYPES,
    Template,
    UnfitStepError,
    build_template,
)
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.analysis.replay.replay import CyclicGraphError, build_graph
from tracekit.errors import InputError
from tracekit.model.events import Float64, Int64
from tracekit.model.ranks import format_ranges

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["build_table_graph"]

# A collective that ends on a rank by more than this before its last member starts did not wait for that member.
_CLOCK_ERROR_NS = 10e6
_SAME_TIME_NS = 50e3
_STRUCTURE = ("stage", "code", "seq_id", "mc", "gmc", "mb_id", "outside")
_EXCHANGE = {"forward-send": "forward-pp-comm", "forward-recv": "forward-pp-comm"}
_EXCHANGE |= {"backward-send": "backward-pp-comm", "backward-recv": "backward-pp-comm"}
TYPES = tuple(dict.fromkeys(_EXCHANGE.get(name, name) for name in OPTYPES))
_TYPE_OF_CODE = np.array([TYPES.index(_EXCHANGE.get(name, name)) for name in OPTYPES])


def build_table_graph(table: pd.DataFrame, name: str = "the table") -> NamedGraph:
    """Return the operations and their dependencies; a step that does not fit the rules is left out with a note.

    name: of the file, for errors. Raises InputError when no step fits.
    """
    columns = _canonical(table)
    facts = {
        "stages": int(columns["stage"].max()) + 1,
        "chunks": int(columns["gmc"].max()) + 1,
        "overlapped": bool((columns["code"] == OPTYPES.index("separate-grads-all-reduce")).any()),
    }
    opens = np.flatnonzero(np.diff(columns["step"], prepend=-1 - columns["step"][:1]) != 0)
    templates: dict[bytes, tuple[int, Template]] = {}
    unfit_steps: dict[str, list[int]] = {}
    alike: dict[tuple[tuple[int, int], ...], list[slice]] = {}
    for first, stop in zip(opens.tolist(), [*opens[1:].tolist(), len(table)], strict=True):
        try:
            key = tuple(_replicas(columns, first, stop, templates, facts))
        except UnfitStepError as error:
            unfit_steps.setdefault(str(error), []).append(int(columns["step"][first]))
            continue
        alike.setdefault(key, []).append(slice(first, stop))
    known = [template for _, template in sorted(templates.values(), key=lambda pair: pair[0])]
    step_groups, first_rows = [], []
    for key, slices in alike.items():
        try:
            step_groups.append(_graph_steps(columns, slices, [known[number] for _, number in key]))
            first_rows.append(slices[0])
        except CyclicGraphError as error:
            text = f"{error}: their order contradicts the dependencies"
            unfit_steps.setdefault(text, []).extend(int(columns["step"][part.start]) for part in slices)
    notes = [f"step {format_ranges(steps)} left out: {text}" for text, steps in unfit_steps.items()]
    if not step_groups:
        raise InputError(f"{name}: {notes[0]}", hint="a step needs all its operations, of all ranks")
    graph = OperationGraph(
        step_groups=tuple(step_groups),
        types=TYPES,
        communication_kinds=frozenset(COMMUNICATION),
        stage_kinds=frozenset(range(len(OPTYPES))) - frozenset(COMMUNICATION) if facts["stages"] > 1 else frozenset(),
        notes=tuple(notes),
    )
    return NamedGraph(
        graph=graph,
        compute_types=frozenset({TYPES.index(OPTYPES[FORWARD]), TYPES.index(OPTYPES[BACKWARD])}),
        pause_types=frozenset(),
        microbatches=tuple(columns["mb_id"][rows].astype(np.int64) for rows in first_rows),
        stages=tuple(columns["stage"][rows].astype(np.int64) for rows in first_rows),
    )


def _canonical(table: pd.DataFrame) -> dict[str, Int64 | Float64]:
    """Return the columns, and `code`, `end_ns` and `outside`, by step, replica, stage, chain and place in the chain."""
    columns = {name: table[name].to_numpy() for name in (*INTEGERS, "start_ns", "duration_ns")}
    code = table["optype"].map({name: code for code, name in enumerate(OPTYPES)}).to_numpy(dtype=np.int64)
    columns |= {"code": code, "end_ns": columns["start_ns"] + columns["duration_ns"]}
    computes = code <= 1
    columns["gmc"] = np.where(computes, chunks_of_model(table), -1)
    places = np.stack((columns["step"], columns["dp_rank"], columns["stage"]), axis=1)
    place = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    direction = DIRECTION[code]
    last_start_ns = np.full((int(place.max()) + 1, 2), -np.inf)
    first_end_ns = np.full_like(last_start_ns, np.inf)
    np.maximum.at(last_start_ns, (place[computes], direction[computes]), columns["start_ns"][computes])
    np.minimum.at(first_end_ns, (place[computes], direction[computes]), columns["end_ns"][computes])
    exchanges = (direction >= 0) & ~computes
    early = columns["end_ns"] < first_end_ns[place, direction] - _SAME_TIME_NS
    late = columns["start_ns"] > last_start_ns[place, direction] + _SAME_TIME_NS
    columns["outside"] = (exchanges & np.where(IS_SEND[code], early, late)).astype(np.int64)
    in_order = np.where(CHAIN[code] <= 1, columns["start_ns"], columns["seq_id"])
    order = np.lexsort((code, columns["seq_id"], in_order, CHAIN[code], place))
    return {name: values[order] for name, values in columns.items()}


def _replicas(
    columns: dict[str, Int64 | Float64],
    first: int,
    stop: int,
    templates: dict[bytes, tuple[int, Template]],
    facts: dict[str, Any],
) -> Iterator[tuple[int, int]]:
    """Yield each replica of the step in rows [first, stop) with the number of its template. Raises UnfitStepError."""
    replica = columns["dp_rank"][first:stop]
    opens = first + np.flatnonzero(np.diff(replica, prepend=-1))
    for begin, end in zip(opens.tolist(), [*opens[1:].tolist(), stop], strict=True):
        operations = np.stack([columns[name][begin:end] for name in _STRUCTURE], axis=1).astype(np.int64)
        signature = operations.tobytes()
        if signature not in templates:
            templates[signature] = (len(templates), build_template(operations, **facts))
        yield int(columns["dp_rank"][begin]), templates[signature][0]


def _graph_steps(
    columns: dict[str, Int64 | Float64], slices: Sequence[slice], templates: Sequence[Template]
) -> GraphSteps:
    """Return steps with the same operations. slices: rows of each step. templates: one for each replica."""
    sizes = [len(template.local) for template in templates]
    offsets = np.cumsum([0, *sizes])[:-1].tolist()
    before = np.concatenate([t.before + offset for t, offset in zip(templates, offsets, strict=True)])
    after = np.concatenate([t.after + offset for t, offset in zip(templates, offsets, strict=True)])
    local = np.concatenate(
        [np.where(t.local >= 0, t.local + offset, -1) for t, offset in zip(templates, offsets, strict=True)]
    )
    across = np.concatenate([t.across for t in templates])
    group = np.where(across >= 0, across + len(local), local)
    graph = build_graph(len(group), before, after, group)

    def over_steps(name: str) -> Float64:
        return np.stack([columns[name][part] for part in slices], axis=1).astype(np.float64)

    start_ns, end_ns = over_steps("start_ns"), over_steps("end_ns")
    duration_ns = end_ns - _arrivals(start_ns, group)
    communicates = np.isin(columns["code"][slices[0]], sorted(COMMUNICATION))
    duration_ns[communicates[:, None] & (duration_ns <= -_CLOCK_ERROR_NS)] = 0.0
    code, stage = columns["code"][slices[0]].astype(np.int64), columns["stage"][slices[0]].astype(np.int64)
    return GraphSteps(
        graph=graph,
        duration_ns=duration_ns,
        task=np.arange(len(graph)),
        kind=code,
        comparison_class=code * (int(columns["stage"].max()) + 1) + stage,
        type=_TYPE_OF_CODE[code],
        rank=columns["rank"][slices[0]].astype(np.int64),
        stage=stage,
        replica=columns["dp_rank"][slices[0]].astype(np.int64),
        steps=np.array([columns["step"][part.start] for part in slices], dtype=np.int64),
        measured_ns=end_ns.max(axis=0) - start_ns.min(axis=0),
    )


def _arrivals(start_ns: Float64, group: Int64) -> Float64:
    """Return when the last of each operation's group started, float64 [n, k]."""
    last_ns = start_ns.copy()
    together = group >= 0
    numbers = np.unique(group[together], return_inverse=True)[1]
    latest_ns = np.full((int(numbers.max(initial=-1)) + 1, start_ns.shape[1]), -np.inf)
    np.maximum.at(latest_ns, numbers, start_ns[together])
    last_ns[together] = latest_ns[numbers]
    return last_ns
