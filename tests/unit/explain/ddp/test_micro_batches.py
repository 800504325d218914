"""Gradients that are reduced in every micro-batch, in traces of torch alone. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.findings.finding import Finding
from tracekit.model.spans import forward_span
from tracekit.report.report import analyze

DDP, FSDP2 = "DistributedDataParallel.forward", "FSDP::pre_forward (layers.0)"
MICRO_BATCHES, REDUCTION = 3, 400


def a_rank(
    rank: int, label: str = DDP, kind: str = "all_reduce", node: str | None = None, updates: int = 1, alike: bool = True
) -> TraceBuilder:
    """Two steps of 2,300, and a host that runs ahead. Each micro-batch computes for 300, then reduces for 400."""
    trace = TraceBuilder(rank, 2)
    for step in range(2):
        trace.step(step, 2_300 * step, 2_300)
        for number in range(MICRO_BATCHES):
            at, begin = 2_300 * step + 120 * number, 2_300 * step + 700 * number + 60
            trace.label(label, at + 10, 20).kernel("gemm", begin, 150, launched_at=at + 20)
            trace.backward("MmBackward0", at + 50, 20)
            trace.kernel("gemm", begin + 150, 150, launched_at=at + 60)
            if node is not None:
                trace.backward(node, at + 75, 20, thread=trace.main)
            elements = 1_000_000 if alike else 1_000_000 * (number + 1)
            trace.nccl(kind, begin + 300, REDUCTION, launched_at=at + 80, elements=elements)
            if number >= MICRO_BATCHES - updates:
                trace.label("Optimizer.step#Adam.step", at + 100, 15)
        trace.kernel("adam", 2_300 * step + 2_160, 140, launched_at=2_300 * step + 350)
    return trace


def found_in(folder: Path, **job: object) -> list[Finding]:
    report = analyze(write_run(folder, [a_rank(rank, **job) for rank in (0, 1)]))  # type: ignore[arg-type]
    return [finding for finding in report.findings if finding.id.endswith("-every-micro-batch")]


@pytest.mark.parametrize(
    ("label", "kind", "finding_id", "option"),
    [
        (DDP, "all_reduce", "ddp-every-micro-batch", "no_sync()"),
        (FSDP2, "reduce_scatter", "fsdp-every-micro-batch", "set_requires_gradient_sync(False)"),
        (forward_span(0), "all_reduce", "ddp-every-micro-batch", None),
    ],
)
def test_all_but_the_last_can_be_left_out(
    tmp_path: Path, label: str, kind: str, finding_id: str, option: str | None
) -> None:
    (finding,) = found_in(tmp_path, label=label, kind=kind)
    assert finding.id == finding_id
    assert (finding.evidence["option"], finding.evidence["reductions_per_update"]) == (option, MICRO_BATCHES)
    assert finding.saving_ns == pytest.approx(2 * REDUCTION * 1000, rel=0.1)


# Each micro-batch has an update of its own; other gradients each time; needed at once.
@pytest.mark.parametrize("job", [{"updates": 3}, {"alike": False}, {"node": "SyncBatchNormBackward"}])
def test_reductions_that_are_needed_are_no_finding(tmp_path: Path, job: dict[str, object]) -> None:
    assert found_in(tmp_path, **job) == []
