"""Calls for ranks in workers: a worker that dies loses only its call, which never runs in this process."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests import mortal
from tests.places import ROOT
from tracekit import __version__
from tracekit.analysis.pool import workers
from tracekit.analysis.pool.workers import LOST, map_ranks
from tracekit.errors import InputError, UsageError
from tracekit.limits import Limits


def attempts(folder: Path) -> Counter[int]:
    """Return how often each call was started. Assert that none ran in this process."""
    begun = list(folder.iterdir())
    assert str(os.getpid()) not in {file.read_text() for file in begun}
    return Counter(int(file.stem) for file in begun)


def test_results_come_in_the_order_of_the_calls() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert map_ranks(divmod, [(n, 7) for n in range(1024)], executor=threads) == [divmod(n, 7) for n in range(1024)]
    assert map_ranks(divmod, [(n, 7) for n in range(5)], jobs=1) == [divmod(n, 7) for n in range(5)]
    assert map_ranks(divmod, [(n, 7) for n in range(5)], jobs=2) == [divmod(n, 7) for n in range(5)]
    assert map_ranks(divmod, [], jobs=2) == []


@pytest.mark.parametrize("how", ["here", "processes", "threads"])
def test_progress_counts_each_rank_once(how: str) -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(2) as threads:
        executor = threads if how == "threads" else None
        jobs = 2 if how == "processes" else 1
        map_ranks(abs, [(n,) for n in range(6)], jobs=jobs, executor=executor, progress=lambda *now: seen.append(now))
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
from tracekit.analysis.pool.workers import map_ranks
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


def test_no_thread_of_this_process_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is limited (`ulimit -v`), none can start."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert map_ranks(divmod, [(n, 7) for n in range(5)], jobs=2) == [divmod(n, 7) for n in range(5)]


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


def test_a_pool_that_breaks_is_replaced(tmp_path: Path) -> None:
    """A pool that the caller passed fails for all its calls; what it had finished is kept."""
    calls = [(tmp_path, n, [2]) for n in range(8)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert map_ranks(mortal.note_process, calls, jobs=2, executor=pool) == [0, 1, LOST, 3, 4, 5, 6, 7]
    assert attempts(tmp_path)[2] == 3  # once in the pool


class Forgetful(Executor):
    """A cluster that loses the worker of a call as often as it is told to."""

    class WorkerLostError(Exception):
        pass

    def __init__(self, losses: dict[int, int]) -> None:
        self.losses = losses
        self.at_once = self.most_at_once = 0

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        call = args[-1]
        if self.losses.get(call, 0):
            self.losses[call] -= 1
            future.set_exception(self.WorkerLostError())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_a_call_that_a_cluster_loses_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "worker_deaths", lambda: (Forgetful.WorkerLostError,))
    cluster = Forgetful({1: 1, 3: 2, 4: 9})
    assert map_ranks(abs, [(n,) for n in range(6)], executor=cluster) == [0, 1, 2, LOST, LOST, 5]
    assert cluster.losses == {1: 0, 3: 0, 4: 7}


def test_a_cancelled_call_gives_a_one_line_error() -> None:
    class GivesUp(Executor):
        def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            future: Future[object] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(InputError, match="gave up before all ranks were read"):
        map_ranks(abs, [(1,), (2,)], executor=GivesUp())


def test_an_error_of_the_work_reaches_the_caller() -> None:
    for jobs in (1, 2):
        with pytest.raises(ZeroDivisionError):
            map_ranks(divmod, [(1, 1), (1, 0), (2, 1)], jobs=jobs)
    with ThreadPoolExecutor(1) as threads, pytest.raises(ZeroDivisionError):
        map_ranks(divmod, [(1, 1), (1, 0), (2, 1)], executor=threads)


def test_after_an_error_no_call_is_started() -> None:
    begun, go = [], threading.Event()

    def work(n: int) -> None:
        begun.append(n)
        if n == 0:
            raise ValueError
        go.wait(60)

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(ValueError):
            map_ranks(work, [(n,) for n in range(50)], executor=threads)
        go.set()
    assert begun in ([0], [0, 1])


def test_a_worker_of_another_version_refuses() -> None:
    assert workers._as_here(__version__, Limits(), abs, -1) == 1
    with pytest.raises(UsageError, match=r"a worker has tracekit .*, this one is 0\.0\.9") as caught:
        workers._as_here("0.0.9", Limits(), abs, -1)
    assert caught.value.hint == "where the workers run: pip install torch-tracekit==0.0.9"


def test_a_script_without_main_guard_gets_a_hint(tmp_path: Path) -> None:
    """Its workers import the script, and would start workers."""
    script = tmp_path / "script.py"
    script.write_text(
        "from tracekit.analysis.pool.workers import map_ranks\nprint(map_ranks(abs, [(1,), (2,)], jobs=2))\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1].startswith("tracekit.errors.UsageError: no worker process can start")
    assert '__name__ == "__main__"' in run.stderr.splitlines()[-1]
