"""Data-parallel training over NCCL, or RCCL, with a slow rank: two devices on one host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording
from tests.integration.recorded import notes_of

pytestmark = pytest.mark.gpu(devices=2)

DELAY_MS = 20


def test_the_slow_rank_of_ddp_is_named_and_the_other_waits_for_it(
    train: Callable[..., DeviceRecording], measured: Callable[..., None]
) -> None:
    recording = train("ddp", "--slow-rank", "1", "--delay-ms", str(DELAY_MS), ranks=2)
    row = recording.require_whole()
    result = recording.result

    reductions = [row for row in result["communication"] if row["kind"] == "all_reduce"]
    stragglers = result["stragglers"]

    assert result["run"]["strategies"] == ["ddp"]
    assert result["run"]["ranks"] == [0, 1]
    assert {row["kind"] for row in result["communication"]} == {"all_reduce"}
    assert {row["rank"] for row in reductions} == {0, 1}
    assert len(result["buckets"]) == 2 * recording.steps * len(result["bucket_map"])
    assert {use.kind for use in recording.uses if "nccl" in use.function.lower()} == {"all_reduce"}
    assert (stragglers["rank"], stragglers["cause"]) == (1, "compute")
    found_ms = stragglers["caused_delay_ns"] / 1e6
    assert found_ms >= 0.5 * DELAY_MS
    assert notes_of(result, "unlinked") == []
    assert row["exposed_comm_ns"] > 0
    measured(planted_ms=DELAY_MS, found_ms=found_ms, exposed_ms=row["exposed_comm_ns"] / 1e6)
