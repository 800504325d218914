"""Which files are those that the probe wrote into the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.capture.output.paths import trace_folder
from tracekit.read.files.identify import is_of_probe


def write_trace(folder: Path) -> Path:
    """Write a trace and its manifest."""
    folder.mkdir(parents=True)
    (folder / "rank-000001.manifest.json").touch()
    (folder / "rank-000001.json.gz").touch()
    return folder / "rank-000001.json.gz"


@pytest.mark.parametrize("world_size", [2, 8192])
def test_a_trace_of_the_probe(world_size: int, tmp_path: Path) -> None:
    trace = write_trace(trace_folder(tmp_path, "20261124T092520Z-1cf84ab6", 3, 12, 1, world_size))
    assert is_of_probe(trace)
    trace.with_name("rank-000001.manifest.json").unlink()  # somebody's folder that has the same names
    assert not is_of_probe(trace)


@pytest.mark.parametrize(
    "folder",
    ["traces", "run-1/attempt-0", "run-1/attempt-0/step-12", "run-1/attempt-0/step-000000012/more"],
)
def test_other_folders(folder: str, tmp_path: Path) -> None:
    assert not is_of_probe(write_trace(tmp_path / folder))
