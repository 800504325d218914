"""What happens to real jobs: full and read-only disks, signals, peers that stop or die. Training goes on as without a
probe, and a trace is readable or absent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.components import require
from tests.integration.recorded import Launch, notes_of, read_traces, result_of

FOLDER = Path(__file__).parent
TIMEOUT_S = 120
MOUNTED = ["full in the export", "full in the packing", "too little free", "read-only"]
# In a namespace of its own: what is mounted there is gone with the process.
NAMESPACE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
MOUNT = """
mkdir "$0" "$0/small" "$0/roomy" "$0/readonly" &&
mount -t tmpfs -o size=64k tmpfs "$0/small" && mount -t tmpfs -o size=2m tmpfs "$0/roomy" &&
mount -t tmpfs -o size=2m,ro tmpfs "$0/readonly" && exec "$@"
"""


@dataclass(kw_only=True)
class Disks:
    """What the trainings on different disks left and said; `refusal`: why nothing could be mounted."""

    exit_code: int
    facts: dict[str, Any]
    said: dict[str, list[str]]
    refusal: str | None


@pytest.fixture(scope="module")
def disks(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> Disks:
    folder = tmp_path_factory.mktemp("disks")
    refusal = None
    try:
        trial = subprocess.run(
            [*NAMESPACE, "sh", "-c", MOUNT, str(folder / "trial"), "true"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if trial.returncode != 0:
            refusal = trial.stderr.strip()
    except OSError as error:
        refusal = str(error)
    worker = [str(FOLDER / "disks_worker.py"), str(folder), str(folder / "mounts")]
    if refusal is None:
        script = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
        result = launch("-c", script, *NAMESPACE, "sh", "-c", MOUNT, folder / "mounts", sys.executable, *worker)
    else:
        result = launch(*worker)
    assert (folder / "facts.json").exists(), result.stderr
    said = {}
    for part in result.stderr.split("== ")[1:]:
        name, *lines = part.splitlines()
        said[name] = [line for line in lines if line.startswith("tracekit:")]
    facts = json.loads((folder / "facts.json").read_text())
    return Disks(exit_code=result.returncode, facts=facts, said=said, refusal=refusal)


@pytest.mark.parametrize(
    ("disk", "complaint"),
    [
        ("below a file", "Not a directory"),
        ("largest file", "is the disk full"),
        ("bytes in all", "max_bytes=1000"),
        ("full in the export", "is the disk full"),
        ("full in the packing", "No space left on device"),
        ("too little free", "fewer than 256 MiB"),
        ("read-only", "Read-only file system"),
    ],
)
def test_a_disk_that_takes_no_trace_costs_one_line_and_no_file(disks: Disks, disk: str, complaint: str) -> None:
    if disk in MOUNTED:
        require("mount", disks.refusal is None, f"a tmpfs of its own, which is refused here: {disks.refusal}")

    (line,) = disks.said[disk]
    assert complaint in line
    assert line.endswith("; nothing more is recorded")
    assert disks.facts[disk]["files"] == []
    assert disks.facts[disk]["losses"] == disks.facts["bare"]["losses"]
    assert disks.exit_code == 7


def test_a_missing_folder_is_made(disks: Disks) -> None:
    facts = disks.facts["missing folder"]

    (line,) = disks.said["missing folder"]
    assert line.startswith("tracekit: recorded steps 0 to 5 of 1 rank; next: tracekit analyze ")
    assert len([file for file in facts["files"] if file.endswith(".json.gz")]) == 3
    assert facts["losses"] == disks.facts["bare"]["losses"]


@pytest.fixture(scope="module")
def faults(launch_forked: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the processes that were killed, terminated, stopped and deserted."""
    folder = tmp_path_factory.mktemp("faults")
    for worker in ("signals_worker.py", "peers_worker.py"):
        result = launch_forked(FOLDER / worker, folder, ranks=0)
        assert result.returncode == 0, result.stderr
    return folder


def facts_of(faults: Path, fault: str) -> Any:
    return json.loads((faults / fault / "facts.json").read_text())


