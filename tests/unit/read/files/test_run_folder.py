"""Which paths are those that the probe gives to traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.capture.output.places import trace_folder
from tracekit.read.files.run_folder import is_in_run_folder
from tracekit.read.files.storage import RemotePath


@pytest.mark.parametrize("world_size", [2, 8192])
def test_a_folder_of_the_probe(world_size: int) -> None:
    folder = trace_folder(Path("runs"), "20261124T092520Z-1cf84ab6", 3, 12, 1, world_size)
    assert is_in_run_folder(folder / "rank-000001.json.gz")
    assert is_in_run_folder(RemotePath(f"s3://bucket/{folder}/rank-000001.json.gz"))


@pytest.mark.parametrize(
    "path",
    ["traces/rank-000001.json.gz", "run-1/attempt-0/rank-000001.json.gz", "run-1/attempt-0/step-12/rank-000001.json",
     "run-1/attempt-0/step-000000012/more/rank-000001.json"],
)  # fmt: skip
def test_other_folders(path: str) -> None:
    assert not is_in_run_folder(Path(path))
