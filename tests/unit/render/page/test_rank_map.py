"""All ranks laid out by the mesh, with the groups and the numbers of each."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.render.page.jobs import job, report_of
from tracekit.explain.communication.collectives import lateness_by_step, times_of_groups
from tracekit.model.metadata import Mesh
from tracekit.model.run import Run
from tracekit.render.json_result import result_dict
from tracekit.render.page.chart_contract import RankMap
from tracekit.render.page.charts import rank_map


def map_of(run: Run) -> RankMap:
    return rank_map(run, result_dict(report_of(run)), lateness_by_step(times_of_groups(run)))


def first_ranks(run: Run, count: int) -> Run:
    """Return the run with only its first ranks there, and so without what was matched."""
    missing = tuple(range(count, len(run.ranks)))
    return replace(run, ranks=run.ranks[:count], clocks=run.clocks[:count], missing_ranks=missing, collectives=())


def with_mesh(run: Run, names: list[str], shape: list[int], coordinates: list[list[int]]) -> Run:
    meshes = [Mesh(names=names, shape=shape, coordinate=at) for at in coordinates]
    return replace(run, ranks=tuple(replace(s, mesh=m) for s, m in zip(run.ranks, meshes, strict=True)))


def test_data_parallelism_is_in_rows_stages_in_columns_and_the_rest_inside() -> None:
    cube = [[r // 4, r // 2 % 2, r % 2] for r in range(8)]
    layout = map_of(with_mesh(job(8), ["dp", "pp", "tp"], [2, 2, 2], cube))

    assert [(d["name"], d["size"], d["place"]) for d in layout["dimensions"]] == [
        ("dp", 2, "row"),
        ("pp", 2, "column"),
        ("tp", 2, "inside"),
    ]
    assert layout["source"] == "mesh"
    assert layout["coordinates"] == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1], [0, 1] * 4]


def test_missing_ranks_are_where_their_numbers_say() -> None:
    layout = map_of(first_ranks(job(8), 3))

    assert layout["ranks"] == list(range(8))
    assert layout["state"] == ["present"] * 3 + ["missing"] * 5
    assert layout["coordinates"] == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4]
    assert layout["host"] == [0, 0, 0, None, None, None, None, None]


def test_without_a_mesh_ranks_are_laid_out_by_hosts() -> None:
    layout = map_of(job(16, mesh=False))

    assert layout["source"] == "hosts"
    assert [(d["name"], d["size"]) for d in layout["dimensions"]] == [("host", 2), ("rank", 8)]
    assert layout["coordinates"] == [[0] * 8 + [1] * 8, list(range(8)) * 2]
    assert layout["hosts"] == ["node0", "node1"]


def test_numbers_are_those_of_the_result_a_step() -> None:
    run = job(8)
    result = result_dict(report_of(run))
    metrics = {metric["key"]: metric["values"] for metric in map_of(run)["metrics"]}

    assert metrics["step_ns"] == [round(row["step_ns"] / row["steps"]) for row in result["ranks"]]
    assert metrics["caused_delay_ns"] == [row["caused_delay_ns"] for row in result["stragglers"]["by_rank"]]
    assert metrics["slowdown"] == list(result["whatif"]["S_by_rank"].values())
    assert metrics["lateness_ns"][5] == 500_040
    assert "bubble_ratio" not in metrics  # no pipeline: unknown of every rank
