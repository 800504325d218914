"""DDP under `torch.compile` of the whole step: who waits inside the compiled step still waits."""

import pytest

from tests.places import DATA
from tracekit import analyze
from tracekit.model.table import rows_of


def test_a_reduction_that_is_awaited_in_the_compiled_step_shows_the_slow_rank() -> None:
    """GIVEN two ranks of which rank 1 computes 40 ms longer, 20 in forward and 20 in backward."""
    report = analyze(DATA / "seed" / "compiled")
    first = report.findings[0]
    assert (first.id, first.rank, first.cause) == ("straggler", 1, "compute")
    assert first.saving_ns == pytest.approx(40e6, rel=0.15)
    exposed = {row["rank"]: row["exposed_comm_ns"] / row["steps"] / 1e6 for row in rows_of(report.breakdown, "ranks")}
    assert exposed == {0: pytest.approx(41, abs=3), 1: pytest.approx(0, abs=1)}
