"""Results over ranks, from files: the planted straggler is found, and nothing irrelevant changes the result."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.planted import RANKS, Planted, plant
from tests.simulated_gpus import GpuCluster
from tracekit.analysis.load import load
from tracekit.analysis.report import Report, analyze
from tracekit.analysis.table import records
from tracekit.model.spans import DATA_SPAN
from tracekit.render.json_result import result_dict

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


@pytest.mark.parametrize("cause", ["compute", "host", "link"])
@pytest.mark.parametrize("seed", [0, 3, 8])
def test_the_planted_rank_and_cause_are_reported(tmp_path: Path, cause: Any, seed: int) -> None:
    planted = plant(tmp_path, cause, seed)
    report = analyze(load(tmp_path))
    assert report.stragglers is not None
    verdict = report.stragglers.verdict
    assert planted.rank in named(report)
    assert verdict.cause == cause
    assert verdict.caused_delay_ns == pytest.approx(planted.delay_us * 1000, rel=0.2)


@pytest.mark.parametrize("seed", [0, 3, 8])
def test_without_planted_delay_no_rank_is_blamed(tmp_path: Path, seed: int) -> None:
    plant(tmp_path, "none", seed)
    assert named(analyze(load(tmp_path))) == ()


def test_loading_hidden_by_compute_is_not_the_cause(tmp_path: Path) -> None:
    """GIVEN a rank whose kernels take longer, and whose host loads data while they run."""
    cluster = GpuCluster(4)
    for _ in cluster.steps(6):
        for rank in range(4):
            for _ in range(10):
                cluster.compute(rank, 1200 if rank == 1 else 1000)
        gpu = cluster.gpus[1]
        gpu.trace.label(DATA_SPAN, gpu.host_us, 8000)
        gpu.host_us += 8000
        cluster.collective(range(4), 100)
    report = analyze(load(cluster.write(tmp_path)))
    assert report.stragglers is not None
    assert (report.stragglers.verdict.rank, report.stragglers.verdict.cause) == (1, "compute")
    assert report.critical_path is not None
    kinds = {row["kind"]: row["share"] for row in records(report.critical_path.parts)}
    assert kinds["compute"] > 0.95
    assert kinds.get("data", 0.0) < 0.01


def test_ranks_delayed_by_another_rank_are_not_blamed(tmp_path: Path) -> None:
    """GIVEN reductions within each host and then across, both under backward, and a slow rank 5.

    The other ranks of its host arrive late at the second reduction, because the first one delayed them.
    """
    cluster = GpuCluster(8)
    for _ in cluster.steps(6):
        for _ in range(4):
            for rank in range(8):
                cluster.compute(rank, 2300 if rank == 5 else 2000)
            for host in ((0, 1, 2, 3), (4, 5, 6, 7)):
                cluster.collective_on_stream(host, 150, stream=20)
            for rank in range(4):
                cluster.collective_on_stream((rank, rank + 4), 150, stream=21, after=20)
    report = analyze(load(cluster.write(tmp_path, measured=True)))
    assert report.stragglers is not None
    assert report.stragglers.verdict.rank == 5
    caused = {row["rank"]: row["caused_delay_ns"] for row in records(report.stragglers.by_rank)}
    assert caused.pop(5) == pytest.approx(4 * 300_000, rel=0.1)
    assert max(caused.values()) < 50_000


def test_identical_ranks_are_not_blamed(tmp_path: Path) -> None:
    plant(tmp_path / "run", "compute", 0)
    for rank in range(RANKS):
        text = _text(tmp_path / "run" / "rank6.json.gz").replace('"rank": 6,', f'"rank": {rank},')
        (tmp_path / f"rank{rank}.json").write_text(text)
    shutil.rmtree(tmp_path / "run")
    report = analyze(load(tmp_path))
    assert len(report.run.ranks) == RANKS
    assert named(report) == ()


def test_file_names_file_order_and_workers_do_not_matter(tmp_path: Path) -> None:
    plant(tmp_path / "a", "compute", 3)
    (tmp_path / "b").mkdir()
    for number, file in enumerate(sorted((tmp_path / "a").iterdir(), reverse=True)):
        shutil.copy(file, tmp_path / "b" / f"{number}.json.gz")
    plain = across(tmp_path / "a")
    assert across(tmp_path / "b") == plain
    assert across(tmp_path / "a", jobs=3) == plain


@pytest.mark.parametrize("cause", ["host", "link"])
def test_renumbered_ranks_get_the_same_results(tmp_path: Path, cause: Any) -> None:
    """With measured clocks: fitted ones are equal within their error, not to the last bit."""
    labels = (5, 2, 7, 0, 3, 6, 1, 4)
    plain = _by_place(plant(tmp_path / "a", cause, 3, measured=True), range(RANKS))
    relabelled = _by_place(plant(tmp_path / "b", cause, 3, measured=True, labels=labels), labels)
    assert relabelled == plain


def _by_place(planted: Planted, labels: Sequence[int]) -> str:
    """Return the result of each rank, with its place in `labels` as the rank."""
    report = analyze(load(planted.folder))
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


def _text(trace: Path) -> str:
    return gzip.decompress(trace.read_bytes()).decode()
