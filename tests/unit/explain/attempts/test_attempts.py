"""The attempts of a job: how each ended, and what each restart cost, with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.explain.attempts.planted import PlantedAttempt, Rank, ns
from tracekit.explain.attempts import attempts, lost_parts_ns
from tracekit.findings.finding import held
from tracekit.model.run import OtherRun, Run
from tracekit.model.table import rows_of

FINISHED = Rank(calls=30, ended_s=60.0, ending="exit", restarts=1)

# Two ranks make steps 0 to 13; rank 1 is killed before it begins step 14, and rank 0 fails 3 s later.
KILLED = PlantedAttempt(
    ranks=(Rank(calls=15, raised_s=20.0, error="RuntimeError", ended_s=20.5, ending="error"), Rank(calls=14)),
    start_s=5.0,
    joined_s=8.0,
    first_call_s=10.0,
)
# Its workers start at 28.5, have joined at 30.5, and begin with step 10 at 32.0.
RESUMED = PlantedAttempt(
    ranks=(FINISHED, FINISHED), start_s=28.499, joined_s=30.499, first_call_s=31.999, first_step=10, step_s=0.4
)


def run_of(planted: Sequence[PlantedAttempt], chosen: int = 0, recorded: Sequence[int] = ()) -> Run:
    """A run of which attempt `chosen` is analysed, and those `recorded` have windows, too."""
    others = tuple(OtherRun(run_id="run-1", attempt=number, ranks=1, start_ns=None) for number in recorded)
    progress = tuple(rank for number, attempt in enumerate(planted) for rank in attempt.progress(number))
    return Run(
        paths=("runs",),
        run_id="run-1",
        attempt=chosen,
        world_size=1,
        ranks=(),
        missing_ranks=(),
        selected_ranks=None,
        groups=(),
        clocks=(),
        other_runs=others,
        notes=(),
        progress=progress,
    )


def rows(planted: Sequence[PlantedAttempt], **options: Any) -> list[dict[str, Any]]:
    return rows_of(attempts(run_of(planted, **options)), "attempts")


def test_the_lost_time_is_split_into_what_it_was_lost_to() -> None:
    _, after = rows((KILLED, RESUMED))

    last_sign_s = 10.001 + 13 * 0.5  # of rank 1
    expected_s = {
        "detection_ns": 20.5 - last_sign_s,
        "rendezvous_ns": 28.5 - 20.5,
        "startup_ns": 2.0,
        "reload_ns": 1.5,
        "repeated_ns": 4 * 0.4,
    }
    assert {part: after[part] for part in expected_s} == {part: round(s * 1e9) for part, s in expected_s.items()}
    assert after["repeated_steps"] == 4
    assert after["lost_ns"] == sum(after[part] for part in expected_s)


def test_an_attempt_without_a_window_is_shown() -> None:
    assert [row["recorded"] for row in rows((KILLED, RESUMED), chosen=1)] == [False, True]


def test_an_attempt_that_left_only_its_window_is_shown() -> None:
    """Attempts 0 and 1 were recorded where no progress was kept."""
    first, second, third = rows((), chosen=2, recorded=(0, 1))

    assert [row["attempt"] for row in (first, second, third)] == [0, 1, 2]
    assert (first["world_size"], first["lost_ns"], third["world_size"]) == (None, None, 1)


def test_what_was_killed_by_the_launcher_too_has_detection_and_rendezvous_together() -> None:
    silent = replace(KILLED, ranks=(Rank(calls=15), Rank(calls=14)))

    first, after = rows((silent, RESUMED))

    assert (first["ending"], first["ended_ranks"]) == ("killed", [1])
    assert after["detection_ns"] is None
    assert after["rendezvous_ns"] == round((28.5 - 16.501) * 1e9)


def test_ranks_that_died_in_one_step_are_told_apart_by_nothing() -> None:
    (first, after) = rows((replace(KILLED, ranks=(Rank(calls=15), Rank(calls=15))), RESUMED))

    assert (first["ending"], first["ended_ranks"]) == ("killed", [])
    assert after["rendezvous_ns"] == round((28.5 - 17.001) * 1e9)


def test_where_the_process_group_is_unknown_start_up_is_part_of_reload() -> None:
    _, after = rows((KILLED, replace(RESUMED, joined_s=None)))

    assert (after["startup_ns"], after["reload_ns"]) == (None, round(3.5 * 1e9))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        # Rank 0 raises; rank 1 hears of it and raises, too.
        ([("ValueError", 18.0), ("RuntimeError", 18.1)], ("error", [0], "ValueError")),
        ([("RuntimeError", 18.2), ("DistBackendError", 18.1)], ("error", [1], "DistBackendError")),
        # Rank 1 is still in its step when the launcher ends it.
        ([("ValueError", 18.0), None], ("error", [0], "ValueError")),
        ([("DistBackendError", 18.0), None], ("killed", [1], None)),
    ],
)
def test_whose_error_it_was(ranks: list[tuple[str, float] | None], expected: tuple[str, list[int], str | None]) -> None:
    failed = [
        Rank(calls=15) if each is None else Rank(calls=15, raised_s=each[1], error=each[0], ending="error")
        for each in ranks
    ]

    first, _ = rows((replace(KILLED, ranks=failed), RESUMED))

    assert (first["ending"], first["ended_ranks"], first["error"]) == expected


def test_an_error_that_the_program_survived_is_no_end() -> None:
    survived = Rank(calls=15, raised_s=11.0, error="ValueError")

    first, _ = rows((replace(KILLED, ranks=(survived, Rank(calls=14))), RESUMED))

    assert (first["ending"], first["error"]) == ("killed", None)


def test_a_change_of_membership_is_no_failure() -> None:
    """1 -> 2 -> 1: agent b joins, and nobody has failed; then it is gone, and agent a counts a failure."""
    alone = PlantedAttempt(ranks=(Rank(calls=10),), start_s=0.0, joined_s=1.0, first_call_s=2.0)
    left = Rank(calls=8, agent="b")
    raised = Rank(calls=9, raised_s=15.0, error="RuntimeError", ended_s=15.2, ending="error")
    both = PlantedAttempt(ranks=(raised, left), start_s=8.0, joined_s=9.0, first_call_s=10.0, first_step=5)
    last = PlantedAttempt(ranks=(FINISHED,), start_s=21.0, joined_s=22.0, first_call_s=23.0, first_step=10)

    first, second, third = rows((alone, both, last))

    assert [row["ending"] for row in (first, second, third)] == ["membership", "killed", "finished"]
    assert [row["world_size"] for row in (first, second, third)] == [1, 2, 1]
    assert second["ended_ranks"] == [1]
    assert (second["repeated_steps"], third["repeated_steps"]) == (9 - 5, 5 + 8 - 10)
    assert second["rendezvous_ns"] == round((8.001 - 6.5) * 1e9)  # since its last step began


def test_where_nothing_tells_the_first_step_of_a_resumed_attempt_repeated_steps_are_unknown() -> None:
    """SGD has no count of its steps: the calls of each attempt begin with 0, whatever it has loaded."""
    result = attempts(run_of((KILLED, replace(RESUMED, first_step=0))))

    _, after = rows_of(result, "attempts")
    assert (after["first_step"], after["last_step"]) == (None, None)
    assert (after["repeated_steps"], after["repeated_ns"]) == (None, None)
    assert after["lost_ns"] == round((31.999 + 0.001 - 16.501) * 1e9)
    assert [finding.evidence["repeated_steps"] for finding in result.findings] == [None]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (Rank(calls=14, ended_s=17.0, ending="error"), 4),  # rank 1 has ended step 13
        (Rank(calls=14, raised_s=16.8, error="ValueError", ended_s=17.0, ending="error"), 3),
        (Rank(calls=14), 3),  # nobody knows
    ],
)
def test_a_step_is_repeated_if_its_rank_raised_after_it(last: Rank, expected: int) -> None:
    _, after = rows((replace(KILLED, ranks=(Rank(calls=14), last)), RESUMED))

    assert after["repeated_steps"] == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ((FINISHED, FINISHED), "finished"),
        ((FINISHED, Rank(calls=20)), None),  # it may still run
        ((Rank(calls=20, raised_s=45.0, error="ValueError", ended_s=45.1, ending="error"), FINISHED), "error"),
    ],
)
def test_how_the_last_attempt_ended(last: tuple[Rank, ...], expected: str | None) -> None:
    *_, final = rows((KILLED, replace(RESUMED, ranks=tuple(replace(rank, restarts=1) for rank in last))))

    assert final["ending"] == expected


def test_a_job_of_one_attempt_has_no_rows() -> None:
    assert rows((KILLED,)) == []


def test_costly_restarts_are_a_finding_with_what_they_cost_most() -> None:
    result = attempts(run_of((KILLED, RESUMED)))

    (finding,) = result.findings
    lost_ns = sum(lost_parts_ns(rows_of(result, "attempts")).values())
    assert finding.severity == "warning"
    assert finding.evidence == {"lost_ns": lost_ns, "job_ns": ns(60.0) - ns(5.001), "restarts": 1} | {
        "part": "rendezvous",
        "part_ns": 8_000_000_000,
        "repeated_steps": 4,
    }
    assert finding.action is not None
    assert "--rdzv-conf" in finding.action


def test_cheap_restarts_are_none() -> None:
    late = replace(RESUMED, ranks=tuple(replace(FINISHED, ended_s=600.0) for _ in range(2)))

    result = attempts(run_of((KILLED, late)))

    assert held(result.findings) == ()
