"""A recorded run as a graph of operations that can be replayed.

Steps that follow one another are replayed together, because what a rank did last in a step may hold up the next.

* A CPU rank's work runs in the order in which it was recorded (`rank_replay`). A GPU rank is a host that launches and
  a device that follows (`device_replay`).
* A collective ends on each rank its transfer time after the last member has arrived. A send and its receive do the
  same, unless the send was over before the receive was posted.
* After a wait a rank goes on when the communication that it waited for has ended on it.
* Collectives of a group that never overlapped run one after another.

    rank 0   work --+--- work --| wait |--- work        A transfer counts from when the last member was ready for it,
                    '-- all_reduce ----'                so it includes the time to issue it.
    rank 1   work ------+- work | wait |--- work
                        '-- all_reduce '
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import numpy as np

from tracekit.errors import InputError
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.whatif.graph.device_replay import add_device_rank
from tracekit.explain.whatif.graph.device_tasks import intervals_of_steps
from tracekit.explain.whatif.graph.operations import PROGRAM_ORDER, Interners, Operations
from tracekit.explain.whatif.graph.rank_replay import add_rank
from tracekit.explain.whatif.graph.run_communication import Communication, run_communication
from tracekit.explain.whatif.graph.transfers import Transfers, synchronise
from tracekit.explain.whatif.tables import CUTS, LAUNCH_INTERVALS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import ClockModel, Run, clocks_are_comparable, format_ranges
from tracekit.model.summary import RankSummary
from tracekit.rank.recorded_steps import WAITS
from tracekit.replay.operation_graph import Exchanges, GraphSteps, OperationGraph
from tracekit.replay.replay import CyclicGraphError, build_graph

_MOST_OPERATIONS = 30_000_000  # of 200 bytes each, replays included
_ENOUGH_OPERATIONS = 5_000_000  # of more a sample of steps is replayed
_APART_SHARE = 0.05  # of a step: steps farther apart than this do not follow one another


def build_run_graph(run: Run) -> OperationGraph:
    """Return the operations of the steps that all present ranks completed.

    Raises InputError when there are no such steps, or too many operations to replay.
    """
    trained = [summary for summary in run.ranks if summary.is_measured]
    clocks = {clock.rank: clock for clock in run.clocks}
    step_ranges = _step_ranges(run, trained)
    info = shlex.join(["tracekit", "info", *run.arguments])
    if not step_ranges:
        hint = "record all ranks, two steps at least"
        raise InputError(f"{run.path}: no step that all ranks completed", hint=hint)
    if len(trained) > 1 and not clocks_are_comparable(trained, [clocks[summary.rank] for summary in trained]):
        raise InputError(f"{run.path}: the clocks of its hosts are not known", hint=f"which are: {info}")
    communication = run_communication(run)
    notes: list[str] = []
    count = sum(_operation_count(s, communication.of_rank[s.rank]) for s in trained)
    chosen = _sample(step_ranges, count / sum(len(summary.recorded_steps) for summary in trained) * len(trained), notes)
    if not chosen:
        raise InputError(f"{run.path}: more operations than can be replayed", hint="choose fewer ranks")
    replicas = len({s.pipeline.ranks for s in trained if s.pipeline is not None})
    interners, step_groups = Interners(), []

    def graph_of(steps: list[int], *, last: bool = False) -> GraphSteps:
        return _graph_steps(steps, trained, clocks, communication.of_rank, interners, replicas, last=last)

    for step_range in chosen:
        try:
            step_groups.append(graph_of(step_range, last=step_range is chosen[-1]))
        except CyclicGraphError as error:
            communication = run_communication(run)  # the last range of steps used it up
            parts, cyclic = _parts_without_cycle(step_range, graph_of)
            if 2 * len(cyclic) >= len(step_range):  # too many for damaged records: the clocks are wrong
                notes.append(f"steps {format_ranges(step_range)} left out: {error}, as far as the clocks tell")
                continue
            step_groups += parts
            notes += [f"step {step} left out: its operations wait for each other" for step in cyclic]
    if not step_groups:
        raise InputError(f"{run.path}: {notes[-1]}", hint=f"its table of clocks: {info}")
    transfers = list(interners.kinds.tuples({"transfer"}))
    unseen = len(run.missing_ranks) + sum(summary.unmeasured is not None for summary in run.ranks)
    some_are_missing = unseen > 0 or (len(trained) == 1 and bool(transfers))
    if some_are_missing:
        missing = f"{unseen} ranks are missing" if unseen else "the other ranks are missing"
        notes.append(f"{missing}: waiting for them counts as transfer, and no change of communication is tried")
    return OperationGraph(
        step_groups=tuple(step_groups),
        types=tuple(str(name) for name in interners.types.of),
        communication_kinds=frozenset(number for _, number in transfers),
        host_kinds=frozenset(number for _, number in interners.kinds.tuples({"host"})),
        order_kinds=frozenset(number for _, number in interners.kinds.tuples({PROGRAM_ORDER})),
        transfers_are_known=not some_are_missing,
        stage_kinds=_stage_kinds(interners, trained),
        network_links=communication.network_links,
        machines=_machines(trained),
        devices={summary.rank: summary.device_name for summary in trained},
        message_bytes={number: int(str(name[2])) for name, number in transfers if name[1] in ("send", "recv")},
        clock_error_ns=_clock_error_ns(run, step_groups, trained),
        notes=tuple(notes),
    )


def _parts_without_cycle(
    steps: list[int], graph_of: Callable[[list[int]], GraphSteps]
) -> tuple[list[GraphSteps], list[int]]:
    """Return the graphs of parts of steps that make a cycle together, and the steps that make one by themselves."""
    if len(steps) == 1:
        return [], steps
    graphs: list[GraphSteps] = []
    cyclic: list[int] = []
    for part in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
        try:
            graphs.append(graph_of(part))
        except CyclicGraphError:
            of_part, cyclic_of_part = _parts_without_cycle(part, graph_of)
            graphs += of_part
            cyclic += cyclic_of_part
    return graphs, cyclic


def _stage_kinds(interners: Interners, ranks: Sequence[RankSummary]) -> frozenset[int]:
    """Return the kinds of tasks that the stages of a pipeline consist of: actions, and kernels outside known ones."""
    if all(summary.pipeline is None for summary in ranks):
        return frozenset()
    return frozenset(number for _, number in interners.kinds.tuples({"action", "device"}))


def _sample(step_ranges: list[list[int]], of_step: float, notes: list[str]) -> list[list[int]]:
    """Return the steps to replay: all, or as many as are enough, evenly spread; none if one is too many.

    of_step: how many operations a step has.
    """
    steps = [step for step_range in step_ranges for step in step_range]
    if of_step > _MOST_OPERATIONS:
        return []
    enough = max(int(_ENOUGH_OPERATIONS / max(of_step, 1)), 1)
    if enough >= len(steps):
        return step_ranges
    sample = {steps[int((number + 0.5) * len(steps) / enough)] for number in range(enough)}
    result: list[list[int]] = []
    for step_range in step_ranges:
        for step in step_range:
            if step in sample:
                follows = bool(result) and result[-1][-1] == step - 1 and step != step_range[0]
                result[-1].append(step) if follows else result.append([step])
    which = f"step {format_ranges(sample)}" if len(sample) == 1 else f"steps {format_ranges(sample)}"
    notes.append(f"a sample is replayed, {which} of {format_ranges(steps)}: each has {of_step:,.0f} operations")
    return result


def _operation_count(summary: RankSummary, communication: Communication) -> int:
    """Return about how many operations `add_device_rank` or `add_rank` adds for all steps of a rank."""
    intervals = summary[LAUNCH_INTERVALS]
    if not len(intervals):
        return 2 * len(communication) + len(summary[WAITS]) + 2 * len(summary[ACTIONS]) + len(summary.steps)
    begun = (intervals.what != CUTS.index("wait"), intervals.device_ns != ABSENT, intervals.limit_host_ns != ABSENT)
    synchronised = intervals.what == CUTS.index("synchronise")
    return len(communication) + sum(map(np.count_nonzero, (*begun, synchronised, synchronised)))


def _machines(ranks: Sequence[RankSummary]) -> dict[int, str | None]:
    """Return the machine of each rank: the name of its host, unless several machines have that name."""
    ids_of_host: dict[str | None, set[str | None]] = {}
    for summary in ranks:
        ids_of_host.setdefault(summary.host, set()).add(summary.machine)
    return {s.rank: s.host if s.machine and len(ids_of_host[s.host]) == 1 else s.machine for s in ranks}


def _step_ranges(run: Run, ranks: Sequence[RankSummary]) -> list[list[int]]:
    """Return the common steps, those together that follow one another without a gap on any rank."""
    common = sorted(run.common_steps())
    begin = [{step.step: step.start_ns for step in s.steps} for s in ranks]
    length = [{step.step: step.step_ns for step in s.steps} for s in ranks]
    step_ranges: list[list[int]] = []
    for step in common:
        follows = bool(step_ranges) and all(
            abs(begin_ns[step] - begin_ns[last] - step_ns[last]) <= _APART_SHARE * step_ns[last]
            for last in step_ranges[-1][-1:]
            for begin_ns, step_ns in zip(begin, length, strict=True)
        )
        if follows:
            step_ranges[-1].append(step)
        else:
            step_ranges.append([step])
    return step_ranges


def _graph_steps(
    steps: list[int],
    ranks: Sequence[RankSummary],
    clocks: dict[int, ClockModel],
    communication: dict[int, Communication],
    interners: Interners,
    replicas: int,
    *,
    last: bool,
) -> GraphSteps:
    """Return the graph of one range of steps.

    interners: numbers of kinds, classes and types, the same in all ranges.
    last: whether this is the last range of steps, after which the communication is needed no more.
    """
    own_bounds = {s.rank: _bounds(s, steps) for s in ranks}
    bounds = {rank: clocks[rank].to_run(own) for rank, own in own_bounds.items()}
    launched = {s.rank: intervals_of_steps(s[LAUNCH_INTERVALS], steps) for s in ranks}
    begins_ns = [int(of_rank[0]) for of_rank in bounds.values()]
    begins_ns += [
        clocks[rank].moment_to_run(int(of_rank.begin_ns[0]))
        for rank, of_rank in launched.items()
        if of_rank is not None
    ]
    operations = Operations(begin_ns=min(begins_ns))
    machines = [summary.machine for summary in ranks]
    ends, transfers = [], []
    for summary in ranks:
        rank, intervals = summary.rank, launched[summary.rank]
        of_rank = communication.pop(rank) if last else communication[rank]
        given = (of_rank, operations, interners)
        if intervals is None:
            replay = add_rank(summary, clocks[rank], bounds[rank], *given)
        else:
            replay = add_device_rank(
                summary, clocks[rank], own_bounds[rank], intervals, *given, has_replicas=replicas > 1
            )
        ends.append(replay.ends)
        machine = machines.index(summary.machine) if summary.machine else -1 - rank
        placed = (replay.rows, replay.operations, replay.arrived_ns)
        transfers.append(Transfers.of_rank(clocks[rank], machine, of_rank, *placed))
    synchronise(operations, Transfers.concatenate(transfers))
    del transfers  # which takes much memory
    last_begin_ns = int(max(of_rank[0] for of_rank in bounds.values()))
    step_ends_ns = np.array([of_rank[1:] for of_rank in bounds.values()]).max(axis=0)
    count = operations.count
    graph = build_graph(count, *operations.edges(), operations.column("group"))
    columns = (
        "task",
        "kind",
        "comparison_class",
        "type",
        "rank",
        "stage",
        "network_link",
        "role",
        "host_task",
        "device_task",
    )
    return GraphSteps(
        graph=graph,
        duration_ns=operations.column("duration_ns").astype(np.float64)[:, None],
        **{name: operations.column(name) for name in columns},
        replica=np.broadcast_to(np.int64(ABSENT), count),
        steps=np.array(steps, dtype=np.int64),
        measured_ns=np.diff(step_ends_ns, prepend=last_begin_ns).astype(np.float64),
        step_ends=np.array(ends, dtype=np.int64).T,
        host_share=operations.column("host_share").astype(np.float64, copy=False),
        exchanges=Exchanges.concatenate(operations.exchanges),
        begin_ns=float(last_begin_ns - operations.begin_ns),
    )


def _bounds(summary: RankSummary, steps: list[int]) -> Int64:
    """Return the begin of the first step and the end of each, int64 [s + 1], on the rank's wall clock."""
    of = {step.step: step for step in summary.steps}
    return np.array([of[steps[0]].start_ns, *(of[step].start_ns + of[step].step_ns for step in steps)], dtype=np.int64)


def _clock_error_ns(run: Run, step_groups: Sequence[GraphSteps], ranks: Sequence[RankSummary]) -> int:
    """Return by how much clocks may put a step's saving wrong.

    A GPU rank's times are its own. Clocks decide only when it begins, which the first step of a range may show.
    """
    error_ns = max(clock.error_ns or 0 for clock in run.clocks)
    if all(len(summary[LAUNCH_INTERVALS]) for summary in ranks):
        error_ns = error_ns * len(step_groups) // sum(len(group.steps) for group in step_groups)
    return error_ns
