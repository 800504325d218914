"""Tests that need a GPU: skipped where there is none."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.devices import count_devices
from tests.gpu.recordings import DeviceRecording
from tests.places import PROBES, ROOT

WORKLOADS = Path(__file__).with_name("workloads.py")
TIMEOUT_S = 300

devices = functools.cache(count_devices)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let libraries of devices warn: of what, differs by their version."""
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("gpu")
    assert marker is not None, f"{item.nodeid} is no test of `make gpu`: mark it gpu"
    if not devices():
        pytest.skip("no CUDA device")


def run(command: list[str]) -> str:
    """Run Python with these arguments on the devices, and return what it printed. A failure fails the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEKIT")}
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = kept | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def record(tmp_path: Path) -> Callable[[str], DeviceRecording]:
    """`record(workload)`: run a workload of workloads.py in a process of its own.

    A fault of one on the device ends that process, and disturbs no other test.
    """

    def record_workload(workload: str) -> DeviceRecording:
        facts = json.loads(run([str(WORKLOADS), workload, str(tmp_path / "run")]).splitlines()[-1])
        return DeviceRecording(tmp_path / "run", facts)

    return record_workload


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., DeviceRecording]:
    """`train(probe, *arguments, ranks=1)`: run a probe, each rank on a device of its own if there are as many."""

    def train_probe(probe: str, *arguments: str, ranks: int = 1) -> DeviceRecording:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        script = [str(PROBES / f"{probe}.py"), *arguments, "--device", "shared", "--out", str(tmp_path / "run")]
        printed = run([*launcher, *script])
        assert "Training on cuda" in printed
        return DeviceRecording(tmp_path / "run", {})

    return train_probe


@pytest.fixture
def measured(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """`measured(name=figure)`: keep what was measured for the report of `make gpu`."""

    def keep(**figures: float) -> None:
        for name, figure in figures.items():
            record_property(name, figure)

    return keep
