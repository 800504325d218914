"""Steps in which the clocks of machines jump, and which ranks' they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tracekit
from tests.damaged_runs.events import step_of_the_wall_clock
from tests.damaged_runs.good_run import STEP_US, rank_trace
from tests.gpu_jobs import Clocks, Family, simulate, spec_of

JUMP_US = 500_000
STEPS = range(3, 19)


def run_on_machines(folder: Path, machines: str, jumps_us: dict[str, dict[int, float]]) -> tracekit.Run:
    """Load the good ranks on machines, a letter a rank, whose clocks jump in steps by so much. "-" names none."""
    for rank, machine in enumerate(machines):
        trace = rank_trace(rank, steps=STEPS)
        trace.host = "localhost" if machine in "-." else f"node-{machine}"
        for step, by_us in jumps_us.get(machine, {}).items():
            before_us = sum(by for other, by in jumps_us[machine].items() if other < step)
            trace = step_of_the_wall_clock(trace, at_us=(step - STEPS[0] + 0.2) * STEP_US + before_us, by_us=by_us)
        trace.write(folder / f"rank{rank}.json")
    return tracekit.load(folder)


@pytest.mark.parametrize(
    ("machines", "jumps_us", "lacking"),
    [
        # Two machines out of three agree; of two, either may be wrong.
        ("aabbbccc", {"a": {6: JUMP_US}}, {"a": {5, 6}}),
        ("aabbbccc", {"b": {6: JUMP_US}}, {"b": {5, 6}}),
        ("aaaabbbb", {"a": {6: JUMP_US}}, {"a": {5, 6}, "b": {5, 6}}),
        ("aaaabbbb", {"b": {6: JUMP_US}}, {"a": {5, 6}, "b": {5, 6}}),
        ("aaabbbbb", {"b": {6: JUMP_US}}, {"a": {5, 6}, "b": {5, 6}}),
        ("aaaaabbb", {"a": {6: JUMP_US}}, {"a": {5, 6}, "b": {5, 6}}),
        ("ab", {"a": {6: JUMP_US}}, {"a": {5, 6}, "b": {5, 6}}),
        # Ranks of no known machine may all be of one, if they do not stand against a single rank.
        ("..------", {"-": {6: JUMP_US}}, {".": {5, 6}, "-": {5, 6}}),
        (".-------", {".": {6: JUMP_US}}, {".": {5, 6}}),
        # All clocks were set at once, each by what it was off.
        (
            "aabbccdd",
            {"b": {6: JUMP_US}, "c": {6: 2 * JUMP_US}, "d": {6: 300}},
            {machine: {5, 6} for machine in "abcd"},
        ),
        # At each time one of three or more.
        ("aabbbccc", {"b": {6: JUMP_US}, "c": {12: JUMP_US}}, {"b": {5, 6}, "c": {11, 12}}),
        ("aabbbccc", {"a": {6: JUMP_US}, "c": {12: 300}}, {"a": {5, 6}, "c": {11, 12}}),
        ("aabbbccc", {"b": {6: JUMP_US, 12: 300}}, {"b": {5, 6, 11, 12}}),
        # In neighbouring steps, of two collectives each.
        ("aabbbccc", {"b": {6: 300, 7: 300, 8: 300}}, {"b": {5, 6, 7, 8}}),
        ("aabbbccc", {"a": {6: 300, 7: 300, 8: 300}}, {"a": {5, 6, 7, 8}}),
        ("aabbcdef", {"b": {6: JUMP_US}, "c": {10: 300}, "d": {14: 1e6}}, {"b": {5, 6}, "c": {9, 10}, "d": {13, 14}}),
    ],
)
def test_steps_do_not_count_where_the_clock_of_a_machine_may_have_jumped(
    tmp_path: Path, machines: str, jumps_us: dict[str, dict[int, float]], lacking: dict[str, set[int]]
) -> None:
    run = run_on_machines(tmp_path, machines, jumps_us)

    steps = {summary.rank: [(step.step, step.step_ns) for step in summary.steps] for summary in run.ranks}
    assert steps == {
        rank: [(step, STEP_US * 1000) for step in STEPS if step not in lacking.get(machine, ())]
        for rank, machine in enumerate(machines)
    }
    notes = [note for note in run.notes if note.kind == "clock_step"]
    assert {note.rank for note in notes} == {rank for rank, machine in enumerate(machines) if machine in lacking}
    assert all("may contain the jump and does not count" in note.text for note in notes)


@pytest.mark.parametrize("machine", ["a", "b"])
def test_a_rank_whose_clock_jumps_in_every_step_has_no_times(tmp_path: Path, machine: str) -> None:
    run = run_on_machines(tmp_path, "aabbbccc", {machine: dict.fromkeys(STEPS, 300.0)})

    jumping = {rank for rank, name in enumerate("aabbbccc") if name == machine}
    assert {summary.rank for summary in run.ranks if not summary.is_measured} == jumping
    steps = {summary.rank: [(step.step, step.step_ns) for step in summary.steps] for summary in run.ranks}
    assert all(steps[rank] == [(step, STEP_US * 1000) for step in STEPS] for rank in steps.keys() - jumping)
    notes = {note.rank: note.text for note in run.notes if note.kind == "clock_step"}
    assert notes.keys() == jumping
    for rank in jumping:
        jumps = "its clock jumps 15 times, by up to +0.300 ms, which leaves none of its steps right"
        assert notes[rank] == f"rank {rank}: rank{rank}.json: {jumps}: its times are n/a and join no comparison"


def test_of_two_machines_the_note_says_that_either_may_be_the_one(tmp_path: Path) -> None:
    run = run_on_machines(tmp_path, "aabb", {"b": {6: JUMP_US}})

    texts = {note.rank: note.text for note in run.notes if note.kind == "clock_step"}
    assert "its clock jumps by -500.000 ms, or those of ranks 2-3 by +500.000 ms" in texts[1]
    assert "its clock jumps by +500.000 ms, or those of ranks 0-1 by -500.000 ms" in texts[2]


@pytest.mark.parametrize(
    ("family", "seed", "machine", "jump_us", "at"),
    [
        *((family, 3, machine, jump_us, 0.5) for family in ("pipeline", "hybrid") for machine in (0, 1)
        for jump_us in (200_000.0, 1300.0, -700.0)),
        ("pipeline", 3, 1, 200_000.0, 0.9),
        ("pipeline", 3, 1, 1300.0, 0.04),
        ("hybrid", 3, 0, -700.0, 0.04),
        ("hybrid", 3, 1, 1300.0, 0.97),
        ("expert", 3, 0, 200_000.0, 0.9),
        ("expert", 3, 1, -700.0, 0.97),
        # Collectives show it, and messages of one way do not show that other machines are steady.
        ("hybrid", 12, 1, 200_000.0, 0.9),
        ("hybrid", 12, 0, 1300.0, 0.97),
    ],
)  # fmt: skip
def test_messages_or_a_few_collectives_show_in_which_steps_a_clock_jumps(
    tmp_path: Path, family: Family, seed: int, machine: int, jump_us: float, at: float
) -> None:
    """GIVEN machines of two ranks, and a clock that jumps in the middle of six steps, or near an end of them.

    THEN the steps that count last as long as they do without the jump.
    """
    spec = replace(spec_of(family, seed), ranks_per_host=2, steps=6)
    jumps_us = tuple(jump_us * (host == machine) for host in range(spec.hosts))
    lengths_ns = []
    for name, clocks in (("steady", Clocks()), ("jumps", Clocks(jump_us=jumps_us, jump_at=at))):
        simulate(replace(spec, clocks=clocks)).write(tmp_path / name)
        ranks = tracekit.load(tmp_path / name).ranks
        lengths_ns.append({(rank.rank, step.step): step.step_ns for rank in ranks for step in rank.steps})
    steady_ns, jumps_ns = lengths_ns

    assert len(jumps_ns) < len(steady_ns)
    assert len(jumps_ns) >= len(steady_ns) / 2
    assert all(jumps_ns[place] == pytest.approx(steady_ns[place], rel=0.01) for place in jumps_ns)


@pytest.mark.parametrize(
    ("rate", "unmeasured", "counting"),
    [(0.5, [2], {3, 4}), (1.05, [], set())],  # of the second one, nothing tells which clocks jump
)
def test_jumps_in_all_steps(tmp_path: Path, rate: float, unmeasured: list[int], counting: set[int]) -> None:
    """GIVEN two steps of a pipeline, and a clock at another rate, which seems to jump all the time

    THEN its rank is n/a, and the others keep their steps, or no step counts and the notes say why.
    """
    simulate(replace(spec_of("pipeline", 7, cause="slow_edge"), layers=8, steps=2, microbatches=4)).write(
        tmp_path, compressed=False
    )
    file = tmp_path / "rank2.json"
    trace = json.loads(file.read_bytes())
    start = min(event["ts"] for event in trace["traceEvents"] if "dur" in event)
    for event in trace["traceEvents"]:
        if "dur" in event:
            event["ts"] = start + (event["ts"] - start) * rate
            event["dur"] *= rate
    file.write_text(json.dumps(trace))

    run = tracekit.load(tmp_path)

    assert [summary.rank for summary in run.ranks if summary.unmeasured is not None] == unmeasured
    measured = [summary for summary in run.ranks if summary.is_measured]
    assert [{step.step for step in summary.steps} for summary in measured] == [counting] * len(measured)
    assert {note.rank for note in run.notes if note.severity == "warning" and note.rank is not None} == (
        set(unmeasured) or set(range(4))
    )
