"""The forwards and backwards of a table as a run, so that the analysis of pipelines reads it like a recorded one."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.analysis.pipeline.layout.inferred import with_inferred_pipelines
from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.analysis.pipeline.transfers import MessageExchange
from tracekit.errors import InputError
from tracekit.model.clocks import ClockModel
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary, StepParts
from tracekit.optables.operation_table import COMPUTE, OTHERS, RECEIVES, SENDS, OperationTable

__all__ = ["exchanges_of", "run_of_table"]

_STEP = ["step", "start_ns", "end_ns", "compute_ns"]
_MESSAGE = ["step", "replica", "stage", "microbatch", "is_forward"]


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
        clocks=tuple(ClockModel(rank=summary.rank, method="none") for summary in ranks),
    )


def exchanges_of(operations: pd.DataFrame) -> dict[tuple[int, int], MessageExchange]:
    """Return the messages of a table that lists its receives, by the sending and the receiving rank.

    A message is the receive of a rank, and what the stage before, or behind, computed for it. A table need not list
    sends: then a message is sent when that is computed.
    """
    is_forward = operations["kind"].isin(("F", "forward-recv", "forward-send"))
    rows = operations.assign(is_forward=is_forward)
    results = rows[rows["kind"].isin(COMPUTE) & (rows["kind"] != "W")]
    sent = [results.assign(sent_ns=results["end_ns"])]
    sends = rows[rows["kind"].isin(SENDS)]
    sent.append(sends.assign(sent_ns=sends["start_ns"]))
    sent_ns = pd.concat(sent).drop_duplicates(_MESSAGE, keep="last")[[*_MESSAGE, "sent_ns"]]
    producers = results[[*_MESSAGE, "rank", "end_ns"]].merge(sent_ns, on=_MESSAGE)
    receives = rows[rows["kind"].isin(RECEIVES)]
    receives = receives.assign(stage=receives["stage"] + np.where(receives["is_forward"], -1, 1))
    messages = receives.merge(producers, on=_MESSAGE, suffixes=("", "_made"))
    messages = messages[messages["rank"] != messages["rank_made"]].sort_values(["step", "end_ns_made", "sent_ns"])
    return {
        (int(of_pair["rank_made"].iloc[0]), int(of_pair["rank"].iloc[0])): _exchange(of_pair)
        for _, of_pair in messages.groupby(["rank_made", "rank"])
    }


def _exchange(messages: pd.DataFrame) -> MessageExchange:
    unknown = np.full(len(messages), ABSENT)
    step, sent_ns, awaited_ns, ended_ns = (
        messages[name].to_numpy() for name in ("step", "sent_ns", "start_ns", "end_ns")
    )
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
