"""Which event is at the other end of a launch, and in which step is it?"""

from __future__ import annotations

import numpy as np

from tracekit.hta.frame import linked_events, steps_of_events


def test_both_ends_of_a_launch_point_at_each_other() -> None:
    position = np.array([3, 5, 8, 9], dtype=np.int32)
    correlation = np.array([70, -1, 70, 71])
    on_device = np.array([False, False, True, True])
    assert linked_events(position, correlation, on_device).tolist() == [8, -1, 3, 0]


def test_of_several_ends_the_last_one_counts() -> None:
    position = np.arange(5, dtype=np.int32)
    correlation = np.array([7, 7, 7, 7, 7])
    on_device = np.array([False, True, False, True, True])
    assert linked_events(position, correlation, on_device).tolist() == [4, 2, 4, 2, 2]


def test_without_events_of_a_device_nothing_is_linked() -> None:
    position, correlation = np.arange(2, dtype=np.int32), np.array([1, -1])
    assert linked_events(position, correlation, np.zeros(2, dtype=np.bool_)).tolist() == [0, -1]


def steps(stream: list[int], links: list[int]) -> np.ndarray:
    """Return the steps of the events at 0, 5, 12, 30 and 31 us; the first and the third are steps of 10 us."""
    return steps_of_events(
        ["ProfilerStep#7", "aten::mm", "ProfilerStep #8"],
        np.array([0, 1, 2, 1, 1], dtype=np.int32),
        np.array([0, 5, 12, 30, 31]),
        np.array([10.0, 1.0, 10.0, 1.0, 1.0]),
        np.array(stream, dtype=np.int8),
        np.array([1, 2, 4, 6, 7], dtype=np.int32),
        np.array(links),
    )


def test_a_host_event_is_in_the_step_in_which_it_begins_and_a_kernel_in_that_of_its_launch() -> None:
    actual = steps([-1, -1, -1, 7, 7], [-1, 6, -1, 2, 0])
    assert (actual.tolist(), actual.dtype) == ([7, 7, 8, 7, -1], np.int8)


def test_on_stream_0_no_step_is_known() -> None:
    assert np.array_equal(steps([-1, -1, -1, 0, 7], [-1, 6, -1, 2, 0]), [7, 7, 8, np.nan, -1], equal_nan=True)
