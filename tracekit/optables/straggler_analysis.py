"""Traces of ByteDance's StragglerAnalysis: one operation of Megatron a row, also every send, receive and collective.

They have the columns `COLUMNS`. `start_ts` and `duration` are seconds, `seq_id` numbers the operations of a type on a
rank in a step, `mc` and `gmc` are the chunk within the stage and within the model, `mb_id` is the microbatch; -1 is
none. What waits for what is the dependency model of

    Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025.

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

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import format_ranges
from tracekit.optables.operation_table import OperationTable, TableColumns, in_order
from tracekit.optables.pipelines import NamedGraph
from tracekit.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.replay.replay import CyclicGraphError, build_graph
from tracekit.stats.rows_by_key import rows_by_key

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "gmc", "mb_id")
OPTYPES = (
    *("forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv"),
    *("params-all-gather", "grads-reduce-scatter", "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce"),
    *("separate-grads-all-reduce", "optimizer-clip-main-grad", "optimizer"),
)
_FORWARD, _BACKWARD = 0, 1
_GATHER, _REDUCE, _PAUSE, _NORMS, _EMBEDDING, _SEPARATE, _CLIP, _OPTIMIZER = range(6, 14)
_COMMUNICATION = (2, 3, 4, 5, _GATHER, _REDUCE, _NORMS, _EMBEDDING, _SEPARATE, _CLIP)
_DIRECTION = np.array([0, 1, 0, 0, 1, 1, *(ABSENT,) * 8])
"""Of each type the pass that it belongs to: forward 0, backward 1."""
_CHAIN = np.array([0, 0, 2, 3, 4, 5, 1, 1, *range(8, 14)])
"""Of each type its chain. Operations of one chain run in order: computations, and collectives of sharded parameters."""
_SENDS = (2, 4)
_NEXT_CHUNK = {2: 1, 3: -1, 4: -1, 5: 1}
_TYPES = (*OPTYPES[:2], "forward-pp-comm", "backward-pp-comm", *OPTYPES[6:])
_TYPE_OF_CODE = np.array([0, 1, 2, 2, 3, 3, *range(4, 12)])
# A collective that ends on a rank by more than this before its last member starts did not wait for that member.
_CLOCK_ERROR_NS = 10e6
_SAME_TIME_NS = 50e3
_STRUCTURE = ["replica", "stage", "code", "number", "chunk", "model_chunk", "microbatch", "outside"]
_NUMBERS = {"rank": 0, "dp_rank": 0, "stage": 0, "step": -1, "seq_id": 0, "mc": -1, "gmc": -1, "mb_id": -1}
"""Columns of integers, and their least values."""
_Edges = list[tuple[int, int]]


class _UnfitStepError(ValueError):
    """The operations of a step do not fit the rules."""


def read_operations(frame: pd.DataFrame, path: str) -> pd.DataFrame:
    """Return the operations by step, replica, stage, chain and position in the chain, with `code` and `outside`.

    code: index into `OPTYPES`. outside: a send or receive lies outside of the computations of its direction. Raises
    InputError when a value cannot be.
    """
    columns = TableColumns(frame, path)
    table = pd.DataFrame({name: columns.integers(name, least=least) for name, least in _NUMBERS.items()})
    names = {"dp_rank": "replica", "seq_id": "number", "mc": "chunk", "gmc": "model_chunk", "mb_id": "microbatch"}
    table = table.rename(columns=names)
    optype = columns.values("optype").astype(str)
    columns.refuse(~optype.isin(OPTYPES), "optype", f"is no optype; the types are {', '.join(OPTYPES)}")
    table["code"] = optype.map(OPTYPES.index)
    table["start_ns"], duration_ns = columns.nanoseconds("start_ts"), columns.nanoseconds("duration")
    columns.refuse(duration_ns < 0, "duration", "is negative")
    table["end_ns"] = table["start_ns"] + duration_ns
    twice = table.duplicated(["step", "replica", "stage", "code", "number"])
    columns.refuse(twice, "seq_id", "is there twice for its optype, rank and step")
    assigned = table[["rank", "replica", "stage"]].drop_duplicates()
    if assigned["rank"].duplicated().any() or assigned.duplicated(["replica", "stage"]).any():
        raise InputError(f"{path}: ranks and (dp_rank, stage) do not correspond", hint="give each rank one of each")
    stages = assigned["stage"].nunique()
    columns.refuse(table["stage"] >= stages, "stage", f"is no stage: {stages} stages are numbered from 0")
    return _in_chains(table, stages)


def _in_chains(table: pd.DataFrame, stages: int) -> pd.DataFrame:
    code = table["code"].to_numpy()
    in_order_of = np.where(_CHAIN[code] <= 1, table["start_ns"], table["number"])
    table = table.assign(chain=_CHAIN[code], position=in_order_of, direction=_DIRECTION[code])
    table = table.sort_values(["step", "replica", "stage", "chain", "position", "number", "code"], ignore_index=True)
    code = table["code"].to_numpy()
    derived = table["chunk"].clip(lower=0) * stages + table["stage"]
    named = table["model_chunk"].where(table["model_chunk"] >= 0, derived)
    table["model_chunk"] = named.where(code <= _BACKWARD, ABSENT)
    computes = table[code <= _BACKWARD]
    of_chunk = ["step", "replica", "code", "model_chunk"]
    if (computes["microbatch"] < 0).any() or computes.duplicated([*of_chunk, "microbatch"]).any():  # by order
        table.loc[computes.index, "microbatch"] = computes.groupby(of_chunk).cumcount()
    of_pass = ["step", "replica", "stage", "direction"]
    bounds = computes.groupby(of_pass).agg(last_ns=("start_ns", "max"), first_ns=("end_ns", "min"))
    near = table.join(bounds, on=of_pass).fillna({"last_ns": -np.inf, "first_ns": np.inf})
    early, late = near["end_ns"] < near["first_ns"] - _SAME_TIME_NS, near["start_ns"] > near["last_ns"] + _SAME_TIME_NS
    exchanges = (table["direction"] >= 0) & (code > _BACKWARD)
    table["outside"] = (exchanges & np.where(np.isin(code, _SENDS), early, late)).astype(np.int64)
    return table


def computations(table: pd.DataFrame, path: str) -> OperationTable:
    """Return the forwards and backwards, from which bubbles follow."""
    rows = table[table["code"] <= _BACKWARD]
    number = rows.groupby("step")["microbatch"].rank("dense").astype(np.int64) - 1
    rows = rows.assign(kind=rows["code"].map(("F", "B").__getitem__), stage=rows["model_chunk"], microbatch=number)
    return OperationTable(path=path, source="Megatron's operations", operations=in_order(rows))


def graph_of_operations(table: pd.DataFrame, path: str) -> NamedGraph:
    """Return the operations and their dependencies; a step that does not fit the rules is left out with a note.

    Raises InputError when no step fits.
    """
    stages, chunks = int(table["stage"].max()) + 1, int(table["model_chunk"].max()) + 1
    overlapped = bool((table["code"] == _SEPARATE).any())
    alike: dict[bytes, list[pd.DataFrame]] = defaultdict(list)
    for _, of_step in table.groupby("step"):
        alike[of_step[_STRUCTURE].to_numpy().tobytes()].append(of_step)
    groups, firsts = [], []
    unfit: dict[str, list[int]] = defaultdict(list)
    for steps in alike.values():
        try:
            groups.append(_graph_steps(steps, stages, chunks, overlapped))
            firsts.append(steps[0])
        except _UnfitStepError as error:
            unfit[str(error)] += [int(of_step["step"].iloc[0]) for of_step in steps]
    notes = tuple(f"step {format_ranges(steps)} left out: {text}" for text, steps in unfit.items())
    if not groups:
        raise InputError(f"{path}: {notes[0]}", hint="a step needs all its operations, of all ranks")
    graph = OperationGraph(
        step_groups=tuple(groups),
        types=_TYPES,
        communication_kinds=frozenset(_COMMUNICATION),
        stage_kinds=frozenset(range(len(OPTYPES))) - frozenset(_COMMUNICATION) if stages > 1 else frozenset(),
        notes=notes,
    )
    return NamedGraph(
        graph=graph,
        compute_types=(_FORWARD, _BACKWARD),
        names=tuple(first[["stage", "microbatch"]] for first in firsts),
    )


def _graph_steps(steps: list[pd.DataFrame], stages: int, chunks: int, overlapped: bool) -> GraphSteps:
    """Return steps with the same operations. Raises _UnfitStepError when these do not fit the rules."""
    columns = {name: steps[0][name].to_numpy() for name in (*_STRUCTURE, "rank")}
    edges, group = _dependencies(columns, stages, chunks, overlapped)
    try:
        before, after = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        graph = build_graph(len(group), before, after, group)
    except CyclicGraphError as error:
        raise _UnfitStepError(f"{error}: their order contradicts the dependencies") from None
    start_ns, end_ns = (np.stack([of_step[name] for of_step in steps], axis=1) for name in ("start_ns", "end_ns"))
    arrived_ns, together = start_ns.copy(), group >= 0  # when the last of each operation's group started
    arrived_ns[together] = pd.DataFrame(start_ns[together]).groupby(group[together]).transform("max")
    duration_ns = (end_ns - arrived_ns).astype(np.float64)
    code, stage = columns["code"], columns["stage"]
    duration_ns[np.isin(code, _COMMUNICATION)[:, None] & (duration_ns <= -_CLOCK_ERROR_NS)] = 0.0
    return GraphSteps(
        graph=graph,
        duration_ns=duration_ns,
        task=np.arange(len(graph)),
        kind=code,
        comparison_class=code * stages + stage,
        type=_TYPE_OF_CODE[code],
        rank=columns["rank"],
        stage=stage,
        replica=columns["replica"],
        steps=np.array([of_step["step"].iloc[0] for of_step in steps], dtype=np.int64),
        measured_ns=(end_ns.max(axis=0) - start_ns.min(axis=0)).astype(np.float64),
    )


def _dependencies(columns: Mapping[str, Int64], stages: int, chunks: int, overlapped: bool) -> tuple[_Edges, Int64]:
    """Return which operation waits for which, and a number for those that synchronise, int64 [n], or -1."""
    code, stage, replica = columns["code"], columns["stage"], columns["replica"]
    edges: _Edges = []
    peers: dict[tuple[int, ...], dict[bool, int]] = defaultdict(dict)  # the send and the receive of each message
    for rows in rows_by_key(replica, stage).values():
        of = {kind: rows[code[rows] == kind].tolist() for kind in range(len(OPTYPES))}
        computes = rows[code[rows] <= _BACKWARD].tolist()
        if not computes:
            raise _UnfitStepError(f"stage {stage[rows[0]]} computes nothing")
        edges += pairwise(computes)
        for kind in _NEXT_CHUNK:
            edges += pairwise(of[kind])
            edges += _exchanges(columns, kind, of, stages, chunks, peers)
        first = next((i for i, row in enumerate(computes) if code[row] == _BACKWARD), 0)
        if first >= 2:  # the first exchange of gradients is posted before the last forward of the warm-up
            edges += [(computes[first - 2], row) for kind in (4, 5) for row in of[kind][:1]]
        edges += _sharded(of, columns["chunk"], overlapped)
        edges += _after_computations(computes[-1], of, overlapped)
    group = np.full(len(code), ABSENT)
    for number, (message, sides) in enumerate(peers.items()):
        if len(sides) < 2:
            has, lacks = ("send", "receive") if True in sides else ("receive", "send")
            direction, where, which = ("forward", "backward")[message[1]], message[2], message[3]
            raise _UnfitStepError(f"the {direction} {has} {which} of chunk {where} has no {lacks}")
        group[list(sides.values())] = number
    shared = np.isin(code, (_GATHER, _REDUCE, _EMBEDDING, _SEPARATE, _CLIP))
    of_stage = np.where(np.isin(code, (_EMBEDDING, _CLIP)), 0, stage)  # these synchronise several stages
    of_replica = np.where(code == _EMBEDDING, replica, 0)
    keys = np.stack((code, of_stage, of_replica, columns["number"]))[:, shared]
    group[shared] = len(peers) + np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    return edges, group


def _exchanges(
    columns: Mapping[str, Int64],
    kind: int,
    of: Mapping[int, list[int]],
    stages: int,
    chunks: int,
    peers: dict[tuple[int, ...], dict[bool, int]],
) -> _Edges:
    """Return what sends or receives of a rank wait for, and what waits for them, and add them to their messages.

    Raises _UnfitStepError where they are not as many as computations.
    """
    is_send, direction, edges = kind in _SENDS, int(_DIRECTION[kind]), []
    inside, needed = [row for row in of[kind] if not columns["outside"][row]], of[direction]
    # With virtual stages the very first receive, which has no peer, may not be recorded.
    stage = int(columns["stage"][needed[0]]) if needed else 0
    skipped = int(not is_send and len(inside) == len(needed) - 1 and stage in (0, stages - 1))
    if inside and len(inside) + skipped != len(needed):
        raise _UnfitStepError(f"{len(inside)} {OPTYPES[kind]} for {len(needed)} computations on stage {stage}")
    for i, row in enumerate(inside, start=skipped):
        compute = needed[i]
        edges += [(compute, row)] if is_send else [(row, compute)]
        if not is_send and i > 0:
            edges.append((needed[i - 1], row))
        own = int(columns["model_chunk"][compute])
        peer = own + _NEXT_CHUNK[kind]
        if 0 <= peer < chunks:
            replica, microbatch = int(columns["replica"][compute]), int(columns["microbatch"][compute])
            peers[replica, direction, peer if is_send else own, microbatch][is_send] = row
    return edges


def _sharded(of: Mapping[int, list[int]], chunk: Int64, overlapped: bool) -> _Edges:
    """Gather parameters before the first forward of their chunk, reduce gradients after its last backward."""
    edges = list(pairwise(sorted(of[_GATHER] + of[_REDUCE])))  # one chain, in the order of the rows
    last_gather = {int(chunk[row]): row for row in of[_GATHER]}
    first_reduce = {int(chunk[row]): row for row in reversed(of[_REDUCE])} if overlapped else {}
    first_forward = {int(chunk[row]): row for row in reversed(of[_FORWARD])} | {ABSENT: min(of[_FORWARD], default=None)}
    last_backward = {int(chunk[row]): row for row in of[_BACKWARD]} | {ABSENT: max(of[_BACKWARD], default=None)}
    needing = ((row, first_forward.get(which)) for which, row in last_gather.items())
    making = ((last_backward.get(which), row) for which, row in first_reduce.items())
    return edges + [
        (before, after) for before, after in (*needing, *making) if before is not None and after is not None
    ]


def _after_computations(last: int, of: Mapping[int, list[int]], overlapped: bool) -> _Edges:
    """Run the reductions that are left, clipping and the optimizer one after another, behind the last computation."""
    edges = [(last, row) for row in of[_PAUSE]]
    first = of[_PAUSE][-1:] or [last]
    if overlapped:
        first = first + of[_REDUCE][-1:]
    order = (_NORMS, _EMBEDDING, _SEPARATE if overlapped else _REDUCE, _CLIP, _OPTIMIZER)
    rest = [row for kind in order for row in of[kind]]
    return [*edges, *pairwise(rest), *((before, row) for before in first for row in rest[:1])]
