"""Findings about DDP's buckets, with planted causes; times as in `ddp_training`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.ddp import ddp_training as training
from tracekit.explain.ddp.bucket_findings import blocked_buckets
from tracekit.explain.ddp.buckets import buckets
from tracekit.findings.ddp import last_reductions
from tracekit.findings.finding import Finding
from tracekit.loading.load import load
from tracekit.model.metadata import DdpModule
from tracekit.model.run import Run
from tracekit.model.table import records

EVEN = (3, 3, 3, 1)


def run(folder: Path, traces: list[TraceBuilder], ddp: DdpModule) -> Run:
    for trace in traces:
        trace.capture(ddp=(ddp,), clock=[(0, 0, 0)])
    return load(write_run(folder, traces))


def findings(trained: Run, words: str) -> list[Finding]:
    return [finding for finding in buckets(trained).findings if words in finding.text]


def test_a_single_bucket_overlaps_nothing(tmp_path: Path) -> None:
    trained = run(tmp_path, [training.rank(rank, (10,)) for rank in (0, 1)], training.module((10,), 25))
    (finding,) = findings(trained, "bucket (bucket_cap_mb=25)")
    assert finding.time_ns == pytest.approx(41e6, rel=0.01)
    assert (finding.saving_ns, "one size" in str(finding.evidence["no_replay"])) == (None, True)
    assert (finding.severity, finding.cause) == ("warning", "transfer")
    assert finding.action is not None
    assert "bucket_cap_mb=1" in finding.action  # a quarter of 10 * 0.4 MB = 3.8 MiB


def test_the_tail_is_named_with_its_largest_part(tmp_path: Path) -> None:
    """GIVEN five layers after the last gradient: 1 ms and 20 ms."""
    trained = run(tmp_path, [training.rank(rank, (5, 5)) for rank in (0, 1)], training.module((5, 5), 1.907))
    (finding,) = findings(trained, "after the last gradient")
    assert (finding.saving_ns, finding.time_ns) == (None, pytest.approx(21e6, rel=0.01))
    assert (finding.evidence["index"], finding.evidence["size_bytes"]) == (1, 5 * training.LAYER_BYTES)
    assert finding.evidence["first_parameter"] == training.NAMES[5]


@pytest.mark.parametrize(("saves_ns", "is_advised"), [(None, True), (1, True), (0, False), (-93_000_000, False)])
def test_smaller_buckets_are_advised_unless_the_table_of_limits_shows_that_they_save_nothing(
    saves_ns: int | None, *, is_advised: bool
) -> None:
    example = {**last_reductions.example, "smaller_saves_ns": saves_ns}
    assert ("bucket_cap_mb" in str(last_reductions(evidence=example).action)) is is_advised


def test_what_smaller_buckets_save_is_the_best_of_the_smaller_limits_in_the_table(tmp_path: Path) -> None:
    trained = run(tmp_path, [training.rank(rank, (5, 5)) for rank in (0, 1)], training.module((5, 5), 1.907))
    found = buckets(trained)
    (finding,) = findings(trained, "after the last gradient")
    smaller = [row["saving_ns"] for row in records(found.whatif) if row["bucket_cap_mb"] < 1.9]
    assert finding.evidence["smaller_saves_ns"] == max(smaller)


def test_a_late_gradient_blocks_the_buckets_behind_it(tmp_path: Path) -> None:
    """GIVEN layer 1 of bucket 0 after all others. THEN bucket 1 is complete at 50 ms, and waits until 100 ms."""
    order = [0, *range(2, 10), 1]
    ddp = training.module(EVEN, 1, gradient_order=order)
    trained = run(tmp_path, [training.rank(rank, EVEN, late=1) for rank in (0, 1)], ddp)
    (finding,) = findings(trained, "is ready and waits")
    assert finding.evidence == {
        "parameter": training.NAMES[1],
        "index": 1,
        "behind": 0,
        "held_ns": 50_000_000,
        "share": 1 / 3,
    }
    assert finding.time_ns == 50_000_000
    assert finding.action is not None
    assert "in the order in which the forward pass uses them" in finding.action
    blocked = {(each.rank, each.index): each.held_ns for each in blocked_buckets(trained)}
    assert blocked == {(r, i): ns for r in (0, 1) for i, ns in ((1, 50_000_000), (2, 20_000_000), (3, 10_000_000))}


@pytest.mark.parametrize(("used", "count"), [(10, 1), (9, 0)])
def test_find_unused_parameters_without_unused_parameters(tmp_path: Path, used: int, count: int) -> None:
    traces = [training.rank(rank, EVEN, used=used) for rank in (0, 1)]
    for trace in traces:
        for step in range(4):
            at = step * training.STEP + 120_000
            trace.gloo("all_reduce", at, 4_000, issued_at=at, elements=10, thread=trace.autograd)
            trace.events[-2]["args"]["Input type"] = ["int"]
            trace.events[-1]["args"]["Input type"] = ["int"]
    result = findings(
        run(tmp_path, traces, training.module(EVEN, 1, find_unused=True)), "searches for unused parameters"
    )
    assert len(result) == count
    if count:
        assert result[0].evidence["all_reduce_ns"] == result[0].time_ns == 4_000_000
        assert result[0].action == "set find_unused_parameters=False"
        assert result[0].severity == "warning"


@pytest.mark.parametrize(("updates", "count"), [(1, 1), (2, 0)])
def test_reductions_of_every_micro_batch(tmp_path: Path, updates: int, count: int) -> None:
    """GIVEN two backward passes a step that both reduce: 21 ms are exposed.

    THEN with one update the first is not needed; two updates need both.
    """
    traces = [training.rank(rank, (5, 5), backward_passes=2, labels=True) for rank in (0, 1)]
    for trace in traces:
        for step in range(4):
            for update in range(updates):
                trace.label("Optimizer.step#SGD.step", (2 * step + 2 - update) * training.STEP - 1_000, 500)
    trained = run(tmp_path, traces, training.module((5, 5), 1.907))
    found = [each for each in buckets(trained).findings if each.id == "ddp-every-micro-batch"]
    assert [each.evidence["reductions_per_update"] for each in found] == [2] * count
    assert [each.time_ns for each in found] == [pytest.approx(21e6, rel=0.01)] * count


def test_the_first_iteration_reduces_everything_at_once(tmp_path: Path) -> None:
    traces = []
    for rank in (0, 1):
        trace = training.rank(rank, EVEN, steps=3)
        first = training.rank(rank, (10,), steps=1)
        begun = [event for event in trace.events if event["ts"] >= trace.events[0]["ts"] + training.STEP]
        trace.events = first.events + begun
        traces.append(trace)
    trained = run(tmp_path, traces, training.module(EVEN, 1))
    (finding,) = findings(trained, "had not rebuilt its buckets")
    assert (finding.step, finding.severity) == (0, "info")
    rows = [(row["step"], row["index"]) for row in records(buckets(trained).times) if row["rank"] == 0]
    assert rows == [(0, -1), *((step, index) for step in (1, 2) for index in range(4))]
