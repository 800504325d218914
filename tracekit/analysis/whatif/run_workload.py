"""A recorded run as a job that can be replayed.

Comes in: a run with matched collectives and messages. Goes out: a `Job`: one workload for each stretch of steps that
follow one another, since what a rank did last in a step may hold up the next.

On each rank what it does itself runs in its order (`rank_lane`). A collective ends on each rank its transfer after the
last of its members has arrived; so do a send and its receive, unless the send was over before the receive was posted.
A rank goes on after a wait when that wait's communication has ended on it. Collectives of a group that never overlap
run one after another.

    rank 0   own ---+--- own ---| wait |--- own         A transfer includes what issuing took: it counts from when the
                    '-- all_reduce ----'                last member was ready for it.
    rank 1   own -------+- own -| wait |--- own
                        '-- all_reduce '
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.replay.replay import CyclicGraphError, build_graph
from tracekit.analysis.replay.workload import Job, Workload
from tracekit.analysis.whatif.rank_replay import Names, Operations, RankLane
from tracekit.analysis.whatif.run_communication import Communication, run_communication
from tracekit.errors import InputError
from tracekit.model.events import Int64
from tracekit.model.ranks import format_ranges
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary

_MOST_OPERATIONS = 500_000
_APART_SHARE = 0.05  # of a step: steps farther apart than this do not follow one another

__all__ = ["job_of_run"]


def job_of_run(run: Run) -> Job:
    """The job that was recorded, over the steps that all present ranks completed.

    Raises InputError when there is none, or too much to replay.
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
    if 2 * sum(len(own) for own in communication.values()) > _MOST_OPERATIONS:
        raise InputError(f"{run.path}: more collectives than can be replayed", hint="choose fewer steps or ranks")
    replicas = len({s.pipeline.ranks for s in trained if s.pipeline is not None})
    names, workloads, notes = Names(), [], []
    for steps in stretches:
        try:
            workloads.append(_workload(steps, trained, clocks, communication, names, replicas))
        except CyclicGraphError as error:
            notes.append(f"steps {format_ranges(steps)} left out: {error}, as far as the clocks tell")
    if not workloads:
        raise InputError(f"{run.path}: {notes[0]}", hint=f"its table of clocks: {info}")
    if run.missing_ranks:
        notes.append(f"{len(run.missing_ranks)} ranks are missing: waiting for them counts as transfer")
    transfers = frozenset(number for name, number in names.kinds.of.items() if name[0] == "transfer")  # type: ignore[index]
    return Job(
        workloads=tuple(workloads),
        types=tuple(str(name) for name in names.types.of),
        communication_kinds=transfers,
        clock_error_ns=max(clock.error_ns or 0 for clock in run.clocks),
        notes=tuple(notes),
    )


def _stretches(run: Run, ranks: Sequence[RankSummary]) -> list[list[int]]:
    """Common steps that follow one another without a gap on any rank."""
    common = sorted(run.common_steps())
    begin = [{step.step: step.start_ns for step in s.steps} for s in ranks]
    length = [{step.step: step.step_ns for step in s.steps} for s in ranks]
    stretches: list[list[int]] = []
    for step in common:
        follows = bool(stretches) and all(
            abs(b[step] - b[last] - own[last]) <= _APART_SHARE * own[last]
            for last in stretches[-1][-1:]
            for b, own in zip(begin, length, strict=True)
        )
        if follows:
            stretches[-1].append(step)
        else:
            stretches.append([step])
    return stretches


def _workload(
    steps: list[int],
    ranks: Sequence[RankSummary],
    clocks: dict[int, ClockModel],
    communication: dict[int, Communication],
    names: Names,
    replicas: int,
) -> Workload:
    bounds = {s.rank: _bounds(s, steps, clocks[s.rank]) for s in ranks}
    operations = Operations(begin_ns=int(min(own[0] for own in bounds.values())))
    ends = []
    arrived_ns, placed = {}, {}
    for summary in ranks:
        lane = RankLane(
            summary,
            clocks[summary.rank],
            bounds[summary.rank],
            communication[summary.rank],
            operations,
            names,
            replicas,
        )
        ends.append(lane.walk())
        placed[summary.rank] = lane.place
    for own in (communication[rank] for rank in placed):  # a server of remote calls has no lane
        for row, place in placed[own.rank].items():
            earlier = own.follows[row]
            arrived_ns[place] = int(own.ready_ns[row])
            if earlier >= 0 and earlier in placed[own.rank]:
                operations.before.append(placed[own.rank][earlier])
                operations.after.append(place)
                arrived_ns[place] = max(arrived_ns[place], int(own.end_ns[earlier]))
            operations.duration_ns[place] = int(own.end_ns[row])
    _synchronise(operations, arrived_ns)
    last_begin_ns = int(max(own[0] for own in bounds.values()))
    step_ends_ns = np.array([own[1:] for own in bounds.values()]).max(axis=0)
    count = len(operations.duration_ns)
    graph = build_graph(
        count,
        np.array(operations.before, dtype=np.int64),
        np.array(operations.after, dtype=np.int64),
        np.array(operations.group, dtype=np.int64),
    )
    columns = ("work", "kind", "peers", "type", "rank", "stage")
    return Workload(
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
    """int64 [s + 1]: the begin of the first step and the end of each, on the run's clock."""
    of = {step.step: step for step in summary.steps}
    ends_ns = [of[step].start_ns + of[step].step_ns for step in steps]
    return clock.to_run(np.array([of[steps[0]].start_ns, *ends_ns], dtype=np.int64))


def _synchronise(operations: Operations, arrived_ns: dict[int, int]) -> None:
    """Ends of transfers (so far in `duration_ns`) to durations. A member that was over before the last one came had not
    waited for it: it ends on its own, and the last one waits for it.
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
