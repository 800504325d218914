"""However a loop ends: the process ends as it would have, and what was recorded is there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.recorded import Launch, read_traces

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("ending", "exit_code", "output"),
    [
        ("raise", 1, []),
        ("exit", 7, []),
        ("sigterm", -signal.SIGTERM, []),
        ("sigterm-handled", 0, ["the user's handler", "finished the loop"]),
        ("thread", 0, ["finished the loop"]),
    ],
)
def test_the_exit_code_is_the_job_s_own_and_the_trace_is_written(
    launch_forked: Launch, tmp_path: Path, ending: str, exit_code: int, output: list[str]
) -> None:
    result = launch_forked(HERE / "exit_worker.py", tmp_path, ending, ranks=0)

    assert result.returncode == exit_code, result.stderr
    (trace,) = read_traces(tmp_path)
    metadata = trace["tracekit"]
    assert [step["step"] for step in metadata["steps"]] == [0, 1, 2]
    assert metadata["window"]["partial"] is True
    assert ("ValueError: the user's own" in result.stderr) is (ending == "raise")
    assert result.stdout.splitlines() == output
    assert (metadata["steps"][-1]["end_ns"] is not None) is ("finished the loop" in output)
    leftovers = [file.name for file in tmp_path.rglob(".*")]
    assert leftovers == []


def test_spawned_ranks_that_join_their_group_in_the_first_step_do_not_overwrite_each_other(
    launch_forked: Launch, tmp_path: Path
) -> None:
    result = launch_forked(HERE / "spawn_worker.py", tmp_path / "runs", tmp_path / "store", ranks=0)

    assert result.returncode == 0, result.stderr
    first, second = (trace["tracekit"] for trace in read_traces(tmp_path / "runs"))
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["run_id"] == second["run_id"]
    assert [record["in_shapes"] for record in first["collectives"]] == [[[3]]]


def test_a_recorded_process_group_ends_when_it_is_destroyed(launch_forked: Launch, tmp_path: Path) -> None:
    """Else Gloo's threads outlive it, and now and then the process is aborted as it exits."""
    result = launch_forked(HERE / "leaving_worker.py", tmp_path, ranks=0)

    assert result.returncode == 0, result.stderr
    assert len(read_traces(tmp_path)) == 1
    assert result.stdout.splitlines()[-1] == "gloo threads: 0"  # old Gloo prints that it is connected
