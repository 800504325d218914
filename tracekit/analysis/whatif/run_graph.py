"""A recorded run as a graph of operations that can be replayed.

Steps that follow one another are replayed together, because what a rank did last in a step may hold up the next.

* A rank's work runs in the order in which it was recorded (`rank_replay`).
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
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.analysis.replay.replay import CyclicGraphError, build_graph
from tracekit.analysis.whatif.rank_replay import Interners, Operations, RankReplayBuilder
from tracekit.analysis.whatif.run_communication import Communication, run_communication
from tracekit.errors import InputError
from tracekit.model.events import Int64
from tracekit.model.ranks import format_ranges
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary

_MOST_OPERATIONS = 500_000
_APART_SHARE = 0.05  # of a step: steps farther apart than this do not follow one another

__all__ = ["build_run_graph"]


def build_run_graph(run: Run) -> OperationGraph:
    """Return the operations of the steps that all present ranks completed.

    Raises InputError when there are no such steps, or too many operations to replay.
    """
    trained = [summary for summary in run.ranks if not summary.serves_only]
    clocks = {clock.rank: clock for clock in run.clocks}
    stretches = _stretches(run, trained)
    hint = "record all ranks, two steps at least"
    info = shlex.join(["tracekit", "info", *run.arguments])
    if len(trained) < 2:
        raise InputError(f"{run.path}: one rank; what if asks about several", hint=hint)
    if not stretches:
        raise InputError(f"{run.path}: no step that all ranks completed", hint=hint)
    if not clocks_are_comparable(trained, [clocks[summary.rank] for summary in trained]):
        raise InputError(f"{run.path}: the clocks of its hosts are not known", hint=f"which are: {info}")
    communication = run_communication(run)
    if 2 * sum(len(of_rank) for of_rank in communication.values()) > _MOST_OPERATIONS:
        raise InputError(f"{run.path}: more collectives than can be replayed", hint="choose fewer steps or ranks")
    replicas = len({s.pipeline.ranks for s in trained if s.pipeline is not None})
    interners, step_groups, notes = Interners(), [], []
    for steps in stretches:
        try:
            step_groups.append(_graph_steps(steps, trained, clocks, communication, interners, replicas))
        except CyclicGraphError as error:
            notes.append(f"steps {format_ranges(steps)} left out: {error}, as far as the clocks tell")
    if not step_groups:
        raise InputError(f"{run.path}: {notes[0]}", hint=f"its table of clocks: {info}")
    if run.missing_ranks:
        notes.append(f"{len(run.missing_ranks)} ranks are missing: waiting for them counts as transfer")
    transfers = frozenset(number for name, number in interners.kinds.of.items() if name[0] == "transfer")  # type: ignore[index]
    return OperationGraph(
        step_groups=tuple(step_groups),
        types=tuple(str(name) for name in interners.types.of),
        communication_kinds=transfers,
        clock_error_ns=max(clock.error_ns or 0 for clock in run.clocks),
        notes=tuple(notes),
    )


def _stretches(run: Run, ranks: Sequence[RankSummary]) -> list[list[int]]:
    """Return the common steps, those together that follow one another without a gap on any rank."""
    common = sorted(run.common_steps())
    begin = [{step.step: step.start_ns for step in s.steps} for s in ranks]
    length = [{step.step: step.step_ns for step in s.steps} for s in ranks]
    stretches: list[list[int]] = []
    for step in common:
        follows = bool(stretches) and all(
            abs(begin_ns[step] - begin_ns[last] - step_ns[last]) <= _APART_SHARE * step_ns[last]
            for last in stretches[-1][-1:]
            for begin_ns, step_ns in zip(begin, length, strict=True)
        )
        if follows:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return stretches


def _graph_steps(
    steps: list[int],
    ranks: Sequence[RankSummary],
    clocks: dict[int, ClockModel],
    communication: dict[int, Communication],
    interners: Interners,
    replicas: int,
) -> GraphSteps:
    """Return one stretch of steps. interners: numbers of kinds, classes and types, the same in all stretches."""
    bounds = {s.rank: _bounds(s, steps, clocks[s.rank]) for s in ranks}
    operations = Operations(begin_ns=int(min(of_rank[0] for of_rank in bounds.values())))
    ends = []
    arrived_ns, placed = {}, {}
    for summary in ranks:
        builder = RankReplayBuilder(
            summary,
            clocks[summary.rank],
            bounds[summary.rank],
            communication[summary.rank],
            operations,
            interners,
            replicas,
        )
        ends.append(builder.add_operations())
        placed[summary.rank] = builder.place_of_row
    for rank, places in placed.items():
        of_rank = communication[rank]
        for row, place in places.items():
            earlier = of_rank.follows[row]
            arrived_ns[place] = int(of_rank.ready_ns[row])
            if earlier >= 0 and earlier in places:
                operations.before.append(places[earlier])
                operations.after.append(place)
                arrived_ns[place] = max(arrived_ns[place], int(of_rank.end_ns[earlier]))
            operations.duration_ns[place] = int(of_rank.end_ns[row])
    _synchronise(operations, arrived_ns)
    last_begin_ns = int(max(of_rank[0] for of_rank in bounds.values()))
    step_ends_ns = np.array([of_rank[1:] for of_rank in bounds.values()]).max(axis=0)
    count = len(operations.duration_ns)
    graph = build_graph(
        count,
        np.array(operations.before, dtype=np.int64),
        np.array(operations.after, dtype=np.int64),
        np.array(operations.group, dtype=np.int64),
    )
    columns = ("task", "kind", "comparison_class", "type", "rank", "stage")
    return GraphSteps(
        graph=graph,
        duration_ns=np.array(operations.duration_ns, dtype=np.float64)[:, None],
        **{name: np.array(getattr(operations, name), dtype=np.int64) for name in columns},
        replica=np.full(count, -1, dtype=np.int64),
        steps=np.array(steps, dtype=np.int64),
        measured_ns=np.diff(step_ends_ns, prepend=last_begin_ns).astype(np.float64),
        step_ends=np.array(ends, dtype=np.int64).T,
        begin_ns=float(last_begin_ns - operations.begin_ns),
    )


def _bounds(summary: RankSummary, steps: list[int], clock: ClockModel) -> Int64:
    """Return the begin of the first step and the end of each, int64 [s + 1], on the run's clock."""
    of = {step.step: step for step in summary.steps}
    ends_ns = [of[step].start_ns + of[step].step_ns for step in steps]
    return clock.to_run(np.array([of[steps[0]].start_ns, *ends_ns], dtype=np.int64))


def _synchronise(operations: Operations, arrived_ns: dict[int, int]) -> None:
    """Replace the ends of transfers, which `duration_ns` holds until here, by durations.

    A member that was over before the last one arrived had not waited for it: it leaves the group, and the last one
    waits for it. arrived_ns: when each transfer's rank was ready for it, by the operation's place.
    """
    members: dict[int, list[int]] = {}
    for place in arrived_ns:
        members.setdefault(operations.group[place], []).append(place)
    members.pop(-1, None)
    last_ns = dict(arrived_ns)
    for together in members.values():
        last = max(together, key=lambda place: (arrived_ns[place], place))
        for place in together:
            if operations.duration_ns[place] < arrived_ns[last]:
                operations.group[place] = -1
                operations.before.append(place)
                operations.after.append(last)
            else:
                last_ns[place] = arrived_ns[last]
    for place, since_ns in last_ns.items():
        operations.duration_ns[place] = max(operations.duration_ns[place] - since_ns, 0)
