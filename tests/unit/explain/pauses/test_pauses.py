"""Ranks that save, evaluate or log while others wait for them. Times are milliseconds.

A step of training takes 22: 20 of compute, and an all-reduce of 2. Rank 0 pauses after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.findings.finding import Finding
from tracekit.model.spans import EVALUATION_SPAN, checkpoint_span, logging_span
from tracekit.model.table import rows_of
from tracekit.report.report import Report, analyze

STEPS, WORK_MS, REDUCTION_MS = 6, 20, 2
SAVE = checkpoint_span("save", "torch.save")
DCP_SAVE = checkpoint_span("save", "torch.distributed.checkpoint")
ASYNC_SAVE = checkpoint_span("async_save", "torch.distributed.checkpoint")
AWAIT = checkpoint_span("await", "torch.distributed.checkpoint")
Pause = tuple[str, Mapping[int, float]]  # the span, and how long it takes in which steps


def run_of(folder: Path, pauses: Mapping[int, Pause | list[Pause]], ranks: int = 2) -> Path:
    """Return the run of data-parallel ranks, of which some pause, once or several times a step."""
    now = dict.fromkeys(range(ranks), 0.0)
    traces = {rank: TraceBuilder(rank, ranks) for rank in range(ranks)}
    for step in range(STEPS):
        ready = {rank: begun + WORK_MS for rank, begun in now.items()}
        done = max(ready.values()) + REDUCTION_MS
        for rank, trace in traces.items():
            trace.op("aten::mm", 1000 * now[rank], 20e3)
            trace.gloo("all_reduce", 1000 * ready[rank], 1000 * (done - ready[rank]))
            trace.wait(1000 * ready[rank] + 2, 1000 * (done - ready[rank]) - 2)
            of_rank, end = pauses.get(rank, []), done
            for name, lengths in of_rank if isinstance(of_rank, list) else [of_rank]:
                pause = lengths.get(step, 0.0)
                if pause and name == EVALUATION_SPAN:
                    trace.op("aten::mm", 1000 * end, 1000 * pause)
                if pause:
                    trace.label(name, 1000 * end, 1000 * pause)
                end += pause
            trace.step(step, 1000 * now[rank], 1000 * (end - now[rank]))
            now[rank] = end
    return write_run(folder, [trace.capture(clock=[(0, 0, 1000)]) for trace in traces.values()])


def pause_findings(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.cause in ("checkpoint", "evaluation", "logging")]


@pytest.mark.parametrize(
    ("name", "ranks", "does", "action"),
    [
        (SAVE, 2, "save", "async_save"),
        (SAVE, 3, "save", "async_save"),
        ("tracekit.checkpoint", 2, "save", "less often"),
        (AWAIT, 2, "await", "before the last one"),
        (checkpoint_span("load", "torch.load"), 2, "load", "load once"),
        (EVALUATION_SPAN, 2, "evaluation", "on all ranks"),
        (
            logging_span("stdout"),
            2,
            "logging",
            "another thread",
        ),
    ],
)
def test_a_pause_of_one_rank_is_named_with_its_length_and_saving(
    tmp_path: Path, name: str, ranks: int, does: str, action: str
) -> None:
    report = analyze(run_of(tmp_path, {0: (name, dict.fromkeys(range(STEPS), 78.0))}, ranks))

    (finding,) = pause_findings(report)
    assert finding is report.findings[0]
    assert (finding.rank, finding.evidence["does"], finding.evidence["waiting"]) == (0, does, ranks - 1)
    assert (finding.evidence["each_ns"], finding.evidence["wait_kind"]) == (78_000_000, "all_reduce")
    assert finding.time_ns == 78_000_000
    assert finding.saving_ns == pytest.approx(78e6, rel=0.02)
    assert action in (finding.action or "")
    assert not {other.id for other in report.findings} & {"straggler", "late-by-turns", "late-at-times"}


def test_a_pause_in_some_steps_is_no_noise_and_no_variation(tmp_path: Path) -> None:
    """GIVEN steps of 22 and of 322 ms THEN they are not too noisy to judge, as it is known why they differ."""
    report = analyze(run_of(tmp_path, {0: (SAVE, {1: 300.0, 4: 300.0})}))

    (finding,) = report.findings
    assert (finding.rank, finding.evidence["steps_with_it"], finding.evidence["steps"]) == (0, 2, 6)
    assert finding.time_ns == 100_000_000
    assert finding.saving_ns == pytest.approx(100e6, rel=0.02)


@pytest.mark.parametrize(("name", "action"), [(DCP_SAVE, "async_save"), (ASYNC_SAVE, "pinned"), (SAVE, "shards")])
def test_a_pause_of_all_ranks_is_one_finding(tmp_path: Path, name: str, action: str) -> None:
    pause = (name, dict.fromkeys(range(STEPS), 40.0))
    (finding,) = pause_findings(analyze(run_of(tmp_path, {0: pause, 1: pause})))

    assert (finding.evidence["each_ns"], finding.evidence["waiting"]) == (40_000_000, 0)
    assert (finding.rank, finding.ranks, finding.saving_ns) == (None, (), pytest.approx(40e6, rel=0.02))
    assert action in (finding.action or "")


def test_others_wait_for_what_a_rank_does_beyond_them(tmp_path: Path) -> None:
    """GIVEN evaluations of 40 on both ranks, and a save of 60 that follows on rank 0, WHEN both are replayed.

    THEN the other rank waits for the save alone, though the evaluation delays the same collective.
    """
    report = analyze(
        run_of(
            tmp_path,
            {
                0: [(EVALUATION_SPAN, dict.fromkeys(range(STEPS), 40.0)), (SAVE, dict.fromkeys(range(STEPS), 60.0))],
                1: [(EVALUATION_SPAN, dict.fromkeys(range(STEPS), 40.0))],
            },
        )
    )

    save, evaluation = pause_findings(report)
    assert (save.rank, evaluation.rank) == (0, None)
    assert (save.saving_ns, evaluation.saving_ns) == (pytest.approx(60e6, rel=0.02), pytest.approx(40e6, rel=0.02))
    assert report.pauses is not None
    waits_ms = {(row["rank"], row["pause"]): row["others_wait_ns"] / 1e6 for row in rows_of(report.pauses, "ranks")}
    # Nobody waits for what follows the last all-reduce.
    assert waits_ms == {
        (0, "checkpoint"): pytest.approx(60 * (STEPS - 1) / STEPS, rel=0.01),
        (0, "evaluation"): pytest.approx(0, abs=0.01),
        (1, "evaluation"): pytest.approx(0, abs=0.01),
    }


def test_a_rank_that_saves_longer_than_the_others_is_no_second_finding(tmp_path: Path) -> None:
    short, long = dict.fromkeys(range(STEPS), 40.0), dict.fromkeys(range(STEPS), 60.0)
    report = analyze(run_of(tmp_path, {0: (DCP_SAVE, long), 1: (DCP_SAVE, short)}))

    assert report.stragglers is not None
    assert report.stragglers.verdict.cause == "checkpoint"
    assert "20 ms a step longer" in report.stragglers.verdict.text
    assert [finding.text for finding in report.findings if finding.rank == 0] == []


def test_a_pause_after_the_last_recorded_communication_is_told_although_no_wait_is_recorded(tmp_path: Path) -> None:
    report = analyze(run_of(tmp_path, {0: (SAVE, {STEPS - 1: 60.0})}))

    (finding,) = pause_findings(report)
    assert (finding.rank, finding.time_ns) == (0, 10_000_000)


@pytest.mark.parametrize("length_ms", [0.0, 0.5])
def test_a_pause_that_costs_nearly_nothing_is_no_finding(tmp_path: Path, length_ms: float) -> None:
    report = analyze(run_of(tmp_path, {0: (SAVE, dict.fromkeys(range(STEPS), length_ms))}))
    assert pause_findings(report) == []


def test_the_causes_of_the_step_name_the_pause(tmp_path: Path) -> None:
    report = analyze(run_of(tmp_path, {0: (SAVE, dict.fromkeys(range(STEPS), 78.0))}))

    assert report.diagnosis is not None
    causes = {row["cause"]: row for row in rows_of(report.diagnosis, "causes")}
    assert causes["slow_checkpoint"]["ranks"] == [0]
    assert causes["slow_checkpoint"]["time_ns"] == pytest.approx(78e6, rel=0.02)
    assert report.stragglers is not None
    assert {row["rank"]: row["cause"] for row in rows_of(report.stragglers, "by_rank")}[0] == "checkpoint"


def test_many_short_calls_that_log_are_one_pause(tmp_path: Path) -> None:
    """GIVEN 300 calls of 10 us, one every 20 us."""
    trace = TraceBuilder(world_size=1).step(0, 0, 10_000).step(1, 10_000, 10_000).op("aten::mm", 0, 1000)
    for call in range(300):
        trace.label(logging_span("stdout"), 2000 + 20 * call, 10)
    report = analyze(write_run(tmp_path, [trace.capture()]))

    assert report.pauses is not None
    (row,) = rows_of(report.pauses, "ranks")
    assert (row["pause"], row["total_ns"]) == ("logging", (299 * 20 + 10) * 1000)
    (finding,) = pause_findings(report)
    assert (finding.id, finding.evidence["steps_with_it"], finding.evidence["steps"]) == ("logging-pause", 1, 2)
