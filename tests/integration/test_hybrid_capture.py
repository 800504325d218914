"""Meshes of two and three dimensions, with and without names: coordinates, groups and strategies of every rank."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, result_of
from tests.perfetto.merged import (
    assert_arrows_are_whole,
    assert_totals_are_the_reports,
    assert_views_are_the_reports,
    input_slices,
    merged,
    shown_slices,
)
from tests.places import PROBES
from tracekit.loading.load import load
from tracekit.trace_processor import TraceProcessor

HYBRID = PROBES / "hybrid.py"
ON_CPU = ("--device", "cpu", "--sleep-compute")


def groups_along(shape: tuple[int, ...], dimension: int) -> list[list[int]]:
    """Return the ranks of each group along a dimension of a mesh whose last dimension varies fastest."""
    places = list(itertools.product(*(range(size) for size in shape)))
    across = sorted({place[:dimension] + place[dimension + 1 :] for place in places})
    return [
        [rank for rank, place in enumerate(places) if place[:dimension] + place[dimension + 1 :] == rest]
        for rest in across
    ]


def check(result: dict[str, Any], names: list[str]) -> None:
    """Check what the result must show of a mesh with two ranks a dimension."""
    shape = (2,) * len(names)
    coordinates = [list(place) for place in itertools.product((0, 1), repeat=len(names))]
    assert result["run"]["mesh"] == {"names": names, "shape": list(shape), "coordinates": coordinates}
    found = [(group["parallelism"], group["ranks"]) for group in result["groups"] if group["ranks"] != "world"]
    expected = [(name, ranks) for i, name in enumerate(names) for ranks in groups_along(shape, i)]
    assert sorted(found) == sorted(expected)
    assert [join["collectives"] - join["joined"] for join in result["joins"]] == [0] * 2 ** len(names)
    layers = 2 if "pp" in names else 4
    half = 2 * (8 * 16) * 32 * (128 // 2)  # of a linear layer: 8 samples of 16 places, on one of two ranks of tp
    for row in result["roofline"]["by_rank"]:
        assert (row["flops"], row["recomputed_flops"]) == (row["steps"] * layers * 2 * 3 * half, 0)
    for rank in result["ranks"]:
        own = [row for row in result["dimensions"] if row["rank"] == rank["rank"]]
        assert {(row["dimension"], row["group_size"], row["hosts"], row["inferred"]) for row in own} == {
            (name, 2, 1, False) for name in names
        }
        assert sum(row["exposed_ns"] for row in own) == rank["exposed_comm_ns"]
        members = {row["dimension"]: [result["groups"][group]["ranks"] for group in row["groups"]] for row in own}
        assert members == {
            name: [ranks for ranks in groups_along(shape, i) if rank["rank"] in ranks] for i, name in enumerate(names)
        }


@pytest.mark.parametrize(
    ("options", "data_parallel"), [((), "fsdp2"), (("--ddp", "--unnamed"), "ddp")], ids=["named", "unnamed"]
)
def test_data_and_tensor_parallel(
    torchrun: Launch, tmp_path: Path, options: tuple[str, ...], data_parallel: str
) -> None:
    torchrun(HYBRID, *options, *ON_CPU, "--out", tmp_path, ranks=4)

    result = result_of(tmp_path)
    assert result["run"]["strategies"] == [data_parallel, "tp"]
    check(result, ["dp", "tp"])
    layers = {(row["module"], row["phase"]) for row in result["tensor"] if row["rank"] == 3}
    assert layers == {(f"{i}.down", "forward") for i in range(4)} | {(f"{i}.up", "backward") for i in range(4)}


@pytest.mark.alone  # which rank is named depends on how long each of them computes
def test_data_pipeline_and_tensor_parallel(
    torchrun: Launch, trace_processor: TraceProcessor, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    delay = ("--slow-rank", "5", "--delay-ms", "30")  # a block: 0.7 s a step in all
    torchrun(HYBRID, "--unnamed", *ON_CPU, *delay, "--out", tmp_path, ranks=8)

    result = result_of(tmp_path)
    assert result["run"]["strategies"] == ["fsdp2", "pp", "tp"]
    check(result, ["dp", "pp", "tp"])
    for rank in range(8):  # two of the four layers are on each stage; four microbatches, two steps
        counts = {row["module"]: row["count"] for row in result["tensor"] if row["rank"] == rank}
        stage = result["run"]["mesh"]["coordinates"][rank][1]
        assert counts == {f"{2 * stage + i}.{layer}": 8 for i in range(2) for layer in ("up", "down")}
    slowest = max(result["stragglers"]["by_rank"], key=lambda row: row["caused_delay_ns"])
    assert (slowest["rank"], slowest["cause"]) == (5, "compute")  # and not the ranks that wait for it

    run = load(tmp_path)
    merged(trace_processor, run, tmp_path_factory.mktemp("merged"))
    assert shown_slices(trace_processor) == input_slices(tmp_path)
    assert_totals_are_the_reports(trace_processor, run)
    assert_views_are_the_reports(trace_processor, run)
    assert_arrows_are_whole(trace_processor, run)
    pages = trace_processor.query("select name from tracekit_ranks order by rank")
    coordinates = result["run"]["mesh"]["coordinates"]
    assert [row["name"].split(" · ")[-1] for row in pages] == [f"dp{dp} pp{pp} tp{tp}" for dp, pp, tp in coordinates]
