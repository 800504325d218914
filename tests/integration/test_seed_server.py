"""A parameter server by send and receive: recorded once on a quiet machine, and anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, result_of
from tests.places import DATA, PROBES

KEPT = DATA / "seed" / "server"


def first_finding(result: dict[str, Any]) -> tuple[str, int | None, str | None]:
    assert [row["rank"] for row in result["servers"]] == [0]
    assert {row["rank"] for row in result["ranks"] if row["steps"]} == {1, 2}
    first = result["findings"][0]
    return first["id"], first["rank"], first["cause"]


def test_workers_wait_for_a_server_that_works_30_ms_on_each_gradient() -> None:
    result = result_of(KEPT / "srv30")

    assert first_finding(result) == ("waiting-for-server", 0, "servers")
    evidence = result["findings"][0]["evidence"]
    assert evidence["work_ns"] == pytest.approx(30e6, rel=0.1)
    assert evidence["load"] > 0.9
    assert evidence["wait_share"] == pytest.approx(0.63, abs=0.05)


def test_a_worker_that_computes_40_ms_longer_is_compared_with_the_other_worker() -> None:
    result = result_of(KEPT / "slow1")

    assert first_finding(result) == ("slow-rate", 1, "slow_compute")
    evidence = result["findings"][0]["evidence"]
    assert evidence["longer_parts_ns"]["compute"] == pytest.approx(40e6, rel=0.05)
    assert evidence["peers"] == 1


def test_of_even_workers_and_their_quick_server_nobody_is_named() -> None:
    result = result_of(KEPT / "plain")

    assert first_finding(result)[1:] == (None, None)
    assert result["servers"][0]["load"] < 0.1


def test_torch_profiler_alone_shows_the_server_too() -> None:
    """GIVEN a server that takes 30 ms a gradient, and receives from any rank, which its recording does not name."""
    result = result_of(KEPT / "torch_profiler")

    assert first_finding(result) == ("waiting-for-server", 0, "servers")
    assert result["findings"][0]["evidence"]["work_ns"] == pytest.approx(30e6, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--server-ms", "60"), ("waiting-for-server", 0)),
        (("--slow-worker", "1", "--delay-ms", "120"), ("slow-rate", 1)),
        (("--slow-worker", "2", "--delay-ms", "120", "--synchronous"), ("waited-for-trainer", 2)),
    ],
    ids=["server", "worker", "synchronous"],
)
def test_what_the_probe_plants_is_found(
    torchrun: Launch, tmp_path: Path, arguments: tuple[str, ...], expected: tuple[str, int]
) -> None:
    out = tmp_path / "run"
    done = torchrun(PROBES / "server_by_messages.py", *arguments, "--out", out, ranks=3)
    assert done.returncode == 0, done.stderr

    result = result_of(out)

    assert expected in [(finding["id"], finding["rank"]) for finding in result["findings"]]
