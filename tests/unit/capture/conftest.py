"""Fixtures for recordings of one process."""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.output import paths
from tracekit.capture.probe_object import _started_probes


@pytest.fixture
def torch() -> Any:
    return require_module("torch")


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """Hide the objects of other tests, which the capture would search again and again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    """The disk budget of the process is unused: probes of other tests do not count."""
    paths.reset_written()


@pytest.fixture(autouse=True)
def nothing_recorded() -> Iterator[None]:
    """Windows that a test leaves open end, as they would at the exit of the process."""
    yield
    for started in list(_started_probes):
        started.finish()


class Runs:
    """The files that probes wrote below a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wait(self) -> None:
        """Return when the probes of this process have written what they have exported."""
        for started in list(_started_probes):
            started._windows._writer.finish()

    def traces(self) -> list[dict[str, Any]]:
        """Return the traces, in order of their first step."""
        self.wait()
        found = [json.loads(gzip.decompress(file.read_bytes())) for file in self.path.rglob("rank-*.json.gz")]
        return sorted(found, key=lambda trace: trace["tracekit"]["steps"][0]["step"])

    def steps(self) -> list[list[int]]:
        """Return the numbers of the recorded steps, one list for each trace."""
        return [[step["step"] for step in trace["tracekit"]["steps"]] for trace in self.traces()]

    def files(self) -> list[Path]:
        self.wait()
        return [file for file in self.path.rglob("*") if file.is_file()]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "runs")


@pytest.fixture
def work(torch: Any) -> Callable[[], float]:
    def add() -> float:
        return float(torch.ones(4).sum())

    return add
