"""Dependencies derived from types of operations: replays of timelines without unexplained gaps reproduce them."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.unit.optables.straggler_tables import TWO_STAGES, operations
from tracekit.errors import InputError
from tracekit.explain.whatif.whatif import what_if
from tracekit.optables.pipelines import NamedGraph
from tracekit.optables.straggler_analysis import OPTYPES, graph_of_operations, read_operations
from tracekit.replay.operation_graph import GraphSteps


def graph_of(table: pd.DataFrame) -> NamedGraph:
    return graph_of_operations(read_operations(table, "ops.csv"), "ops.csv")


def read_graph_steps(text: str) -> GraphSteps:
    (graph_steps,) = graph_of(operations(text)).graph.step_groups
    return graph_steps


def step_ms(graph_steps: GraphSteps, **changes: float) -> float:
    """Return the replayed step with some operations changed by milliseconds; `forward_compute_1` is that of stage 1."""
    duration_ns = graph_steps.duration_ns.copy()
    for name, change_ms in changes.items():
        optype, stage = name.rsplit("_", 1)
        rows = (graph_steps.kind == OPTYPES.index(optype.replace("_", "-"))) & (graph_steps.stage == int(stage))
        assert rows.any()
        duration_ns[rows] += change_ms * 1e6
    return float(graph_steps.step_ns(duration_ns)[0]) / 1e6


def test_two_stages_without_data_parallelism() -> None:
    graph_steps = read_graph_steps(TWO_STAGES)
    assert graph_steps.measured_ns.tolist() == pytest.approx([80e6])
    assert step_ms(graph_steps) == pytest.approx(80)
    assert step_ms(graph_steps, forward_compute_1=-5) == pytest.approx(75)  # on the path
    assert step_ms(graph_steps, backward_send_1=3) == pytest.approx(80)  # the receive has a transfer time of its own
    assert step_ms(graph_steps, backward_recv_0=3) == pytest.approx(83)
    assert step_ms(graph_steps, optimizer_1=2) == pytest.approx(80)  # stage 0 is done later by 3 ms
    assert step_ms(graph_steps, embedding_grads_all_reduce_1=4) == pytest.approx(84)  # clipping waits for it


def test_a_transfer_begins_when_both_ranks_have_arrived() -> None:
    """Stage 1 waited 10 of the 12 ms of its receive: 2 ms are the transfer."""
    graph_steps = read_graph_steps(TWO_STAGES)
    receive = (graph_steps.kind == OPTYPES.index("forward-recv")) & (graph_steps.stage == 1)
    assert graph_steps.duration_ns[receive, 0].tolist() == pytest.approx([2e6])
    waited = (graph_steps.kind == OPTYPES.index("embedding-grads-all-reduce")) & (graph_steps.stage == 1)
    assert graph_steps.duration_ns[waited, 0].tolist() == pytest.approx([3e6])


def test_virtual_stages_send_around_the_ring() -> None:
    """GIVEN chunks 0 and 2 on stage 0, 1 and 3 on stage 1 THEN chunk 1 sends from the last stage to the first.

    Sends and receives at the ends of the model have no peer, and the very first receive is not recorded at all.
    """
    text = """
    0 0 forward-compute           0  10  0 0 0
    0 0 forward-send             10  11
    0 0 forward-recv             10  31
    0 0 forward-compute          31  41  1 2 0
    0 0 forward-send             41  42
    0 0 backward-recv            31  73
    0 0 backward-compute         73  83  1 2 0
    0 0 backward-send            83  84
    0 0 backward-recv            73  105
    0 0 backward-compute        105 115  0 0 0
    0 0 backward-send           115 115               # of the first chunk: to nobody
    0 0 optimizer-clip-main-grad 115 116
    0 0 optimizer               116 120
    0 1 forward-recv              0  11
    0 1 forward-compute          11  30  0 1 0
    0 1 forward-send             30  31
    0 1 forward-recv             11  42
    0 1 forward-compute          42  52  1 3 0
    0 1 forward-send             52  52               # of the last chunk
    0 1 backward-recv            30  30
    0 1 backward-compute         52  72  1 3 0
    0 1 backward-send            72  73
    0 1 backward-recv            72  84
    0 1 backward-compute         84 104  0 1 0
    0 1 backward-send           104 105
    0 1 optimizer-clip-main-grad 104 116
    0 1 optimizer               116 120
    """
    graph_steps = read_graph_steps(text)
    assert step_ms(graph_steps) == pytest.approx(120)
    assert step_ms(graph_steps, forward_compute_1=1) == pytest.approx(122)  # both chunks of stage 1 are on the path
    assert step_ms(graph_steps, forward_recv_0=1) == pytest.approx(121)  # chunk 2 waits for it


@pytest.mark.parametrize(
    ("last", "slack_ms"),
    [
        ("separate-grads-all-reduce", 20),  # reduction overlaps: it begins after the last backward of its chunk
        ("layernorm-grads-all-reduce", None),  # one after the other, after all backwards
    ],
)
def test_gradients_are_reduced_after_the_last_backward_of_the_chunk_or_of_all(
    last: str, slack_ms: float | None
) -> None:
    """Chunk 1's gradients are done at 40, chunk 0's at 60; reducing them takes 10 each."""
    overlapped = slack_ms is not None
    at = {"first": (40, 50), "second": (60, 70)} if overlapped else {"first": (60, 70), "second": (70, 80)}
    text = f"""
    0 0 params-all-gather     -5   0  0
    0 0 forward-compute        0  10  0 0 0
    0 0 forward-compute       10  20  1 1 0
    0 0 backward-compute      20  40  1 1 0
    0 0 backward-compute      40  60  0 0 0
    0 0 grads-reduce-scatter  {at["first"][0]} {at["first"][1]} 1
    0 0 grads-reduce-scatter  {at["second"][0]} {at["second"][1]} 0
    """
    end = 70 if overlapped else 80
    text += f"0 0 {last} {end if overlapped else 60} {end if overlapped else 60}\n0 0 optimizer {end} {end + 5}"
    graph_steps = read_graph_steps(text)
    assert step_ms(graph_steps) == pytest.approx(end + 10)
    duration_ns = graph_steps.duration_ns.copy()
    first = (graph_steps.kind == OPTYPES.index("grads-reduce-scatter")).nonzero()[0][0]
    duration_ns[first] += 8e6
    # Overlapped, chunk 1's reduction has 10 ms until chunk 0's begins.
    assert graph_steps.step_ns(duration_ns)[0] / 1e6 == pytest.approx(end + 10 + (0 if overlapped else 8))


def test_replicas_meet_in_collectives_of_data_parallelism() -> None:
    """Replica 1 computes 10 ms longer; replica 0 waits for it in the reduction."""
    text = """
    0 0 forward-compute       0  10  0 0 0
    0 0 backward-compute     10  30  0 0 0
    0 0 grads-reduce-scatter 30  45  0
    0 0 optimizer            45  50
    1 0 forward-compute       0  20  0 0 0
    1 0 backward-compute     20  40  0 0 0
    1 0 grads-reduce-scatter 40  45  0
    1 0 optimizer            45  50
    """
    graph_steps = read_graph_steps(text)
    assert step_ms(graph_steps) == pytest.approx(50)
    assert graph_steps.duration_ns[
        graph_steps.kind == OPTYPES.index("grads-reduce-scatter"), 0
    ].tolist() == pytest.approx([5e6] * 2)
    duration_ns = graph_steps.duration_ns.copy()
    duration_ns[(graph_steps.replica == 1) & (graph_steps.kind == 0)] -= 8e6
    assert graph_steps.step_ns(duration_ns)[0] / 1e6 == pytest.approx(42)


def test_steps_with_the_same_operations_share_a_graph_and_others_do_not() -> None:
    short = "\n".join(line for line in TWO_STAGES.splitlines() if "embedding" not in line)
    steps = [operations(text, step=i) for i, text in enumerate([TWO_STAGES, TWO_STAGES, short])]
    graph_steps = graph_of(pd.concat(steps)).graph.step_groups
    assert [w.steps.tolist() for w in graph_steps] == [[0, 1], [2]]


def test_the_order_of_rows_and_gaps_in_step_numbers_do_not_matter() -> None:
    table = pd.concat([operations(TWO_STAGES, step=i) for i in (7, 900)])
    (mixed,) = graph_of(table.sample(frac=1, random_state=1).reset_index(drop=True)).graph.step_groups
    assert mixed.steps.tolist() == [7, 900]
    assert mixed.step_ns(mixed.duration_ns) / 1e6 == pytest.approx([80, 80])


def test_a_step_that_lacks_operations_is_left_out_with_a_note() -> None:
    broken = "\n".join(line for line in TWO_STAGES.splitlines() if "forward-recv" not in line)
    table = pd.concat([operations(TWO_STAGES, step=0), operations(broken, step=1)])
    graph = graph_of(table.reset_index(drop=True)).graph
    assert [w.steps.tolist() for w in graph.step_groups] == [[0]]
    assert graph.notes == ("step 1 left out: the forward send 0 of chunk 1 has no receive",)
    with pytest.raises(InputError, match="the forward send 0 of chunk 1 has no receive"):
        graph_of(operations(broken))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("optype", "forward", "column optype: 'forward' is no optype"),
        ("duration", -1.0, "column duration: '-1.0' is negative"),
        ("duration", float("nan"), "column duration: 'nan' is not a time"),
        ("start_ts", "soon", "column start_ts: 'soon' is not a time"),
        ("step", 0.5, "column step: '0.5' is not a whole number"),
        ("dp_rank", -1, "column dp_rank: '-1' is not a whole number in range"),
        ("rank", 1, "ranks and .dp_rank, stage. do not correspond"),
        ("gmc", 2e10, "column gmc: '20000000000.0' is not a whole number in range"),
    ],
)
def test_values_that_cannot_be_are_refused(column: str, value: object, message: str) -> None:
    table = operations(TWO_STAGES).astype(object)
    table.loc[0, column] = value
    with pytest.raises(InputError, match=message):
        graph_of(table)


def test_an_operation_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="is there twice"):
        graph_of(pd.concat([operations(TWO_STAGES)] * 2, ignore_index=True))


def test_uneven_stages() -> None:
    """
    stage 0   forward 10   backward 20   optimizer 10      T = 80. Balanced: forward 10.5 on both, which changes nothing
    stage 1   forward 11   backward 20   optimizer  6      on the path through both; optimizer 8, which saves 2.
    """
    table = operations(TWO_STAGES.replace("70   77", "70   76"))
    result = what_if(graph_of(table).graph)
    assert result.replayed_ns == 80_000_000
    assert {change.what: (change.saves_ns_per_step, change.error_ns) for change in result.changes} == {
        "upper bound, if communication were free": (
            9_000_000,
            0,
        ),  # 2 forward, 2 backward, 3 of the embeddings, 2 of clipping
        "perfectly balanced stages": (2_000_000, 0),
    }  # and no rank at the other's speed, as no other has its stage
    # Ideally forwards take 10.5 and optimizers 8: 78. Stage 0 takes 0.5 less and 2 more, stage 1 0.5 more.
    assert result.ideal_ns == 78_000_000
    assert result.by_stage == pytest.approx({0: 79.5 / 78, 1: 78.5 / 78})
