"""What the host and the device of a GPU rank did, by rows of its launch segments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.whatif.graph.device_rank import Comm, Cut, communication_of, segments_of
from tracekit.analysis.whatif.graph.device_timeline import DeviceTimeline, segments_of_steps
from tracekit.model.events import ABSENT

# Two steps of 100; in each the host launches kernels, an all-reduce after 20, and kernels that wait for it.
ROWS = (
    Cut(what="begin", at_us=0, step=ABSENT, device_us=5, device_end_us=8),
    Cut(what="step", at_us=10, step=3, device_us=40, device_end_us=55),
    Cut(what="launch", at_us=30, step=3, device_end_us=55, communication_end_us=80),
    Cut(what="wait", at_us=32, step=3, device_us=20, device_end_us=101),
    Cut(what="step", at_us=110, step=4, device_us=40, device_end_us=155),
    Cut(what="launch", at_us=130, step=4, device_end_us=155, communication_end_us=180),
    Cut(what="wait", at_us=132, step=4, device_us=20, device_end_us=201),
    Cut(what="end", at_us=210, step=4, device_end_us=201),
)
SEGMENTS = segments_of(*ROWS)


@pytest.mark.parametrize(("steps", "rows"), [([3], slice(1, 5)), ([4], slice(4, 8)), ([3, 4], slice(1, 8))])
def test_the_segments_of_steps_end_with_the_row_that_ends_the_last(steps: list[int], rows: slice) -> None:
    found = segments_of_steps(SEGMENTS, steps)

    assert found == SEGMENTS.rows(np.arange(len(ROWS))[rows])


@pytest.mark.parametrize("steps", [[2], [4, 5], [3, 5]])
def test_steps_that_are_not_known(steps: list[int]) -> None:
    assert segments_of_steps(SEGMENTS, steps) is None


def test_a_last_step_whose_end_is_not_known() -> None:
    assert segments_of_steps(segments_of(*ROWS[:-1]), [4]) is None


def timeline(*communication: Comm) -> DeviceTimeline:
    """Return the timeline of both steps, the first of which the device began at 12."""
    return DeviceTimeline(12_000, segments_of(*ROWS[1:]), communication_of(*communication))


def test_kernels_are_free_when_all_before_have_ended() -> None:
    found = timeline()

    assert (found.free_ns // 1000).tolist() == [12, 55, 55, 101, 155, 155, 201]
    assert found.step.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_a_wait_shares_the_time_of_the_host_with_the_row_before() -> None:
    found = timeline()

    assert found.host.tolist() == [0, 1, 3, 4, 6]
    assert found.host_row.tolist() == [0, 1, 1, 3, 4, 4, 6]


def test_communication_belongs_to_the_row_that_launches_it() -> None:
    """GIVEN communication whose launch row is known by its end, one that no row names, and one outside of the steps."""
    found = timeline(
        Comm(launch_us=5, end_us=9),
        Comm(launch_us=30, end_us=80),
        Comm(launch_us=115, end_us=125),
        Comm(launch_us=130, end_us=180),
        Comm(launch_us=215, end_us=280),
    )

    assert (found.rows.tolist(), found.row_of.tolist()) == ([1, 2, 3], [1, 3, 4])
    assert found.slot.tolist() == [0, 1, 1, 1, 2, 2, 2]


def test_the_latest_row_before() -> None:
    present = np.array([False, True, False, False, True, False, False])

    assert timeline().before(present).tolist() == [-1, -1, 1, 1, 1, 4, 4]
