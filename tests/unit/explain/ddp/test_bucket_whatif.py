"""What other limits of the bucket size expose, for a training with known times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.ddp import ddp_training as training
from tracekit.explain.ddp.backward_passes import passes_of_groups
from tracekit.explain.ddp.bucket_findings import bucket_findings
from tracekit.explain.ddp.bucket_whatif import BucketWhatIf, bucket_whatif
from tracekit.explain.ddp.buckets import buckets
from tracekit.explain.section import Unavailable
from tracekit.findings.finding import Finding, held
from tracekit.loading.load import load
from tracekit.model.metadata import DdpModule
from tracekit.model.run import Run
from tracekit.stats.transfer_fit import fit_transfers

PRESENT = (7, 3)  # with 2.5 MiB, and 0.4 MB a layer


def run(folder: Path, traces: list[TraceBuilder], ddp: DdpModule) -> Run:
    for trace in traces:
        trace.capture(ddp=(ddp,), clock=[(0, 0, 0)])
    return load(write_run(folder, traces))


def outcome(run: Run) -> BucketWhatIf:
    result = bucket_whatif(run)
    assert isinstance(result, BucketWhatIf)
    return result


def of_another_limit(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in held(findings) if "bucket_cap_mb=" in (finding.action or "")]


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    traces = [training.rank(rank, PRESENT) for rank in (0, 1)]
    return run(tmp_path, traces, training.module(PRESENT, 2.5))


# The last bucket of 3 layers takes 1 ms and 12 ms. Of two layers, 9 ms. With 1 MiB the last layer alone waits until
# the three layers before it are through, 3 ms after the last gradient, and takes 4 more. All in one: 1 ms and 40 ms.
EXPECTED_MS = {0.5: 9, 1: 7, 2: 17, 2.5: 13, 4: 41}


def test_exposed_time_of_other_limits(trained: Run) -> None:
    result = outcome(trained)
    assert {cap.bucket_cap_mb: cap.buckets for cap in result.caps} == {0.5: 5, 1: 4, 2: 2, 2.5: 2, 4: 1}
    for cap in result.caps:
        assert cap.uncovered_ns / 1e6 == pytest.approx(EXPECTED_MS[cap.bucket_cap_mb], rel=0.02), cap.bucket_cap_mb
        assert cap.error_ns < 0.05 * cap.uncovered_ns
    assert [cap.bucket_cap_mb for cap in result.caps if cap.present] == [2.5]
    assert result.measured_ns == pytest.approx(13e6, rel=0.01)


def test_the_fit_is_that_of_the_transfers(trained: Run) -> None:
    groups = passes_of_groups(trained)
    assert isinstance(groups, list)
    fit = fit_transfers(groups[0].busy_periods)
    assert fit.latency_ns == pytest.approx(1e6, rel=0.01)
    assert fit.ns_per_byte == pytest.approx(10, rel=0.01)


def test_the_best_limit_is_recommended(trained: Run) -> None:
    (finding,) = of_another_limit(buckets(trained).findings)
    assert finding.action is not None
    assert "bucket_cap_mb=1 " in finding.action
    assert (finding.evidence["bucket_cap_mb"], finding.evidence["present_bucket_cap_mb"]) == (1, 2.5)
    assert (finding.cause, finding.time_ns) == ("transfer", pytest.approx(13e6, rel=0.02))
    assert finding.saving_ns == pytest.approx(6e6, rel=0.02)
    assert finding.saving_error_ns is not None
    assert 0 < finding.saving_error_ns < 0.05 * 13e6


def test_nothing_is_recommended_where_the_present_limit_is_best(tmp_path: Path) -> None:
    layers = (3, 3, 3, 1)
    trained = run(tmp_path, [training.rank(rank, layers) for rank in (0, 1)], training.module(layers, 1))
    assert not of_another_limit(buckets(trained).findings)


def test_one_size_does_not_show_the_latency(tmp_path: Path) -> None:
    """GIVEN two buckets of 5 layers, 21 ms each. THEN the time of smaller buckets has a large error."""
    one_size = run(tmp_path, [training.rank(rank, (5, 5)) for rank in (0, 1)], training.module((5, 5), 1.907))
    result = outcome(one_size)
    (present,) = [cap for cap in result.caps if cap.present]
    (smaller,) = [cap for cap in result.caps if cap.bucket_cap_mb == 0.5]
    assert present.error_ns < 1e6 < 5e6 < smaller.error_ns
    assert not of_another_limit(bucket_findings(one_size, result, []))


@pytest.mark.parametrize(
    ("shapes", "ranks", "reason"), [(False, (0, 1), "is not recorded"), (True, (0,), "not all ranks")]
)
def test_why_there_is_no_prediction(tmp_path: Path, shapes: bool, ranks: tuple[int, ...], reason: str) -> None:
    traces = [training.rank(rank, PRESENT, shapes=shapes) for rank in ranks]
    result = bucket_whatif(run(tmp_path, traces, training.module(PRESENT, 2.5)))
    assert isinstance(result, Unavailable)
    assert reason in result.reason


def test_without_a_bucket_map_the_limits_are_replayed(tmp_path: Path) -> None:
    """The present limit is not known then, but its buckets are."""
    traces = [training.rank(rank, PRESENT, labels=True) for rank in (0, 1)]
    result = outcome(load(write_run(tmp_path, traces)))
    assert {cap.bucket_cap_mb: round(cap.uncovered_ns / 1e6) for cap in result.caps} == {0.5: 9, 1: 7, 2: 17, 4: 41}
    assert not any(cap.present for cap in result.caps)


def test_without_ddp_there_is_no_prediction(tmp_path: Path) -> None:
    traces = [training.rank(rank, PRESENT) for rank in (0, 1)]
    assert bucket_whatif(load(write_run(tmp_path, traces))) == Unavailable(
        reason="no rank reduced DDP buckets", expected=True
    )
