"""A rank whose file is cut off leaves the comparison of the others as it is."""

from __future__ import annotations

import msgspec
import pytest

from tests.gpu_jobs import Defect, JobSpec, simulate
from tests.gpu_jobs.analysed import report_of

SLOW, CUT = 1, 3
SPEC = JobSpec(family="ddp", dp=4, steps=5, defect=Defect(cause="compute", ranks=(SLOW,), delay_us=800.0))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_the_slow_rank_is_named_as_if_the_cut_file_were_missing(share: float) -> None:
    """GIVEN a file that keeps a part of its bytes; Kineto writes kernels last, so that no step of it is whole."""
    documents = simulate(SPEC).documents()
    traces = {rank: msgspec.json.encode(document) for rank, document in documents.items()}
    cut = traces | {CUT: traces[CUT][: int(share * len(traces[CUT]))]}
    missing = {rank: content for rank, content in traces.items() if rank != CUT}

    reports = [report_of(these, only=["breakdown", "stragglers"]) for these in (cut, missing)]

    assert [report.stragglers.verdict.rank for report in reports] == [SLOW, SLOW]
    assert [report.run.common_steps() for report in reports] == [reports[1].run.common_steps()] * 2
    verdicts = [report.stragglers.verdict.caused_delay_ns for report in reports]
    assert verdicts[0] == verdicts[1]
    (rank,) = [summary for summary in reports[0].run.ranks if summary.rank == CUT]
    assert (rank.is_measured, rank.steps) == (False, ())
