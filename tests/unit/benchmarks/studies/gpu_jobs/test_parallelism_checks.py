"""Checks of pipelines, buckets and experts: wrong bubbles, stages, buckets and loads are seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.studies.gpu_jobs.checks import data_parallel, experts, pipelines
from tests.gpu_jobs import Defect, JobSpec
from tests.gpu_jobs.defects import defect_of
from tests.gpu_jobs.groups import groups_of
from tests.unit.benchmarks.studies.gpu_jobs.hand_made import MS, action, ddp, evidence, operation

PIPELINE = JobSpec(family="pipeline", pp=2, layers=2, microbatches=1)
TRUTH = {
    # Both ranks span 8 ms; the first is busy for 6 ms of it, the second for 4 ms.
    "actions": (action(0, "F", 0, 2 * MS), action(0, "B", 4 * MS, 8 * MS), action(1, "F", 2 * MS, 6 * MS)),
    "bubble_ns": (2.0 * MS, 4.0 * MS),
    "bubble_ratio": 0.375,
}


def table(*rows):
    return SimpleNamespace(rows=list(rows))


def rank_row(rank, bubble_ns, **changes):
    causes = dict.fromkeys(("drain_ns", "imbalance_ns", "transfer_ns", "late_peer_ns", "other_ns"), 0)
    known = {"rank": rank, "bubble_ns": bubble_ns, "bubble_ratio": bubble_ns / (8 * MS), "warmup_ns": bubble_ns}
    return known | causes | changes


def seen_pipeline(**changes):
    known = {
        "stages": 2,
        "virtual_stages": 1,
        "microbatches": 1,
        "pipelines": 1,
        "schedule": "1f1b",
        "bubble_ratio": 0.375,
        "uneven_stage": None,
        "by_rank": table(rank_row(0, 2 * MS), rank_row(1, 4 * MS)),
        "by_stage": table(*(stage_row(*values) for values in ((0, "F", 2 * MS), (0, "B", 4 * MS), (1, "F", 4 * MS)))),
    }
    return SimpleNamespace(**(known | changes))


def stage_row(stage, kind, mean_ns):
    return {"stage": stage, "kind": kind, "mean_ns": mean_ns}


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (pipelines.pipeline_is_recognised, {"stages": 4}),
        (pipelines.schedule, {"schedule": "gpipe"}),
        (pipelines.bubble_ratio, {"bubble_ratio": 0.39}),
        (pipelines.bubbles_of_ranks, {"by_rank": table(rank_row(0, 4 * MS), rank_row(1, 2 * MS))}),
        (
            pipelines.causes_sum_to_the_bubble,
            {"by_rank": table(rank_row(0, 2 * MS, other_ns=5), rank_row(1, 4 * MS))},
        ),
        (pipelines.times_of_stages, {"by_stage": table(stage_row(0, "F", 2 * MS), stage_row(0, "B", 4 * MS))}),
        (pipelines.heaviest_stage, {"uneven_stage": SimpleNamespace(stage=1)}),
    ],
)
def test_a_pipeline_that_is_wrong_is_seen(check, wrong):
    def verdict(pipeline):
        return check(evidence(PIPELINE, truth=TRUTH, report={"pipeline": pipeline})).verdict

    assert verdict(seen_pipeline()) == "right"
    assert verdict(seen_pipeline(**wrong)) == "wrong"
    assert verdict(None) == "abstained"


def test_the_heaviest_stage_is_the_one_that_is_planted():
    spec = JobSpec(
        family="pipeline", pp=2, layers=2, defect=Defect(cause="uneven_stage", ranks=(1,), delay_us=1000.0, stage=1)
    )

    def verdict(stage):
        pipeline = seen_pipeline(uneven_stage=stage and SimpleNamespace(stage=stage))
        return pipelines.heaviest_stage(evidence(spec, truth=TRUTH, report={"pipeline": pipeline})).verdict

    assert (verdict(1), verdict(None)) == ("right", "wrong")


DDP = ddp(2, buckets=2)
REDUCTIONS = {"operations": tuple(operation(at, at, sequence=i, size_bytes=8000) for i, at in enumerate((0, 3 * MS)))}


def seen_buckets(**changes):
    known = {
        "bucket_map": table({"size_bytes": 8000}, {"size_bytes": 8000}),
        # 8 kB in 1 ms are 8 MB/s, and of two ranks that is the bus bandwidth
        "by_index": table(*({"index": i, "uncovered_ns": 0, "busbw_bps": 8e6} for i in range(2))),
    }
    return SimpleNamespace(**(known | changes))


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (data_parallel.buckets_are_found, {"bucket_map": table({"size_bytes": 8000})}),
        (
            data_parallel.bandwidth_of_buckets,
            {"by_index": table(*({"index": i, "uncovered_ns": 0, "busbw_bps": 4e6} for i in range(2)))},
        ),
    ],
)
def test_buckets_that_are_wrong_are_seen(check, wrong):
    def verdict(buckets):
        return check(evidence(DDP, truth=REDUCTIONS, report={"buckets": buckets})).verdict

    assert verdict(seen_buckets()) == "right"
    assert verdict(seen_buckets(**wrong)) == "wrong"
    assert verdict(None) == "abstained"


@pytest.mark.parametrize(("bytes_of_second", "verdict"), [(3000.0, "right"), (1000.0, "wrong")])
def test_a_load_of_experts_that_is_wrong_is_seen(bytes_of_second, verdict):
    spec = JobSpec(family="expert", dp=2, ep=2)
    of_rank = {rank: SimpleNamespace(facts={"comms": {"Out msg nelems": (1, 3)[rank]}}) for rank in (0, 1)}
    back = {rank: SimpleNamespace(facts={"comms": {"Out msg nelems": (3, 1)[rank]}}) for rank in (0, 1)}
    rows = table({"rank": 0, "received_bytes": 1000.0}, {"rank": 1, "received_bytes": bytes_of_second})
    given = evidence(
        spec,
        truth={"operations": (operation(0, 0, kind="all_to_all"),)},
        report={"tensor": SimpleNamespace(experts=SimpleNamespace(ranks=rows))},
    )
    given.job.finished.transfers = tuple(
        SimpleNamespace(kind="all_to_all", sequence=i, kernels=kernels) for i, kernels in enumerate((of_rank, back))
    )

    assert experts.load_of_experts(given).verdict == verdict


@pytest.mark.parametrize(("wrong_by", "verdict"), [(0.0, "right"), (0.02, "right"), (0.1, "wrong")])
def test_an_estimated_load_that_is_wrong_is_seen(wrong_by, verdict):
    """GIVEN a rank whose experts get 1.3 times an even load, so that the other one gets 0.7."""
    hot = Defect(cause="hot_expert", ranks=(1,), delay_us=0.3 * 0.5 * 3 * 400.0 * 8)
    spec = JobSpec(family="expert", dp=2, ep=2, dispatch="kernels", defect=hot)
    ratios = {0: 0.7 / 1.3, 1: 1.3 / 0.7 + wrong_by}
    rows = table(*({"rank": rank, "ratio": ratio} for rank, ratio in ratios.items()))
    given = evidence(spec, report={"tensor": SimpleNamespace(experts=SimpleNamespace(ranks=rows))})
    group = groups_of(spec)[0]["ep"]
    given.job.finished.ranks = tuple(
        SimpleNamespace(rank=rank, spec=spec, defect=defect_of(spec, rank), groups={"ep": group}) for rank in (0, 1)
    )

    assert experts.estimated_load_of_experts(given).verdict == verdict


def test_a_load_that_is_not_estimated_is_no_answer():
    spec = JobSpec(family="expert", dp=2, ep=2, dispatch="kernels")
    given = evidence(spec)
    given.job.finished.ranks = tuple(
        SimpleNamespace(rank=rank, spec=spec, defect=defect_of(spec, rank), groups=groups_of(spec)[rank])
        for rank in (0, 1)
    )

    assert experts.estimated_load_of_experts(given).verdict == "abstained"
