"""Calls for ranks in workers: a worker that dies loses only its call, which never runs in this process."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests import mortal
from tests.places import ROOT
from tracekit.errors import UsageError
from tracekit.loading.workers import LOST, map_ranks


def attempts(folder: Path) -> Counter[int]:
    """Return how often each call was started. Assert that none ran in this process."""
    begun = list(folder.iterdir())
    assert str(os.getpid()) not in {file.read_text() for file in begun}
    return Counter(int(file.stem) for file in begun)


def test_results_come_in_the_order_of_the_calls() -> None:
    assert map_ranks(divmod, [(n, 7) for n in range(5)], jobs=1) == [divmod(n, 7) for n in range(5)]
    assert map_ranks(divmod, [(n, 7) for n in range(5)], jobs=2) == [divmod(n, 7) for n in range(5)]
    assert map_ranks(divmod, [], jobs=2) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_each_rank_once(jobs: int) -> None:
    seen: list[tuple[int, int]] = []
    map_ranks(abs, [(n,) for n in range(6)], jobs=jobs, progress=lambda *now: seen.append(now))
    assert seen == [(n, 6) for n in range(7)]


def test_a_killed_worker_loses_only_its_call(tmp_path: Path) -> None:
    """GIVEN eight calls of which one is killed WHEN mapped THEN it was tried twice, and all others once."""
    calls = [(tmp_path, n, [2]) for n in range(8)]
    assert map_ranks(mortal.note_process, calls, jobs=3) == [0, 1, LOST, 3, 4, 5, 6, 7]
    assert attempts(tmp_path) == {n: 2 if n == 2 else 1 for n in range(8)}


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """GIVEN two busy workers WHEN only their parent is killed THEN they end too."""
    fifo = tmp_path / "busy"
    os.mkfifo(fifo)
    script = tmp_path / "script.py"
    script.write_text(f"""
from tests import mortal
from tracekit.loading.workers import map_ranks
if __name__ == "__main__":
    map_ranks(mortal.wait_for({str(fifo)!r}), [(), ()], jobs=2)
""")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with fifo.open("r+b", buffering=0) as words:
        with subprocess.Popen([sys.executable, str(script)], env=environment, start_new_session=True) as parent:
            said = b""
            while len(said) < len("herehere"):
                assert select.select([words], [], [], 60)[0], said
                said += words.read(1)
            parent.kill()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                os.killpg(parent.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        os.killpg(parent.pid, signal.SIGKILL)
        pytest.fail("workers are still there")


def test_without_any_process_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(process: BaseProcess) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(BaseProcess, "start", start)
    with pytest.raises(UsageError, match="no worker process can start") as caught:
        map_ranks(divmod, [(n, 7) for n in range(5)], jobs=2)
    assert caught.value.hint.startswith("give --jobs 1")


def test_an_error_of_the_work_says_where_it_was_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        map_ranks(mortal.fail, [(error,) for error in (ZeroDivisionError("by zero"), None)], jobs=2)
    assert "in fail" in caught.value.__notes__[0]


def test_an_error_that_cannot_be_sent_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"^UnsendableError: two words$"):
        map_ranks(mortal.fail_unsendably, [(), ()], jobs=2)


def test_several_killed_workers(tmp_path: Path) -> None:
    calls = [(tmp_path, n, [0, 2]) for n in range(3)]
    assert map_ranks(mortal.note_process, calls, jobs=2) == [LOST, 1, LOST]
    assert attempts(tmp_path) == {0: 2, 1: 1, 2: 2}


def test_an_error_of_the_work_reaches_the_caller() -> None:
    for jobs in (1, 2):
        with pytest.raises(ZeroDivisionError):
            map_ranks(divmod, [(1, 1), (1, 0), (2, 1)], jobs=jobs)


def test_a_script_without_main_guard_gets_a_hint(tmp_path: Path) -> None:
    """Its workers import the script, and would start workers."""
    script = tmp_path / "script.py"
    script.write_text("from tracekit.loading.workers import map_ranks\nprint(map_ranks(abs, [(1,), (2,)], jobs=2))\n")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1].startswith("tracekit.errors.UsageError: no worker process can start")
    assert '__name__ == "__main__"' in run.stderr.splitlines()[-1]
