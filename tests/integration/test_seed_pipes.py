"""Pipelines of Gloo by hand, with a slow stage or a slow rank of one replica: tests/data/README.md."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import tracekit
from tests.places import DATA


@cache
def result_of(name: str) -> dict[str, Any]:
    report = tracekit.analyze(DATA / "seed" / "pipes" / name, cache=False)
    return dict(json.loads(report.to_json()))


def savings_ns(name: str) -> dict[str, int]:
    """Return the savings of the findings, by their ids."""
    return {finding["id"]: finding["saving_ns"] for finding in result_of(name)["findings"]}


@pytest.mark.parametrize("name", ["forward2", "forward4"])
def test_in_a_pipeline_of_forwards_alone_the_slow_stage_is_named_and_no_host(name: str) -> None:
    result = result_of(name)
    computed = sum(rank["compute_ns"] for rank in result["ranks"]) / sum(rank["step_ns"] for rank in result["ranks"])

    assert savings_ns(name).keys() <= {"uneven-stage", "pipeline-bubble"}
    assert (result["pipeline"]["uneven_stage"]["stage"], result["stragglers"]["rank"]) == (1, None)
    assert result["pipeline"]["bubble_ratio"] == pytest.approx(1 - computed, abs=0.02)


def test_the_profiler_alone_shows_a_pipeline_of_gloo() -> None:
    result = result_of("by_profiler")
    pipeline, uneven = result["pipeline"], result["pipeline"]["uneven_stage"]

    assert result["run"]["strategies"] == ["pp"]
    assert (pipeline["schedule"], pipeline["stages"], pipeline["microbatches"]) == ("1f1b", 3, 8)
    assert (uneven["stage"], uneven["factor"]) == (1, pytest.approx(2.4, abs=0.1))
    assert savings_ns("by_profiler")["uneven-stage"] > 150_000_000


def test_a_slow_rank_of_one_replica_is_no_slow_stage() -> None:
    result = result_of("two_replicas")

    assert (result["stragglers"]["rank"], result["pipeline"]["uneven_stage"]) == (3, None)
    assert savings_ns("two_replicas")["straggler"] == pytest.approx(300_000_000, rel=0.05)
    assert "stages" not in {change["remedy"] for change in result["whatif"]["fix"]}
