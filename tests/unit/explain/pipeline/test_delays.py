"""What late hosts, data loading and slow links add to the steps of pipelines whose times are known."""

from __future__ import annotations

from benchmarks.exchanges import actions, recv, send
from tests.unit.explain.stage_lines import line, measured_run
from tracekit.explain.pipeline.uneven_stage import (
    PipelineDelays,
    SlowStageLink,
    gaps_before_ns,
    pipeline_delays,
    replay_with_less,
)

BEGIN = 5_000_000  # of step 5


def summed(delays: PipelineDelays) -> tuple[list[int], list[int]]:
    """Return what the host and the data loading of each rank add to all steps."""
    return delays.host_ns.sum(axis=1).tolist(), delays.data_ns.sum(axis=1).tolist()


def test_a_host_that_leaves_its_device_idle_inside_actions_is_late() -> None:
    """GIVEN a stage 1 that takes 20 longer for each of 4 microbatches, idle all that time THEN steps take 80 longer."""
    _, measured = line(
        3, 4, longer=lambda _, stage: 20 * (stage == 1), columns={"idle_ns": lambda stage: 20 * (stage == 1)}
    )

    assert summed(pipeline_delays(measured, [])) == ([0, 80, 0], [0, 0, 0])


def test_what_is_usual_on_other_ranks_is_no_delay() -> None:
    """GIVEN idle times of 20 everywhere, and of 50 on rank 2 THEN only 30 of each are its delay."""
    _, measured = line(
        3,
        4,
        longer=lambda _, stage: 50 if stage == 2 else 20,
        columns={"idle_ns": lambda stage: 50 if stage == 2 else 20},
    )

    assert summed(pipeline_delays(measured, [])) == ([0, 0, 120], [0, 0, 0])


def test_what_a_host_prepares_before_its_first_action_is_not_compared() -> None:
    """GIVEN a host that is 20 late before each of 4 actions THEN three of them are its delay."""
    _, measured = line(3, 4, pause=20)

    gaps_ns = gaps_before_ns(measured.action_orders[0], measured.edges[0], measured.transfers[0])
    assert gaps_ns[:4].tolist() == [[20]] * 4
    assert summed(pipeline_delays(measured, [])) == ([60, 0, 0], [0, 0, 0])


def test_less_than_a_two_hundredth_of_the_step_is_none() -> None:
    """GIVEN 1 of a step of 301 and 4 of a step of 604 THEN only the second one counts."""
    for microbatches, expected in ((1, 0), (4, 4)):
        _, measured = line(
            3, microbatches, longer=lambda _, stage: stage == 1, columns={"idle_ns": lambda stage: int(stage == 1)}
        )
        assert pipeline_delays(measured, []).host_ns.sum() == expected


def test_a_host_that_sends_late_delays_the_next_stage() -> None:
    """
    rank 0   0-100, sends at 130
    rank 1             130-230, sends at once
    rank 2                    230-330         without the delay: 300
    """
    spans = [(0, 100), (130, 230), (230, 330)]
    stages = [actions(("F", 0, BEGIN + a, BEGIN + b), stage=stage) for stage, (a, b) in enumerate(spans)]
    messages = [
        [send(1, BEGIN + 130, took_ns=0)],
        [recv(0, BEGIN, took_ns=130), send(2, BEGIN + 230, took_ns=0)],
        [recv(1, BEGIN, took_ns=230)],
    ]
    _, measured = measured_run(stages, messages)

    assert summed(pipeline_delays(measured, [])) == ([30, 0, 0], [0, 0, 0])


def test_a_slow_link_adds_what_its_transfers_take_beyond_those_of_others() -> None:
    """GIVEN transfers of 20, 60 and 20, three times as long on the second link THEN each step takes 40 longer."""
    _, measured = line(4, 1, steps=(5, 6, 7), transfers=(20, 60, 20))

    delays = pipeline_delays(
        measured, [SlowStageLink(ranks=(1, 2), slowdown=3.0), SlowStageLink(ranks=(0, 3), slowdown=3.0)]
    )

    assert delays.links_ns.tolist() == [[40, 40, 40], [0, 0, 0]]  # ranks 0 and 3 send each other nothing
    assert summed(delays) == ([0] * 4, [0] * 4)


def test_a_replay_with_a_shorter_stage_is_as_long_as_a_job_with_that_stage() -> None:
    """GIVEN forwards of 200 on stage 2, and of 100 elsewhere: a step takes 100 (4 + 4 - 1), and 100 a microbatch."""
    _, measured = line(4, 4, steps=(5, 6), longer=lambda _, stage: 100 * (stage == 2), pause=20)
    even = line(4, 4, steps=(5, 6), pause=20)[1]
    (order,), (transfers,) = measured.action_orders, measured.transfers
    half_ns = order.work_ns * (0.5 * (order.stage == 2))[:, None]

    spans_ns, saved_ns = replay_with_less(measured, [(half_ns, 0 * transfers.took_ns)])

    as_long, _ = replay_with_less(even, [(0 * half_ns, 0 * transfers.took_ns)])
    assert spans_ns.tolist() == [1120, 1120]
    assert (spans_ns - saved_ns).tolist() == as_long.tolist() == [780, 780]
