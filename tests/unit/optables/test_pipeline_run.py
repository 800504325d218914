"""A table of a recorded run's actions says of the pipeline what the report of the run says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.unit.analysis.exchanges import actions, rank, run_of
from tests.unit.optables.simulated import simulate
from tracekit.analysis.pipeline.bubbles import Pipeline, pipeline, pipeline_actions
from tracekit.analysis.pipeline.parts import Actions
from tracekit.analysis.table import rows_of
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.optables.operation_table import read_table
from tracekit.optables.pipeline_run import exchanges_of, run_of_table


def recorded_run(table: pd.DataFrame) -> Run:
    """Return a run whose ranks recorded the forwards and backwards of a table."""
    rows = table[table["kind"].isin(["F", "B"])].astype(dict.fromkeys(("start_ns", "end_ns"), "int64"))
    summaries = []
    for number, of_rank in rows.groupby(rows["rank"].astype(int)):
        ordered = of_rank.sort_values("start_ns")
        parts = [
            actions((kind, int(batch), start, end), stage=int(stage), step=int(step))
            for kind, batch, start, end, stage, step in zip(
                *(ordered[name] for name in ("kind", "microbatch", "start_ns", "end_ns", "stage", "step")), strict=True
            )
        ]
        layout = PipelineLayout(schedule="1f1b", stages=4, virtual_stages=1, microbatches=8, stage_ids=[number])
        steps = tuple(sorted({int(step) for step in ordered["step"]}))
        summaries.append(
            rank(number, actions=Actions.concatenate(parts), steps=steps, pipeline=layout, pipeline_ranks=(0, 1, 2, 3))
        )
    return run_of(summaries)


def test_the_exported_actions_of_a_run_give_the_bubbles_of_its_report() -> None:
    """GIVEN a run of 4 stages with a stall THEN `pipeline_actions` as a CSV table has its bubbles, to the ns."""
    run = recorded_run(simulate(tail=False, longer_ns={(2, 2, "F", 4): 60_000_000}, noise=0.05))
    expected = pipeline(run)
    exported = pipeline_actions(run).astype(str)
    table = read_table(exported, "actions.csv")
    actual = pipeline(run_of_table(table), exchanges_of(table.operations))
    assert isinstance(expected, Pipeline)
    assert isinstance(actual, Pipeline)
    assert (actual.schedule, actual.stages, actual.microbatches) == ("1f1b", 4, 8)
    assert actual.bubble_ratio == pytest.approx(expected.bubble_ratio, abs=1e-12)
    for row, other in zip(rows_of(actual, "by_rank"), rows_of(expected, "by_rank"), strict=True):
        assert (row["busy_ns"], row["bubble_ns"]) == (other["busy_ns"], other["bubble_ns"])
    assert actual.causes_ns is not None
    assert expected.causes_ns is not None
    assert actual.causes_ns == expected.causes_ns


def test_other_operations_between_two_forwards_are_no_lateness() -> None:
    rows = [("0", "F", "0", "0", "10"), ("0", "data", "", "12", "20"), ("0", "F", "1", "25", "35")]
    table = read_table(pd.DataFrame(rows, columns=["rank", "kind", "mb", "start_ns", "end_ns"]), "ops.csv")
    (summary,) = run_of_table(table).ranks
    assert summary.parts["actions"].other_ns.tolist() == [0, 8]
    assert np.array_equal(summary.parts["actions"].work_ns, [10, 10])


def test_a_message_of_a_split_backward_is_sent_when_its_gradient_is_there() -> None:
    """GIVEN no sends, and a late gradient of weights THEN the message is sent once the inputs' gradient is there."""
    rows = [
        *(("0", "F", "0", "0", "10"), ("1", "forward-recv", "0", "2", "12"), ("1", "F", "0", "12", "20")),
        *(("1", "I", "0", "20", "30"), ("0", "backward-recv", "0", "15", "33"), ("1", "W", "0", "50", "60")),
        ("0", "B", "0", "33", "45"),
    ]
    table = read_table(pd.DataFrame(rows, columns=["rank", "kind", "mb", "start_ns", "end_ns"]), "ops.csv")
    exchange = exchanges_of(table.operations)[1, 0]
    assert (exchange.sent_ns.tolist(), exchange.ended_ns.tolist()) == ([30], [33])
