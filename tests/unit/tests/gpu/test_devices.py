"""Which devices there are for `make gpu`, and what is said where there are too few."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components import require_module
from tests.gpu.devices import count_devices, driver_version, why_skipped
from tests.gpu.report import FOLDER
from tests.places import ROOT

NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
NVIDIA_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder@U22)\n"


@pytest.mark.parametrize(
    ("needed", "present", "why"),
    [
        (1, 0, "no CUDA device"),
        (2, 0, "no CUDA device"),
        (2, 1, "needs two devices"),
        (3, 2, "needs 3 devices"),
        (1, 1, None),
        (2, 8, None),
    ],
)
def test_why_a_test_is_skipped(needed: int, present: int, why: str | None) -> None:
    assert why_skipped(needed, present) == why


@pytest.mark.parametrize(
    ("text", "version"),
    [(NVIDIA, "550.54.15"), (NVIDIA_OPEN, "570.124.06"), ("6.10.5\n", "6.10.5"), ("none\n", "unknown")],
)
def test_the_version_of_the_driver(text: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "version").write_text(text)

    assert driver_version((tmp_path / "missing", tmp_path / "version")) == version


@pytest.mark.parametrize(("available", "count"), [(True, 2), (False, 0)])
def test_devices_count_where_they_can_be_used(available: bool, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = require_module("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert count_devices() == count


def test_without_a_device_every_test_is_skipped_with_the_reason_and_the_report_stays() -> None:
    """The command is that of `make gpu`."""
    before = {file: file.read_text() for file in FOLDER.iterdir()}
    command = ["-m", "pytest", "-n", "0", "-m", "gpu", "-p", "tests.gpu.report", "tests/gpu", "-p", "no:cacheprovider"]
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}

    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | hidden, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    number = summary.partition("[")[2].partition("]")[0]
    assert summary.endswith(": no CUDA device")
    assert f"{number} skipped in" in done.stdout
    assert {file: file.read_text() for file in FOLDER.iterdir()} == before
