"""Real processes on this machine: on a free port of the loopback interface, one thread each, bounded in time."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.components import require_module
from tests.integration.recorded import Launch
from tests.summary import JOBS_RUN_AGAIN

pytest.register_assert_rewrite("tests.integration.probe_answers")  # its checks assert

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
MORE_ATTEMPTS = 4  # on a crowded machine it can happen twice in a row
ABORTED_AT_EXIT = "terminate called without an active exception"


def files_below(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in folder.rglob("*") if file.is_file()]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACEKIT")}
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="session")
def launch() -> Launch:
    """`launch(script, *arguments)`: run Python and return the finished process."""
    require_module("torch")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)

    return run


@pytest.fixture(scope="session")
def launch_forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """`launch` in processes that have torch already, `ranks` of them for the launcher of a job (see forked.py).

    With `torn_down=False` they leave without tearing down the interpreter, if they succeed.
    """
    require_module("torch")
    server = [sys.executable, str(Path(__file__).with_name("forked.py"))]
    printed = [tmp_path_factory.mktemp("printed") / name for name in ("stdout", "stderr")]
    with subprocess.Popen(
        server, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(*arguments: str | Path, ranks: int, torn_down: bool = True) -> subprocess.CompletedProcess[str]:
            assert process.stdin is not None
            assert process.stdout is not None
            for file in printed:
                file.write_bytes(b"")
            command = [str(argument) for argument in arguments]
            job: dict[str, object] = {"arguments": command, "ranks": ranks, "torn_down": torn_down}
            request = job | {"stdout": str(printed[0]), "stderr": str(printed[1])}
            print(json.dumps(request), file=process.stdin, flush=True)
            group = int(process.stdout.readline())
            too_long = threading.Timer(TIMEOUT_S, os.killpg, (group, signal.SIGKILL))
            too_long.start()
            exit_code = int(process.stdout.readline())
            too_long.cancel()
            return subprocess.CompletedProcess(command, exit_code, *(file.read_text() for file in printed))

        yield run
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def torchrun(launch: Launch, launch_forked: Launch, pytestconfig: pytest.Config) -> Launch:
    """`torchrun(script, *arguments)`: run it in two ranks, or in `ranks`; fails the test if they do.

    With `anew` every process starts and imports torch as a user's does; else they are forked from one that has.

    A thread of Gloo that lets go of a tensor while the interpreter ends aborts the process, after all work is done and
    rarely: such a job is run again, without what it left in the folders it was given. The summary counts these.
    """

    def run(*arguments: str | Path, ranks: int = 2, anew: bool = False) -> subprocess.CompletedProcess[str]:
        begin = launch if anew else partial(launch_forked, ranks=ranks, torn_down=False)
        job = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *arguments)
        folders = [argument for argument in arguments if isinstance(argument, Path)]
        before = set(files_below(folders))
        result = begin(*job)
        for _ in range(MORE_ATTEMPTS):
            if result.returncode == 0 or ABORTED_AT_EXIT not in result.stderr:
                break
            for file in files_below(folders):
                if file not in before:
                    file.unlink()
            pytestconfig.stash[JOBS_RUN_AGAIN].append(shlex.join(map(str, arguments)))
            result = begin(*job)
        assert result.returncode == 0, result.stderr
        return result

    return run
