"""Tensor parallelism and ZeRO by hand, as documents write them: tests/data/README.md."""

from __future__ import annotations

import pytest

from tests.integration.recorded import result_of
from tests.places import DATA

KEPT = DATA / "seed" / "names"


def test_sequence_parallelism_by_hand_is_no_data_parallelism() -> None:
    """GIVEN rank 1 that computes 20 ms longer in each pass of two blocks."""
    result = result_of(KEPT / "sequence_slow1")
    first = result["findings"][0]

    assert result["run"]["strategies"] == ["sp", "tp"]
    assert [group["parallelism"] for group in result["groups"]] == ["tp"]
    assert (first["id"], first["rank"], first["cause"]) == ("straggler", 1, "compute")
    assert first["saving_ns"] == pytest.approx(80e6, rel=0.15)
    assert "gradients-by-hand" not in {finding["id"] for finding in result["findings"]}


def test_one_gather_of_columns_is_tensor_parallel() -> None:
    assert result_of(KEPT / "columns")["run"]["strategies"] == ["tp"]


def test_the_profiler_alone_shows_zero_by_reduce_and_broadcast() -> None:
    result = result_of(KEPT / "zero1_plain")

    assert result["run"]["strategies"] == ["zero1"]
    assert "gradients-by-hand" not in {finding["id"] for finding in result["findings"]}
