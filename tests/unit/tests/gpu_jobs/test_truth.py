"""What is known of whole jobs: sums, bubbles, savings."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.gpu_jobs import CAUSES, Defect, Family, JobSpec, simulate, spec_of
from tests.gpu_jobs.cluster import TRAINING_LOOPS, run_job
from tests.gpu_jobs.rank import Rank
from tests.gpu_jobs.strategies.expert import tokens_of
from tests.gpu_jobs.strategies.model import Loop

IDEAL = {"launch_us": 0.0, "message_us": 0.0, "optimizer_us": 0.0}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 2), (4, 8), (3, 7)])
def test_the_bubble_of_even_stages_without_latency_is_the_ideal_one(schedule, stages, microbatches, batched) -> None:
    spec = JobSpec(
        family="pipeline",
        pp=stages,
        layers=stages,
        microbatches=microbatches,
        schedule=schedule,
        batched_messages=batched,
        **IDEAL,
    )

    truth = simulate(spec).truth

    assert truth.bubble_ratio == pytest.approx((stages - 1) / (microbatches + stages - 1))
    assert len(truth.actions) == stages * microbatches * 2 * spec.steps


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 6), (4, 8)])
def test_the_bubble_of_interleaved_stages_is_smaller(stages, microbatches, batched) -> None:
    spec = JobSpec(
        family="pipeline",
        pp=stages,
        layers=2 * stages,
        microbatches=microbatches,
        schedule="interleaved",
        virtual_stages=2,
        batched_messages=batched,
        **IDEAL,
    )

    assert simulate(spec).truth.bubble_ratio == pytest.approx((stages - 1) / (2 * microbatches + stages - 1))


def test_ranks_that_wait_for_each_other_are_an_error() -> None:
    """GIVEN two ranks that both send before they receive, on the stream of their pair."""

    def train(rank: Rank) -> Loop:
        peer = 1 - rank.rank
        rank.send(rank.groups["pp"], peer, 10)
        rank.recv(rank.groups["pp"], peer, 10)
        yield rank.synchronize()

    with pytest.raises(RuntimeError, match="wait for each other"):
        simulate(JobSpec(family="pipeline", pp=2), train)


@pytest.mark.parametrize("family", TRAINING_LOOPS)
def test_the_parts_of_a_step_add_up(family: Family) -> None:
    for step in simulate(spec_of(family, 1)).truth.steps:
        parts_ns = step.compute_ns + step.exposed_comm_ns + step.exposed_copy_ns + step.idle_ns
        assert parts_ns == step.end_ns - step.start_ns
        assert step.exposed_comm_ns + step.overlapped_comm_ns == step.comm_ns


@pytest.mark.parametrize("family", TRAINING_LOOPS)
def test_without_a_defect_there_is_nothing_to_save(family: Family) -> None:
    truth = simulate(spec_of(family, 2)).truth

    assert truth.counterfactual_step_ns == truth.mean_step_ns > 0
    assert truth.defect is None


@pytest.mark.parametrize(
    ("family", "cause"), [(family, cause) for family in TRAINING_LOOPS for cause in CAUSES[family]]
)
def test_every_defect_costs_time_and_its_counterfactual_is_the_healthy_job(family, cause) -> None:
    spec = replace(spec_of(family, 3, cause=cause), steps=3)

    truth = simulate(spec).truth

    assert truth.saving_ns > 0.01 * truth.mean_step_ns
    assert truth.counterfactual_step_ns == simulate(replace(spec, defect=None)).truth.mean_step_ns


def test_a_slow_rank_of_tensor_parallel_comes_last_and_costs_its_delay() -> None:
    defect = Defect(cause="compute", ranks=(2,), delay_us=1000)
    spec = JobSpec(family="tensor", tp=2, dp=2, layers=4, layer_us=500, defect=defect)

    truth = simulate(spec).truth

    exchanges = [operation for operation in truth.operations if operation.members == (2, 3)]
    assert {operation.last_arriver for operation in exchanges} == {2}
    assert truth.saving_ns == pytest.approx(1_000_000, rel=0.02)


def test_equal_specifications_give_equal_jobs() -> None:
    spec = spec_of("hybrid", 4, cause="slow_edge")

    assert simulate(spec).truth == simulate(spec).truth
    assert spec == spec_of("hybrid", 4, cause="slow_edge")


def test_tokens_that_a_rank_sends_are_those_that_others_receive() -> None:
    spec = JobSpec(family="expert", dp=4, ep=4, layers=2, jitter=0.1)
    ranks = run_job(spec).ranks

    tables = [tokens_of(rank, 3, 0) for rank in ranks]

    for source, table in enumerate(tables):
        for destination, other in enumerate(tables):
            assert table.sent[destination] == other.received[source]
    assert sum(table.load for table in tables) == pytest.approx(4, rel=0.1)


def test_the_rank_of_a_hot_expert_computes_longer_and_comes_last_to_combine() -> None:
    defect = Defect(cause="hot_expert", ranks=(2,), delay_us=1000)
    spec = JobSpec(family="expert", dp=4, ep=4, layers=2, layer_us=800, defect=defect, launch_us=1)

    truth = simulate(spec).truth

    exchanges = [operation for operation in truth.operations if operation.kind == "all_to_all"]
    assert {operation.last_arriver for operation in exchanges[1::4]} == {2}  # dispatch, combine, then their gradients
    compute_ms = [truth.of_rank(rank)[1].compute_ns / 1e6 for rank in range(4)]
    assert compute_ms[2] - 1.0 == pytest.approx(compute_ms[0] + 1.0 / 3, rel=0.01)  # others lack those tokens
    assert truth.saving_ns > 1_000_000


def test_gathers_ahead_hide_what_gathers_on_demand_expose() -> None:
    on_demand = JobSpec(family="fsdp", dp=2, layers=6, layer_us=500, exchange_us=300, prefetch=0)

    exposed_ms = {
        prefetch: simulate(replace(on_demand, prefetch=prefetch)).truth.of_rank(0)[2].exposed_comm_ns / 1e6
        for prefetch in (0, 1, None)
    }

    assert exposed_ms[0] > 12 * 0.3  # a gather for each layer, forward and backward
    assert exposed_ms[1] < 4 * 0.3  # the first ones, and the last reduction
    assert exposed_ms[None] < 4 * 0.3


def test_kernels_of_a_communicator_run_one_after_the_other() -> None:
    """FSDP gathers and reduces on two streams, but over one communicator."""
    spec = JobSpec(family="fsdp", dp=2, layers=6, exchange_us=400, blocking_on_compute_stream=True)

    kernels = [kernel for kernel in run_job(spec).kernels_of[0] if kernel.activity == "comm"]

    assert len({kernel.stream.number for kernel in kernels}) == 2
    assert all(before.end_ns < after.start_ns for before, after in pairwise(kernels))


def test_an_uneven_stage_is_one_of_the_stages_of_its_rank() -> None:
    """Stage 3 is the second one of rank 1, which computes 300 us longer for each of two microbatches."""
    defect = Defect(cause="uneven_stage", ranks=(1,), stage=3, delay_us=600.0)
    spec = JobSpec(
        family="pipeline",
        pp=2,
        layers=4,
        layer_us=100.0,
        microbatches=2,
        schedule="interleaved",
        virtual_stages=2,
        defect=defect,
        **IDEAL,
    )

    forwards = {(a.stage, a.end_ns - a.start_ns) for a in simulate(spec).truth.actions if a.kind == "F" and a.rank == 1}

    assert forwards == {(1, 100_000), (3, 200_000)}


def test_the_buckets_of_ddp_differ_in_size_so_that_each_is_seen_once_a_step() -> None:
    spec = JobSpec(family="ddp", dp=2, layers=4, buckets=4, gradient_us=1000.0, steps=2)

    sizes = [operation.size_bytes for operation in simulate(spec).truth.operations]

    assert sizes[:4] == sizes[4:]
    assert sizes[0] < sizes[1] == sizes[2] < sizes[3]
    assert sum(sizes[:4]) == pytest.approx(1000 * 50_000, rel=1e-4)  # microseconds at 50 GB/s
