"""Results over ranks: the planted straggler is found, and nothing irrelevant changes the result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_jobs import Cause, Defect, JobSpec, SimulatedJob, simulate
from benchmarks.gpu_jobs.groups import Group
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.strategies.model import Loop, steps
from tracekit.loading.load import load
from tracekit.model.table import records
from tracekit.render.json_result import result_dict
from tracekit.report.report import Report, analyze

ACROSS = ("collectives", "stragglers", "critical_path", "whatif", "clock", "findings")


def across(folder: Path, jobs: int = 1) -> str:
    """Return the parts of the result that compare ranks, as text."""
    result = result_dict(analyze(load(folder, jobs=jobs)))
    return json.dumps({part: result[part] for part in ACROSS}, sort_keys=True)


def named(report: Report) -> tuple[int, ...]:
    """Return the blamed rank, or the two of the blamed link."""
    assert report.stragglers is not None
    verdict = report.stragglers.verdict
    if verdict.link is not None:
        return verdict.link.ranks
    return () if verdict.rank is None else (verdict.rank,)


PAIRS_AND_REPLICAS = JobSpec(family="tensor", tp=2, dp=4, gradient_us=600, buckets=1, jitter=0.03, steps=8)


def planted(cause: Cause | None, *, rank: int = 2, seed: int = 0) -> SimulatedJob:
    """Return eight ranks, tensor parallel in pairs. A rank, or the link of its pair, is slower by 1.5 ms a step."""
    spec = replace(PAIRS_AND_REPLICAS, seed=seed)
    if cause is None:
        return simulate(spec)
    ranks = (rank // 2 * 2, rank // 2 * 2 + 1) if cause == "link" else (rank,)
    return simulate(replace(spec, defect=Defect(cause=cause, ranks=ranks, delay_us=1500)))


def test_ranks_delayed_by_another_rank_are_not_blamed() -> None:
    """GIVEN reductions within each host and then across, both under backward, and a slow rank 5.

    The other ranks of its host arrive late at the second reduction, because the first one delayed them.
    """

    def train(rank: Rank) -> Loop:
        first = rank.rank // 4 * 4
        within = Group("dp_shard", f"within {first}", tuple(range(first, first + 4)))
        across = Group("dp_replicate", f"across {rank.rank % 4}", (rank.rank % 4, rank.rank % 4 + 4))
        for _ in steps(rank):
            for _layer in range(4):
                rank.compute("gemm", 2300 if rank.rank == 5 else 2000)
                reduced = rank.collective(within, "all_reduce", 150)
                with rank.on_stream(rank.stream_of("replicate")):
                    rank.wait(reduced)
                    rank.collective(across, "all_reduce", 150)
            yield rank.synchronize()

    report = simulate(JobSpec(family="ddp", dp=8, steps=6), train).report()
    assert report.stragglers is not None
    assert report.stragglers.verdict.rank == 5
    caused = {row["rank"]: row["caused_delay_ns"] for row in records(report.stragglers.by_rank)}
    assert caused.pop(5) == pytest.approx(4 * 300_000, rel=0.1)
    assert max(caused.values()) < 50_000


def test_identical_ranks_are_not_blamed(tmp_path: Path) -> None:
    text = planted("compute").traces()[6].decode()
    for rank in range(8):
        (tmp_path / f"rank{rank}.json").write_text(text.replace('"rank":6,', f'"rank":{rank},'))
    report = analyze(load(tmp_path))
    assert len(report.run.ranks) == 8
    assert named(report) == ()


def test_file_names_file_order_and_workers_do_not_matter(tmp_path: Path) -> None:
    planted("compute").write(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for number, file in enumerate(sorted((tmp_path / "a").iterdir(), reverse=True)):
        shutil.copy(file, tmp_path / "b" / f"{number}.json.gz")
    plain = across(tmp_path / "a")
    assert across(tmp_path / "b") == plain
    assert across(tmp_path / "a", jobs=3) == plain


@pytest.mark.parametrize("cause", ["link"])
def test_renumbered_ranks_get_the_same_results(tmp_path: Path, cause: Cause) -> None:
    """GIVEN ranks of one machine, whose clocks need not be fitted: fitted ones are not equal to the last bit."""
    defect = Defect(cause=cause, ranks=(2, 3) if cause == "link" else (2,), delay_us=1500)
    job = simulate(replace(PAIRS_AND_REPLICAS, ranks_per_host=8, defect=defect))
    labels = (5, 2, 7, 0, 3, 6, 1, 4)
    renumbered = analyze(load(job.write(tmp_path, numbers=labels)))
    assert _by_place(renumbered, labels) == _by_place(job.report(), range(8))


def _by_place(report: Report, labels: Sequence[int]) -> str:
    """Return the result of each rank, with its place in `labels` as the rank."""
    assert report.stragglers is not None
    place = {label: i for i, label in enumerate(labels)}
    groups = [str(sorted(place[rank] for rank in group.ranks)) for group in report.run.groups]

    def relabel(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: relabel(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return sorted((relabel(item, f"{key}[]") for item in value), key=json.dumps)
        if key == "group":
            return groups[value]
        return place[value] if key in ("rank", "worst_rank", "ranks[]") and value is not None else value

    result = result_dict(report)
    result["stragglers"].pop("text")
    for row in result["critical_path"]:
        row.pop("name")  # it contains the group's ranks
    for link in result["stragglers"]["links"]:
        assert sorted((link.pop("from"), link.pop("to"))) == sorted(link["ranks"])
    parts = {part: relabel(result[part]) for part in ("stragglers", "critical_path", "collectives")}
    parts["whatif"] = {key: value for key, value in result["whatif"].items() if isinstance(value, int | float)}
    assert records(report.stragglers.by_rank)
    return json.dumps(parts, sort_keys=True)
