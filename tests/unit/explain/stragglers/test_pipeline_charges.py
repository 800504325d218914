"""The delays of pipelines beside those that collectives show: the larger one of each rank counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from tests.unit.explain.stage_lines import line
from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.explain.stragglers.delay_attribution import CAUSES, CausedDelays
from tracekit.explain.stragglers.slow_transfers import SlowNetworkLink, SlowTransfers
from tracekit.explain.stragglers.stragglers import with_pipeline_delays
from tracekit.model.run import Run

STEPS = (4, 5, 6)  # the pipeline ran in steps 5 and 6
HOST, DATA, COMPUTE = CAUSES.index("host"), CAUSES.index("data"), CAUSES.index("compute")


def charges(ranks: int, *, links: int = 0, of_rank_1: int = 0) -> CausedDelays:
    """Return delays as of collectives: `of_rank_1`, by its computing in step 4."""
    ranks_ns = np.zeros((ranks, len(STEPS)), dtype=np.int64)
    causes_ns = np.zeros((ranks, len(CAUSES) + 1), dtype=np.int64)
    ranks_ns[1, 0] = causes_ns[1, COMPUTE] = of_rank_1
    return CausedDelays(ranks_ns=ranks_ns, causes_ns=causes_ns, links_ns=np.full((links, len(STEPS)), 7))


def link(ranks: tuple[int, ...], *, messages: bool = False) -> SlowNetworkLink:
    return SlowNetworkLink(ranks=ranks, carries_messages=messages, directed=False, slowdown=3.0)


def added(
    before: CausedDelays,
    run: Run,
    pipelines: Sequence[MeasuredPipeline],
    links: Sequence[SlowNetworkLink] = (),
    slow: Sequence[tuple[int, int]] = (),
) -> CausedDelays:
    """Return the delays with those of pipelines.

    slow: when collectives of the last link began, and how much too long each took.
    """
    empty = CollectiveInstances.empty()
    rows = {field.name: np.zeros(len(slow), dtype=getattr(empty, field.name).dtype) for field in fields(empty)}
    instances = CollectiveInstances(**rows | {"begin_ns": np.array([at_ns for at_ns, _ in slow], dtype=np.int64)})
    transfers = SlowTransfers(
        links=tuple(links),
        slow_ns=np.array([beyond_ns for _, beyond_ns in slow], dtype=np.int64),
        link=np.full(len(slow), len(links) - 1),
    )
    return with_pipeline_delays(before, run, pipelines, instances, transfers, STEPS)


def test_a_late_host_and_data_loading_are_charged_to_their_ranks_and_steps() -> None:
    run, measured = line(
        3,
        4,
        steps=(5, 6),
        pause=30,
        longer=lambda _, stage: 20 * (stage == 1),
        columns={"data_ns": lambda stage: 30 * (stage == 0), "idle_ns": lambda stage: 20 * (stage == 1)},
    )

    result = added(charges(3), run, [measured])

    # Stages 0 and 1 take 130 and 120 a microbatch. With either at 100, the other one still holds up the step.
    assert result.ranks_ns.tolist() == [[0, 60, 60], [0, 20, 20], [0, 0, 0]]
    assert result.causes_ns[:, DATA].tolist() == [120, 0, 0]
    assert result.causes_ns[:, HOST].tolist() == [0, 40, 0]
    assert result.causes_ns.sum() == 160


def test_of_slow_messages_that_end_in_a_bubble_only_the_replay_counts() -> None:
    """GIVEN messages that take 160 too long together, by which the step would be 40 shorter."""
    run, measured = line(3, 1, steps=(5, 6), transfers=(20, 60))
    before = replace(charges(3), links_ns=np.array([[0, 160, 160]]))

    assert added(before, run, [measured], [link((1, 2), messages=True)]).links_ns.tolist() == [[0, 40, 40]]


def test_slow_collectives_of_two_stages_are_no_slow_messages() -> None:
    """GIVEN stages 1 and 2 whose collectives are slow and whose messages take as long as others."""
    run, measured = line(4, 1, steps=(5, 6), transfers=(20, 20, 20))
    before = replace(charges(4), links_ns=np.array([[0, 500, 500]]))

    assert added(before, run, [measured], [link((1, 2))]).links_ns.tolist() == [[0, 500, 500]]


@pytest.mark.parametrize("after_ns", [50, 105], ids=["in its action", "between its action and the next"])
def test_slow_collectives_within_a_stage_add_to_its_actions(after_ns: int) -> None:
    """GIVEN ranks 1 and 9, both of stage 1, whose collectives after each of 4 forwards take 30 too long.

    Stage 1 begins a forward every 130, in which it works for 100, or 130. After the last one nothing waits.
    """
    inside = after_ns < 100
    lengthened: dict[str, Any] = (
        {"longer": lambda _, stage: 30 * (stage == 1)} if inside else {"pause": 30, "paused_stage": 1}
    )
    run, measured = line(3, 4, steps=(5, 6), **lengthened)
    begins = measured.action_orders[0].start_ns[measured.action_orders[0].rank == 1]
    slow = [(begin_ns + after_ns, 30) for begin_ns in begins.ravel().tolist()]
    links = [link((1, 9))]

    result = added(charges(3, links=1), run, [measured], links, slow)

    assert result.links_ns.tolist() == [[0, 120, 120] if inside else [0, 90, 90]]
