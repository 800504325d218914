"""The chain that bounds a step, against replays: on simulated GPU jobs, whose transfers run beside compute and queue
behind each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.gpu_jobs import Clocks, JobSpec, simulate
from benchmarks.studies.gpu_jobs.cases import Case
from tracekit.model.table import rows_of

JOBS = [("ddp", 3), ("fsdp", 1), ("tensor", 0), ("expert", 1), ("hybrid", 2)]


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


@pytest.mark.parametrize("ahead_us", [-20_000.0, 20_000.0])
@pytest.mark.parametrize(("group", "seed"), [("ddp", 3), ("expert", 1)])
def test_the_chain_is_the_same_whatever_the_clock_of_a_machine_shows(group: str, seed: int, ahead_us: float) -> None:
    """GIVEN collectives that queue, for which the last stream to be free and the last rank to be ready differ."""
    spec = replace(Case(group, seed).spec(), ranks_per_host=2)
    assert _causes_ns(replace(spec, clocks=Clocks(offset_us=(0.0, ahead_us)))) == pytest.approx(
        _causes_ns(spec), abs=50_000
    )


def _causes_ns(spec: JobSpec) -> Counter[str]:
    diagnosis = simulate(spec).report(only=["diagnosis"]).diagnosis
    assert diagnosis is not None
    times_ns = Counter[str]()
    for row in rows_of(diagnosis, "causes"):
        times_ns[row["cause"]] += row["time_ns"]
    return times_ns
