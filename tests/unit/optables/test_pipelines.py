"""What waits for what: replays with one operation changed, against what the timeline says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.exchanges import actions, rank, run_of
from tests.unit.optables.simulated import simulate
from tracekit.explain.pipeline.bubbles import Pipeline, action_table, pipeline
from tracekit.explain.pipeline.tables import Actions
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.model.table import rows_of
from tracekit.optables.operation_table import read_table
from tracekit.optables.pipelines import TYPES, graph_of_table, run_of_table
from tracekit.replay.operation_graph import GraphSteps

HEADER = ["rank", "dp_rank", "kind", "microbatch", "start_ms", "end_ms"]


def table(text: str) -> pd.DataFrame:
    """Return the rows of lines `rank replica kind microbatch start end`; `-` is no microbatch."""
    rows = [line.split("#")[0].split() for line in text.strip().splitlines()]
    return pd.DataFrame(rows, columns=HEADER, dtype=object).replace("-", "")


def graph_of(frame: pd.DataFrame) -> list[GraphSteps]:
    read = read_table(frame, "ops.csv")
    bubbles = pipeline(run_of_table(read))
    assert isinstance(bubbles, Pipeline)
    return list(graph_of_table(read, bubbles.measured).graph.step_groups)


def step_ms(steps: GraphSteps, rank: int, name: str, change_ms: float, place: int = 0) -> float:
    """Return the replayed step with one operation of a rank and type longer or shorter."""
    duration_ns = steps.duration_ns.copy()
    rows = ((steps.rank == rank) & (steps.type == TYPES.index(name))).nonzero()[0]
    duration_ns[rows[place]] += change_ms * 1e6
    return float(steps.step_ns(duration_ns)[0] / 1e6)


def test_steps_are_replayed_as_they_were_measured() -> None:
    for steps in graph_of(simulate(replicas=2, steps=4)):
        assert steps.step_ns(steps.duration_ns).tolist() == pytest.approx(steps.measured_ns.tolist(), abs=1)


STEP = """
0 0 F          0   0  10
0 0 B          0  45  65    # 2 ms after rank 1's backward: the transfer
0 0 all-reduce -  66  75    # 1 ms later; waits for rank 2 until 70
0 0 optimizer  -  75  80
1 0 F          0  13  23    # 3 ms after rank 0's forward
1 0 B          0  23  43
2 1 F          0   0  20
2 1 B          0  52  69
2 1 all-reduce -  70  75
2 1 optimizer  -  75  80
3 1 F          0  21  31
3 1 B          0  31  51
"""


def test_transfers_pauses_and_collectives() -> None:
    (steps,) = graph_of(table(STEP))
    assert steps.measured_ns.tolist() == [80e6]
    assert step_ms(steps, 0, "forward", 0) == 80
    of = {
        (rank, name): steps.duration_ns[(steps.rank == rank) & (steps.type == TYPES.index(name)), 0].tolist()
        for rank, name in ((1, "forward transfer"), (0, "backward transfer"), (0, "pause"), (0, "all-reduce"))
    }
    assert of[1, "forward transfer"] == [3e6]
    assert of[0, "backward transfer"] == [2e6]
    assert of[0, "pause"] == [1e6]
    assert of[0, "all-reduce"] == [5e6]  # from when rank 2 came
    assert step_ms(steps, 1, "forward", 4) == 80  # replica 0 has 4 ms until replica 1 comes
    assert step_ms(steps, 1, "forward", 6) == 82
    assert step_ms(steps, 2, "backward", -3) == 77
    assert step_ms(steps, 2, "backward", -9) == 76  # replica 0 comes at 66
    assert step_ms(steps, 0, "optimizer", 7) == 87


def test_what_runs_beside_backwards_delays_none_and_what_lies_between_delays_the_next() -> None:
    beside = """
    0 0 F              0   0  10
    0 0 F              1  10  20
    0 0 B              0  20  40
    0 0 reduce-scatter -  35  50   # beside the second backward
    0 0 B              1  40  60
    """
    (steps,) = graph_of(table(beside))
    assert step_ms(steps, 0, "reduce-scatter", 9) == 60
    between = """
    0 0 F    0   0  10
    0 0 data -  10  25
    0 0 F    1  25  35
    0 0 B    0  35  45
    0 0 B    1  45  55
    """
    (steps,) = graph_of(table(between))
    assert step_ms(steps, 0, "data", -5) == 50
    assert step_ms(steps, 0, "forward", -5) == 50


def test_steps_of_other_operations_have_graphs_of_their_own() -> None:
    frame = simulate(steps=3, tail=True)
    frame = frame[~((frame["step"] == "1") & (frame["kind"] == "optimizer"))].reset_index(drop=True)
    groups = graph_of(frame)
    assert sorted(group.steps.tolist() for group in groups) == [[0, 2], [1]]


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
    """GIVEN a run of 4 stages with a stall THEN `action_table` as a CSV table has its bubbles, to the ns."""
    run = recorded_run(simulate(tail=False, longer_ns={(2, 2, "F", 4): 60_000_000}, noise=0.05))
    expected = pipeline(run)
    exported = action_table(run).frame.astype(str)
    table = read_table(exported, "actions.csv")
    actual = pipeline(run_of_table(table))
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
