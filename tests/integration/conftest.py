"""Real processes on this machine: on a free port of the loopback interface, one thread each, bounded in time."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.components import require_module
from tests.integration.recorded import Launch
from tests.summary import JOBS_RUN_AGAIN

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
MORE_ATTEMPTS = 4  # on a crowded machine it can happen twice in a row
ABORTED_AT_EXIT = "terminate called without an active exception"


def files_below(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in folder.rglob("*") if file.is_file()]


@pytest.fixture(scope="session")
def launch() -> Launch:
    """`launch(script, *arguments)`: run Python and return the finished process."""
    require_module("torch")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEKIT")}
    environment = kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)

    return run


@pytest.fixture(scope="session")
def torchrun(launch: Launch, pytestconfig: pytest.Config) -> Launch:
    """`torchrun(script, *arguments)`: run it in two ranks, or in `ranks`; fails the test if they do.

    A thread of Gloo that lets go of a tensor while the interpreter ends aborts the process, after all work is done and
    rarely: such a job is run again, without what it left in the folders it was given. The summary counts these.
    """

    def run(*arguments: str | Path, ranks: int = 2) -> subprocess.CompletedProcess[str]:
        job = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *arguments)
        folders = [argument for argument in arguments if isinstance(argument, Path)]
        before = set(files_below(folders))
        result = launch(*job)
        for _ in range(MORE_ATTEMPTS):
            if result.returncode == 0 or ABORTED_AT_EXIT not in result.stderr:
                break
            for file in files_below(folders):
                if file not in before:
                    file.unlink()
            pytestconfig.stash[JOBS_RUN_AGAIN].append(shlex.join(map(str, arguments)))
            result = launch(*job)
        assert result.returncode == 0, result.stderr
        return result

    return run
