"""What else is recorded of a slow rank: the clock of its device, and options of the profiler that others lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu_jobs import simulate
from benchmarks.gpu_jobs.spec import Defect
from tests.unit.explain.stragglers.test_peer_comparison import DELAY_US, JOBS, RANK
from tracekit.findings.finding import Finding
from tracekit.report.report import analyze

Document = dict[str, Any]


def finding_of_slow_rank(folder: Path, edited: Callable[[int, Document], None]) -> Finding:
    """Return what is said of rank 2, which computes longer in a job of four, whose files are `edited`."""
    defect = Defect(cause="compute", ranks=(RANK,), delay_us=DELAY_US)
    simulate(replace(JOBS["ddp"], defect=defect)).write(folder, compressed=False)
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        edited(document["distributedInfo"]["rank"], document)
        file.write_text(json.dumps(document))
    (finding,) = [finding for finding in analyze(folder).findings if finding.id == "straggler"]
    assert finding.concerned == (RANK,)
    return finding


def add_clock(document: Document, mhz: float) -> None:
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    for event in kernels[:: len(kernels) // 20]:
        sample = {"ph": "C", "name": "SM clock", "pid": "GPU 0 Counters", "tid": 0, "ts": event["ts"] + 0.5}
        document["traceEvents"].append(sample | {"args": {"MHz": mhz}})


def test_a_lower_clock_explains_a_rank_that_computes_longer(tmp_path: Path) -> None:
    finding = finding_of_slow_rank(tmp_path, lambda rank, trace: add_clock(trace, 1110 if rank == RANK else 1590))
    assert finding.evidence["cause"] == "compute"
    clock = finding.evidence["clock"]
    assert (clock["rate"], clock["others_rate"]) == (1110, 1590)


def test_a_rank_that_alone_was_recorded_with_stacks_is_told_that(tmp_path: Path) -> None:
    def edited(rank: int, trace: Document) -> None:
        trace["record_shapes"] = 1
        if rank == RANK:
            trace["with_stack"] = 1

    finding = finding_of_slow_rank(tmp_path, edited)
    assert finding.evidence["recorded_with"] == ["with_stack"]


def test_a_clock_as_that_of_others_explains_nothing(tmp_path: Path) -> None:
    finding = finding_of_slow_rank(tmp_path, lambda rank, trace: add_clock(trace, 1580 if rank == RANK else 1590))
    assert "clock" not in finding.evidence
