"""Elastic jobs: attempts of one launch stand side by side, and the next launch under the same id disturbs nothing.

What restarts cost is compared with the launcher's own log.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.launcher_log import Restart, restarts
from tests.integration.recorded import Launch, read_traces, result_of
from tests.places import PROBES

WORKER = Path(__file__).with_name("elastic_worker.py")


def test_two_launches_under_one_id_are_two_runs_of_two_attempts(launch_forked: Launch, tmp_path: Path) -> None:
    options = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "myjob", "--max-restarts", "1")
    for _ in range(2):
        job = ("-m", "torch.distributed.run", *options, "--nproc-per-node", "1", WORKER, tmp_path)
        result = launch_forked(*job, ranks=2)  # one in each attempt
        assert result.returncode == 0, result.stderr

    runs = [(trace["tracekit"]["run_id"], trace["tracekit"]["attempt"]) for trace in read_traces(tmp_path)]
    assert Counter(attempt for _, attempt in runs) == {0: 2, 1: 2}
    assert sorted(Counter(run_id for run_id, _ in runs).values()) == [2, 2]
    for run_id, _ in runs:
        assert re.fullmatch(r"myjob-\d{8}T\d{6}Z-[0-9a-f]{8}", run_id)
    assert len(list(tmp_path.glob("*/attempt-1/step-000000000/rank-000000.manifest.json"))) == 2


def test_an_attempt_of_another_world_size_stands_for_itself(launch_forked: Launch, tmp_path: Path) -> None:
    result = launch_forked(WORKER.with_name("elastic_attempts.py"), tmp_path, ranks=3)
    assert result.returncode == 0, result.stderr

    run = result_of(tmp_path)["run"]
    assert run["run_id"].startswith("shrinking-")
    assert (run["attempt"], run["world_size"], run["ranks"], run["missing_ranks"]) == (1, 1, [0], [])
    assert [(o["run_id"], o["attempt"], o["ranks"]) for o in run["other_runs"]] == [(run["run_id"], 0, 2)]


@pytest.fixture
def elastic_job(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`elastic_job(*arguments)`: run the elastic probe; return the result and the restarts of the launcher's log."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # a store for each attempt
    monkeypatch.setenv("LOGLEVEL", "INFO")

    def run(*launcher: str, arguments: tuple[str, ...]) -> tuple[dict[str, Any], list[Restart]]:
        options = ("--sleep-compute", "--device", "cpu", "--out", tmp_path / "run")
        done = launch(*launcher, PROBES / "elastic.py", *arguments, *options)
        assert done.returncode == 0, done.stderr
        return result_of(tmp_path / "run"), restarts(done.stdout, done.stderr)

    return run


def check_lost_time(rows: list[dict[str, Any]], expected: list[Restart]) -> None:
    """The lost time is within 10 % of the log's. A step that was cut off is lost, too: it is not in the log."""
    assert len(rows) == len(expected)
    for row, restart in zip(rows, expected, strict=True):
        step_s = row["step_ns"] / 1e9
        until_start_s = ((row["detection_ns"] or 0) + row["rendezvous_ns"]) / 1e9
        until_step_s = (row["lost_ns"] - row["repeated_ns"]) / 1e9 + step_s
        expected_s = restart.stepped_s - restart.broken_s
        assert until_start_s == pytest.approx(restart.started_s - restart.broken_s, abs=0.1 * expected_s + 2 * step_s)
        assert until_step_s == pytest.approx(expected_s, abs=0.1 * expected_s + 2 * step_s)
        assert 0 <= restart.repeated - row["repeated_steps"] <= restart.last_step_may_be_cut


@pytest.mark.alone
def test_a_killed_rank_costs_what_the_launcher_says(elastic_job: Any) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2")
    result, expected = elastic_job(*launcher, arguments=("--kill-step", "14"))

    first, second = result["attempts"]
    assert [(row["attempt"], row["world_size"], row["recorded"]) for row in (first, second)] == [(0, 2, 1), (1, 2, 1)]
    assert (first["ending"], first["ended_ranks"]) == ("killed", [1])
    assert (second["ending"], second["first_step"], second["last_step"]) == ("finished", 10, 23)
    assert second["repeated_steps"] == 4
    assert result["run"]["attempt"] == 1
    assert [step["step"] for step in result["steps"] if step["rank"] == 0] == [14, 15, 16]
    check_lost_time([second], expected)


@pytest.mark.long  # half a minute without company; a killed rank above, and an attempt of another size, are shorter
@pytest.mark.alone
def test_a_membership_that_changes_is_one_run_of_three_attempts(elastic_job: Any) -> None:
    result, expected = elastic_job(arguments=("--membership", "1:2:1", "--steps", "10"))

    rows = result["attempts"]
    assert [row["world_size"] for row in rows] == [1, 2, 1]
    assert [row["ending"] for row in rows] == ["membership", "killed", "finished"]
    assert rows[1]["ended_ranks"] == [1]
    assert [other["attempt"] for other in result["run"]["other_runs"]] == [0, 1]
    assert {other["run_id"] for other in result["run"]["other_runs"]} == {result["run"]["run_id"]}
    check_lost_time(rows[1:], expected)
