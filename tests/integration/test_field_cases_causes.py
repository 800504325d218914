"""The cause that recordings of the field show: of a rank whose host is late, of one late in some steps, by turns."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tracekit.findings.finding import Finding
from tracekit.report.report import Report, analyze


@cache
def report(folder: Path) -> Report:
    return analyze(folder)


def first(folder: Path) -> Finding:
    """The first finding, but for one on the idle time of all ranks where one of them is named."""
    findings = report(folder).findings
    named = any(finding.remedy == "ranks" for finding in findings)
    return next(finding for finding in findings if finding.remedy != "host" or not named)


@pytest.mark.parametrize(
    ("case", "finding_id", "ranks", "cause", "saved_ms"),
    [
        ("slow-host-causes/numa", "straggler", (1,), "operators", 9.2),
        ("slow-host-causes/python_gc", "straggler", (1,), "garbage_collection", 9.0),
        ("slow-host-causes/wandb", "logging-pause", (0,), "logging", 6.0),
        ("logging-in-stacks/run", "logging-pause", (0,), "logging", 6.0),
        ("late-by-turns/gc_by_turns", "cause-by-turns", (), "garbage_collection", 12.0),
        ("late-by-turns/allocator_by_turns", "cause-by-turns", (), "allocator", 3.7),
        ("mixed-gpus/run", "straggler", (2, 3), "compute", 12.0),
        ("optimizer-on-the-cpu/run", "host-compute", (), "host_compute", None),
        ("synchronisation-below-a-fifth/run", "host-synchronisation", (), "synchronisation", 1.7),
    ],
)
def test_a_finding_names_the_cause(
    cases: Path, case: str, finding_id: str, ranks: tuple[int, ...], cause: str, saved_ms: float | None
) -> None:
    finding = first(cases / case)
    assert (finding.id, finding.concerned, finding.cause) == (finding_id, ranks, cause)
    if saved_ms is not None:
        assert (finding.saving_ns or 0) / 1e6 == pytest.approx(saved_ms, abs=0.06)
    assert "stacks" not in (finding.action or "")


@pytest.mark.parametrize(("case", "time_ms"), [("gc_by_turns", 12.0), ("allocator_by_turns", 6.0)])
def test_a_cause_by_turns_has_its_time_and_replays_exactly(cases: Path, case: str, time_ms: float) -> None:
    found = report(cases / "late-by-turns" / case)
    assert (found.findings[0].time_ns or 0) / 1e6 == pytest.approx(time_ms, abs=0.05)
    assert found.whatif.replay_error == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize(("case", "ranks"), [("throttled_rank", (5,)), ("throttled_node", (4, 5, 6, 7))])
def test_ranks_that_are_late_in_some_steps_are_named_with_the_steps(
    cases: Path, case: str, ranks: tuple[int, ...]
) -> None:
    found = {finding.id: finding for finding in report(cases / "late-by-turns" / case).findings}
    late = found["late-in-some-steps"]
    assert (late.concerned, late.cause, late.evidence["late_steps"]) == (ranks, "compute", [7, 8, 9, 10])
    assert not {"straggler", "late-by-turns"} & found.keys()


def test_a_rank_without_data_in_some_steps_is_no_reason_to_call_others_late(cases: Path) -> None:
    found = {finding.id: finding for finding in report(cases / "late-by-turns" / "join").findings}
    idle = found["idle-in-some-steps"]
    assert (idle.rank, idle.evidence["rank_steps"], idle.severity) == (3, [7, 8, 9, 10], "info")
    assert not {"straggler", "late-by-turns", "late-in-some-steps"} & found.keys()


def evidence(finding: Finding, name: str) -> dict[str, Any]:
    value = finding.evidence[name]
    assert isinstance(value, dict)
    return value


def test_what_shows_the_cause_is_told(cases: Path) -> None:
    slower = evidence(first(cases / "slow-host-causes/numa"), "slow_operators")
    assert (slower["operator"], round(slower["times"], 2)) == ("aten::mm", 3.0)
    devices = {"slow": "NVIDIA A100-SXM4-80GB", "others": "NVIDIA H100 80GB HBM3"}
    assert evidence(first(cases / "mixed-gpus/run"), "other_devices") == devices
    optimizer = first(cases / "optimizer-on-the-cpu/run")
    assert (optimizer.time_ns or 0) / 1e6 == pytest.approx(25.0, abs=1)
    assert "DeepSpeedCPUAdam" in str(optimizer.evidence["host_in"])


@pytest.mark.parametrize(("run", "rank"), [("ddp4_torch_data", 3), ("fsdp2_2_tk_host", 1)])
def test_a_rank_that_sleeps_before_its_first_operator_is_named_with_that(
    real_traces: Path, run: str, rank: int
) -> None:
    found = report(real_traces / "h200_shared" / run).findings
    (straggler,) = (finding for finding in found if finding.id == "straggler")
    assert (straggler.rank, straggler.cause) == (rank, "host")
    assert evidence(straggler, "host_in")["annotation"] == "before the first operator"
