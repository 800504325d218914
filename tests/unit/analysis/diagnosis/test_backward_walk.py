"""The chain that bounds a step, against replays: on simulated GPU jobs, whose transfers run beside compute and queue
behind each other.
"""

from __future__ import annotations

import pytest

from benchmarks.studies.gpu_jobs.cases import Case
from tests.gpu_jobs import simulate
from tracekit.analysis.table import rows_of

JOBS = [("ddp", 0), ("ddp", 1), ("ddp", 3), ("fsdp", 1), ("fsdp", 3), ("tensor", 0), ("expert", 1), ("hybrid", 2)]


@pytest.mark.parametrize(("group", "seed"), JOBS)
def test_the_chain_has_as_much_transfer_as_a_step_without_transfers_is_shorter(group: str, seed: int) -> None:
    """GIVEN gradients that are reduced in buckets, parameters that are gathered ahead, exchanges that are awaited."""
    report = simulate(Case(group, seed).spec()).report()
    diagnosis, whatif = report.diagnosis, report.whatif
    assert diagnosis is not None
    assert whatif is not None
    transfer_ns = sum(row["time_ns"] for row in rows_of(diagnosis, "causes") if row["cause"] == "transfer")
    (saved_ns,) = [change.saves_ns_per_step for change in whatif.changes if change.remedy == "network"]
    assert transfer_ns == pytest.approx(saved_ns, abs=0.02 * diagnosis.step_ns)
    assert saved_ns > 0.05 * diagnosis.step_ns