@pytest.mark.parametrize(
    ("point", "steps", "whole_steps", "notes"),
    [
        ("export", [0, 1], [0, 1], ["unfinished-tmp", "truncated"]),
        ("verification", [0, 1], [0, 1, 2, 3], ["unfinished-tmp"]),
        ("packing", [0, 1], [0, 1], ["unfinished-tmp", "truncated"]),
        ("publication", [0, 1], [0, 1, 2, 3], ["ignored-file", "unfinished-tmp"]),  # the manifest, too
        ("manifest", [0, 1, 2, 3], [0, 1, 2, 3], ["ignored-file"]),
    ],
)
def test_killed_as_it_writes_a_window_a_trace_is_readable_or_absent(
    faults: Path, point: str, steps: list[int], whole_steps: list[int], notes: list[str]
) -> None:
    """The first window is there whatever happened to the second, whose remains are recognised and used."""
    assert facts_of(faults, "kill")[point] == -signal.SIGKILL

    traces = read_traces(faults / "kill" / point)
    assert sorted(step["step"] for trace in traces for step in trace["tracekit"]["steps"]) == steps
    result = result_of(faults / "kill" / point)
    assert [step["step"] for step in result["steps"] if step["complete"]] == whole_steps
    assert [note["id"] for note in result["notes"]] == notes
    assert result["run"]["run_id"] == traces[0]["tracekit"]["run_id"]
    assert result["run"]["other_runs"] == []


@pytest.mark.parametrize(
    ("handler", "exit_code", "steps"),
    [("default", -signal.SIGTERM, [0, 1, 2]), ("exits", 3, [0, 1, 2]), ("flag", 11, [0, 1, 2]), ("ignored", 10, None)],
)
def test_sigterm_in_a_backward_pass_ends_the_window_and_the_process_as_ever(
    faults: Path, handler: str, exit_code: int, steps: list[int] | None
) -> None:
    """A handler of the job is called once (the exit code counts); one that ignores the signal ends no window."""
    without, recorded = facts_of(faults, "terminate")[handler]

    assert (without, recorded) == (exit_code, exit_code)
    (trace,) = read_traces(faults / "terminate" / handler)
    planned = [0, 1, 2, 3, 4, 5]
    assert [step["step"] for step in trace["tracekit"]["steps"]] == (steps or planned)
    assert trace["tracekit"]["window"]["partial"] is (steps is not None)


def test_a_stopped_peer_does_not_keep_a_rank(faults: Path) -> None:
    """Rank 0 is the one that wakes rank 1, once its own window is written: had it waited, both would for ever."""
    assert facts_of(faults, "stopped")["codes"] == [0, 0]
    assert (faults / "stopped/closed-beside-a-stopped-peer").read_text() == "True"
    first, second = (trace["tracekit"] for trace in read_traces(faults / "stopped/runs"))
    assert first["run_id"] == second["run_id"]
    # Whether rank 0 still answers the comparison at the window's end depends on which of the two is quicker then. What
    # it does answer is right: both "hosts" are this one, with one clock.
    samples = second["clock"]["samples"]
    assert len(samples) <= 2
    assert all(abs(sample["offset_ns"]) <= sample["error_ns"] for sample in samples)


def test_when_the_store_is_gone_the_window_ends_and_the_clock_is_unknown(faults: Path) -> None:
    assert facts_of(faults, "deserted")["codes"] == [-signal.SIGKILL, 0]
    (trace,) = read_traces(faults / "deserted/runs")

    metadata = trace["tracekit"]
    assert (metadata["rank"], metadata["clock"]["method"], metadata["clock"]["samples"]) == (1, "none", [])
    assert [step["step"] for step in metadata["steps"]] == [3, 4]


def test_sigterm_of_a_launcher_leaves_each_rank_s_window(launch_forked: Launch, tmp_path: Path) -> None:
    codes = []
    for mode in ("bare", "recorded"):
        folder = tmp_path / mode
        folder.mkdir()
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        result = launch_forked(*torchrun, FOLDER / "preemption_worker.py", folder, mode, ranks=2)
        codes.append(result.returncode)

    assert codes[0] == codes[1] != 0
    traces = [trace["tracekit"] for trace in read_traces(tmp_path / "recorded/runs")]
    assert [metadata["rank"] for metadata in traces] == [0, 1]
    for metadata in traces:
        assert [step["step"] for step in metadata["steps"]] == [0, 1, 2]
        assert metadata["steps"][-1]["end_ns"] is None
    assert notes_of(result_of(tmp_path / "recorded/runs"), "unfinished-tmp") == []
