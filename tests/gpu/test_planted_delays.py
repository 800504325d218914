"""What probes plant on one GPU, found again: compute as kernels, a late host as idle time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.recordings import DeviceRecording

pytestmark = pytest.mark.gpu

STRAGGLER = ("--rank", "0", "--recorded", "4", "--delay-ms", "20")
SLOW_RANK = ("--slow-rank", "0", "--delay-ms", "20")
# The probe, its options, and the milliseconds of compute that it plants in a step.
COMPUTE = [
    ("ddp", SLOW_RANK, 20),
    ("fsdp", SLOW_RANK, 20),
    ("tensor", SLOW_RANK, 20),
    ("straggler", (*STRAGGLER, "--cause", "compute"), 20),
    ("straggler", (*STRAGGLER, "--cause", "more_work"), 20),
    ("manual_data_parallel", ("--sleep-compute",), 12 * 3 * 2),
    ("context", ("--method", "ulysses", "--sleep-compute"), 3 * 3),
    ("ring_attention", ("--sleep-compute",), 3 * 3),
    ("ddp_settings", ("--sleep-compute",), 2 * 3 * 4),
    ("expert", ("--sleep-compute",), 240 * 3 * 0.02),
    ("phases", ("--sleep-compute",), 3 * (3 * 4 + 2) * 2),
    ("pipeline", ("--schedule", "gpipe", "--sleep-compute"), 8 * 3 * 8),
]
# The rate of the clock was measured as the probe began. A GPU may change it later.
CLOCK_CHANGES = 0.2


@pytest.mark.parametrize(
    ("probe", "options", "planted_ms"), [pytest.param(*case, id=f"{case[0]}-{case[1][-1]}") for case in COMPUTE]
)
def test_planted_compute_is_found_on_one_gpu(
    probe: str,
    options: tuple[str, ...],
    planted_ms: float,
    train: Callable[..., DeviceRecording],
    measured: Callable[..., None],
) -> None:
    """THEN the step computes for as long as its spinning kernels take, which is what was planted."""
    recording = train(probe, *options)
    row = recording.require_whole()

    spun_ms = sum(spin.duration_ns for spin in recording.spins) / 1e6 / recording.steps

    assert spun_ms == pytest.approx(planted_ms, rel=CLOCK_CHANGES)
    assert row["compute_ns"] / 1e6 / recording.steps >= spun_ms
    assert {use.kind for use in recording.uses if "spin_kernel" in use.function} == {"compute"}
    measured(planted_ms=planted_ms, found_ms=spun_ms)


@pytest.mark.parametrize(("cause", "counts_as"), [("host", "host_bound"), ("data", "data")])
def test_a_late_host_is_idle_time_of_one_gpu(
    cause: str, counts_as: str, train: Callable[..., DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN a host that sleeps 20 ms a step THEN most of that is idle time of that cause: little was queued before."""
    recording = train("straggler", *STRAGGLER, "--cause", cause)
    recording.require_whole()

    idle_ms = recording.idle_ns()[counts_as] / 1e6 / recording.steps

    assert recording.spins == []
    assert idle_ms >= 0.8 * 20
    measured(planted_ms=20, found_ms=idle_ms)
