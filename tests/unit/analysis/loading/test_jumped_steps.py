"""Steps in which the clocks of machines jump, and which ranks' they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tracekit
from tests.damaged_runs.events import step_of_the_wall_clock
from tests.damaged_runs.good_run import GOOD, STEP_US, STEPS, rank_trace
from tests.gpu_jobs import Clocks, Family, simulate, spec_of

JUMP_US = 500_000
ALL = set(GOOD)


def run_on_machines(folder: Path, machines: dict[str, list[int]], jumps_us: dict[str, float]) -> tracekit.Run:
    """Load the good ranks on named machines, some of whose clocks jump in the fourth step, which is step 6."""
    for machine, ranks in machines.items():
        for rank in ranks:
            trace = rank_trace(rank)
            trace.host = machine
            if machine in jumps_us:
                trace = step_of_the_wall_clock(trace, at_us=3.2 * STEP_US, by_us=jumps_us[machine])
            trace.write(folder / f"rank{rank}.json")
    return tracekit.load(folder)


@pytest.mark.parametrize(
    ("machines", "jumps_us", "lacking"),
    [
        # Two machines out of three agree; of two, either may be wrong.
        ({"a1": [0, 1], "b1": [2, 3, 4], "c1": [5, 6, 7]}, {"a1": JUMP_US}, {0, 1}),
        ({"a1": [0, 1], "b1": [2, 3, 4], "c1": [5, 6, 7]}, {"b1": JUMP_US}, {2, 3, 4}),
        ({"a1": [0, 1, 2, 3], "b1": [4, 5, 6, 7]}, {"a1": JUMP_US}, ALL),
        ({"a1": [0, 1, 2, 3], "b1": [4, 5, 6, 7]}, {"b1": JUMP_US}, ALL),
        ({"a1": [0, 1, 2], "b1": [3, 4, 5, 6, 7]}, {"b1": JUMP_US}, ALL),
        ({"a1": [0, 1, 2, 3, 4], "b1": [5, 6, 7]}, {"a1": JUMP_US}, ALL),
        ({"a1": [0], "b1": [1]}, {"a1": JUMP_US}, {0, 1}),
        # All clocks were set at once, each by what it was off.
        (
            {"a1": [0, 1], "b1": [2, 3], "c1": [4, 5], "d1": [6, 7]},
            {"b1": JUMP_US, "c1": 2 * JUMP_US, "d1": 300},
            ALL,
        ),
    ],
)
def test_steps_do_not_count_where_the_clock_of_a_machine_may_have_jumped(
    tmp_path: Path, machines: dict[str, list[int]], jumps_us: dict[str, float], lacking: set[int]
) -> None:
    run = run_on_machines(tmp_path, machines, jumps_us)

    steps = {summary.rank: [(step.step, step.step_ns) for step in summary.steps] for summary in run.ranks}
    assert steps == {
        rank: [(step, STEP_US * 1000) for step in STEPS if rank not in lacking or step not in (5, 6)] for rank in steps
    }
    notes = [note for note in run.notes if note.kind == "clock_step"]
    assert {note.rank for note in notes} == lacking
    assert all("step 5-6 may contain the jump and does not count" in note.text for note in notes)


def test_of_two_machines_the_note_says_that_either_may_be_the_one(tmp_path: Path) -> None:
    run = run_on_machines(tmp_path, {"a1": [0, 1], "b1": [2, 3]}, {"b1": JUMP_US})

    texts = {note.rank: note.text for note in run.notes if note.kind == "clock_step"}
    assert "its clock jumps by -500.000 ms, or those of ranks 2-3 by +500.000 ms" in texts[1]
    assert "its clock jumps by +500.000 ms, or those of ranks 0-1 by -500.000 ms" in texts[2]


@pytest.mark.parametrize("jump_us", [200_000.0, 1300.0, -700.0])
@pytest.mark.parametrize("machine", [0, 1])
@pytest.mark.parametrize("family", ["pipeline", "hybrid"])
def test_messages_show_in_which_steps_a_clock_jumps(
    tmp_path: Path, family: Family, machine: int, jump_us: float
) -> None:
    """GIVEN a pipeline on machines of two ranks, and a clock that jumps in the middle of six steps.

    THEN the steps that count last as long as they do without the jump.
    """
    spec = replace(spec_of(family, 3), ranks_per_host=2, steps=6)
    jumps_us = tuple(jump_us * (host == machine) for host in range(spec.hosts))
    lengths_ns = []
    for name, clocks in (("steady", Clocks()), ("jumps", Clocks(jump_us=jumps_us))):
        simulate(replace(spec, clocks=clocks)).write(tmp_path / name)
        ranks = tracekit.load(tmp_path / name).ranks
        lengths_ns.append({(rank.rank, step.step): step.step_ns for rank in ranks for step in rank.steps})
    steady_ns, jumps_ns = lengths_ns

    assert len(jumps_ns) < len(steady_ns)
    assert len(jumps_ns) >= len(steady_ns) / 2
    assert all(jumps_ns[place] == pytest.approx(steady_ns[place], rel=0.01) for place in jumps_ns)
