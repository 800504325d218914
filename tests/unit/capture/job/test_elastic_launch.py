"""What a process finds out about its elastic agent, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tracekit.capture.job.elastic_launch import ElasticLaunch, process_start_ns

ASK = (
    "import dataclasses, json; from tracekit.capture.job.elastic_launch import ElasticLaunch; "
    "print(json.dumps(dataclasses.asdict(ElasticLaunch.of_this_process(host_id='h'))))"
)
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def ask(*prefix: str, **variables: str) -> dict[str, Any]:
    """What a worker that this process starts as its agent says, behind the words of a wrapper."""
    environment = os.environ | {"TORCHELASTIC_RUN_ID": "myjob", "PYTHONPATH": str(ROOT)} | variables
    command = [*prefix, sys.executable, "-c", ASK]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    answer: dict[str, Any] = json.loads(printed)
    return answer


@NEEDS_PROC
def test_workers_of_an_agent_have_one_agent_and_are_told_apart() -> None:
    first, second = ask(), ask(TORCHELASTIC_RESTART_COUNT="1")

    assert first["agent"] == second["agent"] != ""
    assert first["worker"] != second["worker"]
    assert (first["restarts"], second["restarts"]) == (0, 1)
    assert first["agent_start_ns"] <= first["start_ns"] <= second["start_ns"] <= time.time_ns() + 10**8


@NEEDS_PROC
def test_a_wrapper_between_agent_and_worker_is_no_agent() -> None:
    """`; true`: the shell stays, and does not become the worker."""
    plain, wrapped = ask(), ask("sh", "-c", '"$@"; true', "wrapper")

    assert wrapped["agent"] == plain["agent"]


def test_a_process_that_no_elastic_agent_started_has_no_launch() -> None:
    assert ElasticLaunch.of_this_process({}) is None


@pytest.mark.parametrize(
    ("elastic_id", "max_restarts", "expected"),
    [
        ("none", "0", False),
        ("none", "2", True),
        ("myjob", "0", True),  # others may join it
        ("2cdb61c8-cad6-42a6-af46-78fa9891d14a", "0", False),  # --standalone
    ],
)
def test_only_a_job_that_may_have_several_attempts_is_followed(
    elastic_id: str, max_restarts: str, expected: bool
) -> None:
    variables = {"TORCHELASTIC_RUN_ID": elastic_id, "TORCHELASTIC_MAX_RESTARTS": max_restarts}

    launch = ElasticLaunch.of_this_process(variables)

    assert launch is not None
    assert launch.may_restart is expected


@NEEDS_PROC
def test_the_start_of_a_process_is_on_the_wall_clock() -> None:
    begin_ns = time.time_ns()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started_ns = process_start_ns(process.pid)
        process.communicate()

    assert started_ns is not None
    assert abs(started_ns - begin_ns) < 2 * 10**9
