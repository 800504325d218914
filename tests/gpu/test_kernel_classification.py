"""What runs on a device is compute, a copy or communication, and nothing is left over or lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest

from tests.gpu.recordings import SPIN, DeviceRecording

pytestmark = pytest.mark.gpu


def test_kernels_compute_and_transfers_are_copies(
    record: Callable[[str], DeviceRecording], measured: Callable[..., None]
) -> None:
    """GIVEN kernels and transfers of one device THEN each has its class, and none communicates."""
    recording = record("classification")
    row = recording.require_whole()

    by_kind = {
        kind: list(uses)
        for kind, uses in groupby(sorted(recording.uses, key=lambda use: use.kind), lambda use: use.kind)
    }
    transfers = [use for use in by_kind["copy"] if "memset" not in use.function.lower()]
    (spin,) = [use for use in by_kind["compute"] if SPIN in use.function]

    assert set(by_kind) == {"compute", "copy"}
    copies, expected_copies = sum(use.count for use in transfers), recording.steps * recording.facts["copies_of_step"]
    assert copies == expected_copies or (recording.facts["copies_may_be_kernels"] and copies < expected_copies)
    assert spin.count == recording.steps
    kernels = sum(use.count for use in by_kind["compute"])
    assert kernels == len(recording.kernels) >= recording.steps * recording.facts["least_kernels_of_step"]
    assert row["comm_ns"] == 0
    assert row["compute_ns"] >= spin.total_ns
    measured(kernels=kernels, compute_share=row["compute_ns"] / row["step_ns"])
