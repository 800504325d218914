"""Training on two devices of one host over NCCL, or RCCL: what is communicated, and a slow rank."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording
from tests.integration.recorded import notes_of

pytestmark = pytest.mark.gpu(devices=2)

DELAY_MS = 20
# Nothing communicates by kernels of another library.
NCCL_KERNEL = re.compile(r"nccl|rccl", re.IGNORECASE)
NO_COMMUNICATION = {"compute", "copy", "unclassified", "unknown"}
SLOW_RANK = ("--slow-rank", "1", "--delay-ms", str(DELAY_MS))
# The probe, its options, its strategies, and the kinds of its communication.
PROBES = [
    ("fsdp", SLOW_RANK, ["fsdp2"], {"all_gather", "reduce_scatter"}),
    ("tensor", ("--manual", *SLOW_RANK), ["tp"], {"all_reduce", "all_gather"}),
    ("expert", ("--sleep-compute",), ["ep"], {"all_to_all", "all_reduce"}),
    ("context", ("--method", "gather", "--sleep-compute"), ["cp"], {"all_gather", "reduce_scatter", "all_reduce"}),
]


def test_the_slow_rank_of_ddp_is_named_and_the_other_waits_for_it(
    train: Callable[..., DeviceRecording], measured: Callable[..., None]
) -> None:
    recording = train("ddp", *SLOW_RANK, ranks=2)
    row = recording.require_whole()
    result = recording.result

    reductions = [row for row in result["communication"] if row["kind"] == "all_reduce"]
    stragglers = result["stragglers"]

    assert result["run"]["strategies"] == ["ddp"]
    assert result["run"]["ranks"] == [0, 1]
    assert {row["kind"] for row in result["communication"]} == {"all_reduce"}
    assert {row["rank"] for row in reductions} == {0, 1}
    assert len(result["buckets"]) == 2 * recording.steps * len(result["bucket_map"])
    assert {use.kind for use in recording.uses if NCCL_KERNEL.search(use.function)} == {"all_reduce"}
    assert (stragglers["rank"], stragglers["cause"]) == (1, "compute")
    found_ms = stragglers["caused_delay_ns"] / 1e6
    assert found_ms >= 0.5 * DELAY_MS
    assert notes_of(result, "unlinked") == []
    assert row["exposed_comm_ns"] > 0
    measured(planted_ms=DELAY_MS, found_ms=found_ms, exposed_ms=row["exposed_comm_ns"] / 1e6)


@pytest.mark.parametrize(
    ("probe", "options", "strategies", "kinds"), [pytest.param(*case, id=case[0]) for case in PROBES]
)
def test_communication_of_other_parallelisms_is_known_and_matched(
    probe: str,
    options: tuple[str, ...],
    strategies: list[str],
    kinds: set[str],
    train: Callable[..., DeviceRecording],
    measured: Callable[..., None],
) -> None:
    recording = train(probe, *options, ranks=2)
    row = recording.require_whole()
    result = recording.result

    assert result["run"]["strategies"] == strategies
    assert {row["kind"] for row in result["communication"]} == kinds
    assert {use.kind for use in recording.uses if NCCL_KERNEL.search(use.function)}.isdisjoint(NO_COMMUNICATION)
    assert notes_of(result, "unlinked") == []
    assert 0 < row["exposed_comm_ns"] <= row["comm_ns"]
    measured(comm_ms=row["comm_ns"] / 1e6, exposed_ms=row["exposed_comm_ns"] / 1e6)


def test_a_slow_stage_holds_up_the_pipeline(
    train: Callable[..., DeviceRecording], measured: Callable[..., None]
) -> None:
    recording = train("pipeline", "--sleep-compute", "--slow-stage", "1", ranks=2)
    recording.require_whole()
    result = recording.result

    (finding,) = [finding for finding in result["findings"] if finding["rank"] is not None]

    assert result["run"]["strategies"] == ["pp"]
    assert [edge["sends"] == edge["receives"] == edge["joined"] > 0 for edge in result["point_to_point"]] == [True] * 2
    assert (finding["rank"], finding["evidence"]["stage"]) == (1, 1)
    measured(times_of_other_stages=finding["evidence"]["factor"])
