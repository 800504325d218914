"""The figures of benchmarks, computed from given costs of their commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.costs import growth, one_more_rank
from benchmarks.measuring.measure import Command, Cost
from benchmarks.measuring.tools import Setup


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """Return options whose runs are folders of empty files; their names state ranks and repeats."""
    monkeypatch.setattr(Setup, "run", lambda self, ranks, repeats: _run(tmp_path, ranks, repeats))
    return Setup(
        runs=3,
        quick=True,
        seed=tmp_path / "seed.json",
        inputs=tmp_path,
        growth_repeats=1,
        hta_python="python",
        tracelens=tmp_path / "TraceLens",
        tracelens_python="python",
    )


def _run(folder: Path, ranks: int, repeats: int) -> Path:
    run = folder / f"{ranks}x{repeats}"
    run.mkdir(exist_ok=True)
    for rank in range(ranks):
        (run / f"rank{rank}.json.gz").touch()
    return run


def planted(cpu_s):
    """Return a replacement of `alternate` that takes the CPU seconds of a command from its name."""

    def alternate(commands: dict[str, Command], runs: int) -> dict[str, list[Cost]]:
        return {name: [Cost(cpu_s=cpu_s(name), wall_s=1.0, peak_bytes=10**8)] * runs for name in commands}

    return alternate


def figures(rows) -> dict[str, float]:
    return {row.what: row.spread.median for row in rows if row.spread is not None}


def test_the_cost_of_one_more_rank_excludes_the_start(setup, monkeypatch):
    start_and_rank_s = {
        "tracekit": (0.7, 0.4),
        "tracekit, portable decoder": (0.7, 2.0),
        "HTA": (5.0, 24.0),
        "TraceLens": (2.0, 5.0),
    }

    def cpu_s(name: str) -> float:
        tool, _, ranks = name.rpartition(", ")
        start_s, rank_s = start_and_rank_s[tool]
        return start_s + int(ranks.split()[0]) * rank_s

    monkeypatch.setattr(one_more_rank, "alternate", planted(cpu_s))
    found = figures(one_more_rank.rows(setup))
    assert found["tracekit"] == pytest.approx(0.4)
    assert found["HTA / tracekit"] == pytest.approx(60)
    assert found["HTA / tracekit, portable decoder"] == pytest.approx(12)
    assert found["TraceLens / tracekit"] == pytest.approx(12.5)


def test_a_missing_tool_is_named(setup, monkeypatch):
    monkeypatch.setattr(one_more_rank, "alternate", planted(lambda name: float(name.split()[-2])))
    rows = one_more_rank.rows(replace(setup, hta_python=None, tracelens=None))
    missing = {row.what: row.reason for row in rows if row.spread is None}
    assert missing == {
        "HTA / tracekit": "HTA is not installed (--hta-python)",
        "HTA / tracekit, portable decoder": "HTA is not installed (--hta-python)",
        "TraceLens / tracekit": "no checkout was given (--tracelens)",
    }
    assert figures(rows)["tracekit"] == pytest.approx(1)


def test_quadratic_growth_is_visible(setup, monkeypatch):
    def cpu_s(name: str) -> float:
        size = int(name.split()[0]) if name[0].isdigit() else 0
        return 0.7 + 0.1 * (size if "events" in name else size**2)

    monkeypatch.setattr(growth, "alternate", planted(cpu_s))
    found = figures(growth.rows(setup))
    assert found["4 to 8 ranks"] == pytest.approx(4)
    assert found["2 to 4 times the events"] == pytest.approx(2)
