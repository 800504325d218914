"""Buckets inferred from the order and sizes of all-reduces, in traces without a bucket map."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import write_run
from tests.unit.explain.ddp import ddp_training as training
from tracekit.explain.ddp.buckets import Buckets, buckets
from tracekit.loading.load import load
from tracekit.model.table import records

LAYERS = (3, 3, 3, 1)


def buckets_of(
    folder: Path, layers: tuple[int, ...] = LAYERS, *, labels: bool = True, backward_passes: int = 1
) -> Buckets:
    traces = [training.rank(rank, layers, labels=labels, backward_passes=backward_passes) for rank in (0, 1)]
    return buckets(load(write_run(folder, traces)))


@pytest.mark.parametrize("layers", [LAYERS, (5, 5)], ids=["buckets of two sizes", "buckets of one size"])
@pytest.mark.parametrize("backward_passes", [1, 2])
def test_the_sizes_that_repeat_are_the_buckets(tmp_path: Path, layers: tuple[int, ...], backward_passes: int) -> None:
    result = buckets_of(tmp_path, layers, backward_passes=backward_passes)
    expected = [(i, count * training.LAYER_BYTES, None, True) for i, count in enumerate(layers)]
    rows = records(result.bucket_map)
    assert [(row["index"], row["size_bytes"], row["parameters"], row["inferred"]) for row in rows] == expected
    assert len(result.times) == 2 * 4 * backward_passes * len(layers)


def test_an_average_by_hand_is_not_ddp(tmp_path: Path) -> None:
    assert len(buckets_of(tmp_path, labels=False).bucket_map) == 0


def test_a_real_trace_of_ddp_on_a_gpu(real_traces: Path) -> None:
    """The gradients of ResNet-50 are 102 MB. The arguments of the reductions show their sizes."""
    result = buckets(load(real_traces / "single_rank" / "a100_ddp_rank0_of_2.json.gz"))
    rows = records(result.bucket_map)
    assert all(row["inferred"] for row in rows)
    assert sum(row["size_bytes"] for row in rows) == 4 * 25_557_032
    times = records(result.times)
    assert [(row["step"], row["index"]) for row in times] == [(step, index) for step in (4, 5, 6) for index in range(5)]
    for row in times:
        assert row["launch_ns"] <= row["start_ns"] < row["end_ns"]
        assert 0 <= row["added_ns"] <= row["uncovered_ns"] <= row["end_ns"] - row["start_ns"]
    assert result.whatif_unavailable is not None
    assert "not all ranks" in result.whatif_unavailable.reason
