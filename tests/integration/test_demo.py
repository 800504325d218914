"""`tracekit demo`, into a folder with an older run: the main job from training to the merged trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.integration.recorded import Launch
from tracekit.cli import cli

# Which rank is named depends on how long each of them computes.
pytestmark = pytest.mark.alone


def tracekit(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli, arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


@pytest.fixture(scope="module")
def demo(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    torchrun("-m", "tracekit.cli.demo_training", "--out", folder)
    tracekit("demo", "-o", str(folder))
    return folder


@pytest.fixture(scope="module")
def result(demo: Path) -> dict[str, Any]:
    """The report of every step: on a busy machine a long first one may be left out otherwise."""
    parsed: dict[str, Any] = json.loads(tracekit("analyze", str(demo), "--steps", "0:", "--json"))
    return parsed


def test_the_parts_of_each_rank_sum_to_its_steps(result: dict[str, Any]) -> None:
    assert [(row["rank"], row["steps"]) for row in result["ranks"]] == [(0, 6), (1, 6)]
    for row in [*result["ranks"], *result["steps"]]:
        parts = row["compute_ns"] + row["exposed_comm_ns"] + row["exposed_copy_ns"] + row["idle_ns"]
        assert parts == row["step_ns"] > 0
        assert row["exposed_comm_ns"] + row["overlapped_comm_ns"] == row["comm_ns"] > 0


def test_the_slowed_rank_and_the_cause_are_named(result: dict[str, Any]) -> None:
    """Its backward pass sleeps for twice as long as a step takes, on a busy machine too."""
    assert (result["stragglers"]["rank"], result["stragglers"]["cause"]) == (1, "compute")
    compute_ns = {row["rank"]: row["compute_ns"] / row["steps"] for row in result["ranks"]}
    assert compute_ns[1] - compute_ns[0] > 20e6
    assert {finding["rank"] for finding in result["findings"]} <= {None, 1}


def test_every_communication_is_the_all_reduce_of_a_bucket(result: dict[str, Any]) -> None:
    """In each step as many all-reduces and bytes as DDP has buckets, all launched in the backward pass."""
    size_bytes = sum(bucket["size_bytes"] for bucket in result["bucket_map"])
    buckets = len(result["bucket_map"])
    rows = [(row["kind"], row["phase"], row["count"], row["size_bytes"]) for row in result["communication"]]
    assert rows == [("all_reduce", "backward", 6 * buckets, 6 * size_bytes)] * 2
    assert (result["groups"][0]["parallelism"], result["groups"][0]["ranks"]) == ("dp", "world")


def test_the_newest_run_is_taken_and_the_other_listed(demo: Path, result: dict[str, Any]) -> None:
    (other,) = result["run"]["other_runs"]
    assert other["ranks"] == 2
    older = json.loads(tracekit("analyze", str(demo), "--run", other["run_id"], "--json"))
    assert older["run"]["run_id"] == other["run_id"] != result["run"]["run_id"]
    assert older["steps"][0]["start_ns"] < result["steps"][0]["start_ns"]
    assert [trace.stem for trace in demo.glob("*.pftrace")] == [result["run"]["run_id"]]
