"""What a rank did in an interval of its time."""

from __future__ import annotations

import numpy as np

from tracekit.explain.diagnosis.critical_path import RankActivities
from tracekit.explain.diagnosis.tables import ACTIVITIES, PhaseActivities
from tracekit.rank.phases import STEP_PHASES


def activities(*rows: tuple[int, int, str, str, int]) -> RankActivities:
    """Begin, end, phase, activity and its time."""
    begin_ns, end_ns, phase, activity, time_ns = zip(*rows, strict=True)
    return RankActivities(
        PhaseActivities(
            begin_ns=np.array(begin_ns),
            end_ns=np.array(end_ns),
            phase=np.array([STEP_PHASES.index(name) for name in phase], dtype=np.int32),
            activity=np.array([ACTIVITIES.index(name) for name in activity], dtype=np.int32),
            time_ns=np.array(time_ns),
        )
    )


RANK = activities(
    (0, 100, "forward", "compute", 60),
    (0, 100, "forward", "host_bound", 20),  # the other 20 ns it waited
    (100, 300, "backward", "compute", 200),
)


def divided(begin_ns: int, end_ns: int, **known_ns: int) -> dict[tuple[str, str], int]:
    (times_ns,) = RANK.divide(np.array([begin_ns]), np.array([end_ns]), [known_ns])
    return times_ns


def test_what_is_known_of_an_interval_is_kept_and_divided_by_phase() -> None:
    """GIVEN 90 of 150 ns computed, over half of the forward and half of the backward."""
    actual = divided(50, 200, compute=90, data=0)
    assert sum(time_ns for (name, _), time_ns in actual.items() if name == "compute") == 90
    assert actual["host_bound", "forward"] == 60  # the backward pass has no such time
    assert actual["compute", "backward"] > actual["compute", "forward"]


def test_where_nothing_is_known_it_computes() -> None:
    assert divided(500, 530) == {("compute", "other"): 30}


def test_intervals_are_divided_as_each_alone() -> None:
    begin_ns, end_ns = np.array([0, 50, 100, 500]), np.array([40, 200, 300, 530])
    known_ns: list[dict[str, int]] = [{}, {"compute": 90, "data": 0}, {}, {}]
    assert RANK.divide(begin_ns, end_ns, known_ns) == [
        divided(*window, **known) for *window, known in zip(begin_ns.tolist(), end_ns.tolist(), known_ns, strict=True)
    ]


def test_the_phase_at_a_time() -> None:
    assert [RANK.phase_at(time_ns) for time_ns in (-1, 0, 99, 100, 299, 300)] == [
        *("other", "forward", "forward", "backward", "backward", "other")
    ]
