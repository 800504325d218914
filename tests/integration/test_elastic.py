"""Elastic jobs: attempts of one launch stand side by side, and the next launch under the same id disturbs nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.integration.recorded import Launch, read_traces, result_of

WORKER = Path(__file__).with_name("elastic_worker.py")


def test_two_launches_under_one_id_are_two_runs_of_two_attempts(launch: Launch, tmp_path: Path) -> None:
    options = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "myjob", "--max-restarts", "1")
    for _ in range(2):
        result = launch("-m", "torch.distributed.run", *options, "--nproc-per-node", "1", WORKER, tmp_path)
        assert result.returncode == 0, result.stderr

    runs = [(trace["tracekit"]["run_id"], trace["tracekit"]["attempt"]) for trace in read_traces(tmp_path)]
    assert Counter(attempt for _, attempt in runs) == {0: 2, 1: 2}
    assert sorted(Counter(run_id for run_id, _ in runs).values()) == [2, 2]
    for run_id, _ in runs:
        assert re.fullmatch(r"myjob-\d{8}T\d{6}Z-[0-9a-f]{8}", run_id)
    assert len(list(tmp_path.glob("*/attempt-1/step-000000000/rank-000000.manifest.json"))) == 2


def test_an_attempt_of_another_world_size_stands_for_itself(launch: Launch, tmp_path: Path) -> None:
    result = launch(WORKER.with_name("elastic_attempts.py"), tmp_path)
    assert result.returncode == 0, result.stderr

    run = result_of(tmp_path)["run"]
    assert run["run_id"].startswith("shrinking-")
    assert (run["attempt"], run["world_size"], run["ranks"], run["missing_ranks"]) == (1, 1, [0], [])
    assert [(o["run_id"], o["attempt"], o["ranks"]) for o in run["other_runs"]] == [(run["run_id"], 0, 2)]
