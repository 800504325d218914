"""Pipelines in plain NCCL traces, from generated jobs whose messages, bubbles and defects are known."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest

from benchmarks.gpu_jobs import Cause, Clocks, Defect, JobSpec, SimulatedJob, cluster, simulate
from benchmarks.gpu_jobs.analysed import report_of, run_of
from benchmarks.gpu_jobs.defects import RankDefect, defect_of
from tracekit.report.report import Report

TWO_MACHINES = Clocks(offset_us=(0.0, 2500.0))
JOBS: list[dict[str, Any]] = [
    {"schedule": "gpipe", "labels": "none"},
    {"schedule": "1f1b", "labels": "microbatch"},
    {"schedule": "1f1b", "labels": "action"},
    {"schedule": "interleaved", "labels": "none", "virtual_stages": 2},
    {"schedule": "1f1b", "labels": "none", "batched_messages": True},
    {"schedule": "gpipe", "labels": "microbatch", "batched_messages": True},
    {"schedule": "interleaved", "labels": "action", "virtual_stages": 2, "batched_messages": True},
]


def of_jobs(*numbers: int) -> pytest.MarkDecorator:
    """Run a test with some of the jobs."""
    names = [
        f"{job['schedule']}-{job['labels']}-{'batched' if 'batched_messages' in job else 'single'}"
        for job in map(JOBS.__getitem__, numbers)
    ]
    return pytest.mark.parametrize("others", [JOBS[number] for number in numbers], ids=names)


def spec_of(**others: Any) -> JobSpec:
    return JobSpec(
        **{"family": "pipeline", "pp": 4, "layers": 8, "microbatches": 8, "steps": 4, "jitter": 0.03} | others
    )


@cache
def analysed(spec: JobSpec) -> tuple[SimulatedJob, Report]:
    job = simulate(spec)
    return job, job.report()


def blamed(report: Report) -> set[tuple[int, ...]]:
    """Return the ranks that findings and the verdict blame, each culprit once."""
    named = {
        finding.ranks or (finding.rank,) for finding in report.findings if finding.ranks or finding.rank is not None
    }
    verdict = report.stragglers.verdict
    if verdict.link is not None:
        named.add(tuple(sorted(verdict.link.ranks)))
    if verdict.rank is not None:
        named.add((verdict.rank,))
    return named


def without(job: SimulatedJob, *beginnings: str, category: str | None = None) -> dict[int, bytes]:
    """Return the traces without the events of a category whose names begin so."""
    traces = {}
    for rank, document in job.documents().items():
        kept = [
            event
            for event in document["traceEvents"]
            if not (event["name"].startswith(beginnings) and category in (None, event.get("cat")))
        ]
        assert len(kept) < len(document["traceEvents"])
        traces[rank] = msgspec.json.Encoder(decimal_format="number").encode(document | {"traceEvents": kept})
    return traces


def test_kernels_of_messages_that_nothing_describes_match_nothing_and_anchor_no_clocks() -> None:
    """GIVEN SendRecv kernels, which have no arguments, without operators and annotations."""
    job, _ = analysed(spec_of(batched_messages=True, ranks_per_host=2, clocks=TWO_MACHINES))

    run = run_of(without(job, "c10d::", "record_param_comms", "nccl:"))

    assert run.collectives == ()
    assert len(run.messages) == 0
    assert {clock.method for clock in run.clocks} <= {"host", "none"}


@of_jobs(1, 2, 6)
def test_copies_of_annotations_on_the_device_add_no_actions(others: dict[str, Any]) -> None:
    job, report = analysed(spec_of(**others))

    alone = report_of(without(job, "", category="gpu_user_annotation"), only="pipeline")

    counts = report.pipeline.by_stage[["stage", "kind", "count"]].to_numpy().tolist()
    assert counts == alone.pipeline.by_stage[["stage", "kind", "count"]].to_numpy().tolist()
    assert report.pipeline.bubble_ratio == alone.pipeline.bubble_ratio


def with_defect(cause: Cause, *ranks: int, stage: int | None = None, **others: Any) -> tuple[SimulatedJob, Report]:
    defect = Defect(cause=cause, ranks=ranks, delay_us=4000.0, stage=stage)
    return analysed(spec_of(defect=defect, **others))


LONE_EDGES = {
    "two ranks": {"pp": 2, "layers": 4, "ranks_per_host": 2},
    "interleaved": {"pp": 2, "schedule": "interleaved", "virtual_stages": 2, "ranks_per_host": 2},
    "between hosts": {"ranks_per_host": 2},
    "between hosts, batched": {"ranks_per_host": 2, "schedule": "gpipe", "batched_messages": True},
}


@pytest.mark.parametrize("others", LONE_EDGES.values(), ids=LONE_EDGES)
def test_a_slow_edge_without_others_alike_is_named(others: dict[str, Any]) -> None:
    """GIVEN the only edge of a host or between hosts THEN it is compared with NVLink, or with edges within hosts."""
    edge = (0, 1) if "pp" in others else (1, 2)
    job, report = with_defect("slow_edge", *edge, **others)

    assert blamed(report) == {edge}
    (finding,) = (finding for finding in report.findings if finding.remedy == "link")
    assert finding.saving_ns == pytest.approx(job.truth.saving_ns, rel=0.1)
    assert finding.severity == ("warning" if "pp" in others else "info")


@pytest.mark.parametrize("others", LONE_EDGES.values(), ids=LONE_EDGES)
def test_an_edge_without_others_alike_is_not_slow_by_itself(others: dict[str, Any]) -> None:
    _, report = analysed(spec_of(**others))

    assert blamed(report) == set()
    assert report.stragglers.links == ()


def test_a_network_that_is_slower_than_links_within_hosts_hides_no_late_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN an edge between hosts that costs more than the late host of rank 3 THEN rank 3 is named."""
    spec = spec_of(synced=True, ranks_per_host=2, defect=Defect(cause="host", ranks=(3,), delay_us=8000.0))
    network = replace(spec, defect=Defect(cause="slow_edge", ranks=(1, 2), delay_us=12_000.0))

    def late_and_slow(of: JobSpec, rank: int) -> RankDefect:
        slow = defect_of(network, rank)
        return replace(defect_of(of, rank), slow_peer=slow.slow_peer, message_us=slow.message_us)

    monkeypatch.setattr(cluster, "defect_of", late_and_slow)
    report = simulate(spec).report()

    (link,) = report.stragglers.links
    assert (link.ranks, link.reference) == ((1, 2), "links within hosts")
    assert report.stragglers.verdict.rank == 3


@of_jobs(4, 5, 6)
def test_batches_that_do_not_name_their_peers_do_not_hide_a_pipeline(others: dict[str, Any]) -> None:
    """GIVEN batches of torch before 2.5."""
    job = simulate(spec_of(**others))
    for document in job.documents().values():
        for event in document["traceEvents"]:
            for name in ("Src Rank", "Dst Rank"):
                event.get("args", {}).pop(name, None)

    found = job.report(only="pipeline").pipeline

    assert found.stages == 4 * job.spec.virtual_stages
    assert found.bubble_ratio == pytest.approx(job.truth.bubble_ratio, abs=0.01)
