"""How the ranks of a job agree on the name of the run, the number of the attempt and the number of the first step.

Rank 0 decides and publishes in the job's key-value store. The store may be older than the attempt, and then holds what
an earlier attempt agreed on. So what was published before this process started does not count.

If the store is new, the attempt before this one is found by the files that it left. It is the newest attempt of a run
that this agent launched with another worker process. If rank 0 has moved to another agent, it is an attempt of a run
with the same id, which the user chose. That attempt lived after this agent had started, and was dead when this process
started. This excludes a run of another day under the same id, which ended before this agent started, and one at the
same time, which still lives.

`BoundedStore` asks the store on a separate thread, so that no caller waits longer than its limit. The time-outs of
torch's stores are not reliable: a call to a TCPStore whose server is stopped, or behind a dead link, blocks until the
connection dies, and so does opening another connection. A client is locked during a call. So the capture has a client
of its own, and the job's calls never queue up behind those of the capture. It has one only: the server looks up the
name of each new peer and answers nobody meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.job.process import Identity
from tracekit.capture.output.paths import MAX_RUN_ID_LENGTH, name_part, newest_attempt
from tracekit.model.metadata import PROGRESS_SUFFIX, Progress, ProgressHeader
from tracekit.model.metadata.json_text import decode, encode

RUN_KEY = "tracekit/run"
RUN_WAIT_S = 2.0
ANSWER_TIMEOUT_S = 1.0  # of the store, which usually answers within a millisecond
_LATEST_RUNS = 8  # of one id; there may be hundreds

T = TypeVar("T")

TOTAL_TIMEOUT_S = 2.0  # for all questions together that are not answered in time


@dataclass(frozen=True, kw_only=True)
class AgreedRun:
    """What rank 0 says of the run.

    Attributes:
        attempt: its number; attempts of one run are in order of time.
        published_ns: when it was decided, in ns of rank 0's wall clock.
        is_first: whether no attempt has used this store before.
    """

    run_id: str
    attempt: int = 0
    published_ns: int = 0
    is_first: bool = True


@dataclass(frozen=True, kw_only=True)
class AgreedStep:
    """The number of the job's step at the first call, and how rank 0 knows it."""

    first_step: int
    source: str


def new_run(path: Path, launch: ElasticLaunch | None, number: int, *, any_rank: bool = False) -> AgreedRun:
    """Return the run of rank 0, as far as the store holds none: the next attempt of an earlier run, or a new run.

    Args:
        path: the folder of the runs.
        number: which probe of the process this is.
        any_rank: whether other ranks of this attempt may have written already. What is there then tells nothing.
    """
    restarts, now_ns = 0 if launch is None else launch.restarts, time.time_ns()
    if not any_rank and (earlier := find_earlier_attempt(path, launch, number)) is not None:
        return AgreedRun(run_id=earlier.run_id, attempt=max(restarts, earlier.attempt + 1), published_ns=now_ns)
    return AgreedRun(run_id=_new_name(path, launch, number), attempt=restarts, published_ns=now_ns)


def publish_run(
    store: BoundedStore | None, run: AgreedRun, number: int, rank: int, *, elastic: bool, any_rank: bool = False
) -> AgreedRun | None:
    """Publish the run and return what holds: an earlier attempt in the same store belongs to the same run.

    If the store does not answer, rank 0 keeps its run and another rank gets None.

    Args:
        elastic: whether the store may hold what an earlier attempt agreed on.
        any_rank: the first rank to come names the run, as rank 0 may be a server that never records.
    """
    if store is None:
        return run
    key = f"{RUN_KEY}/{number}"

    def publish(shared: Any) -> AgreedRun:
        if any_rank:
            named = _decoded(shared.compare_set(key, "", encode(run).decode()))
            return replace(named, attempt=run.attempt)
        agreed = run
        if elastic and shared.check([key]):
            earlier = _decoded(shared.get(key))
            attempt = max(earlier.attempt + 1, run.attempt)
            agreed = replace(run, run_id=earlier.run_id, attempt=attempt, is_first=False)
        shared.set(key, encode(agreed).decode())
        return agreed

    with contextlib.suppress(Exception):  # errors depend on the store; other ranks then name their own runs
        return store.ask(publish, ANSWER_TIMEOUT_S)
    return run if rank == 0 else None


def read_run(number: int) -> Callable[[Any], AgreedRun | None]:
    """Return a question to the store: what was published last, by whichever attempt."""
    key = f"{RUN_KEY}/{number}"
    return lambda shared: _decoded(shared.get(key)) if shared.check([key]) else None


def is_of_this_attempt(run: AgreedRun, launch: ElasticLaunch | None) -> bool:
    """Return whether a published run was decided after this process had started.

    Workers of an attempt start when those of the one before are dead, and rank 0 decides when all have joined.
    """
    return launch is None or launch.start_ns is None or run.published_ns >= launch.start_ns


def await_run(
    store: BoundedStore | None, identity: Identity, number: int, launch: ElasticLaunch | None
) -> tuple[AgreedRun, bool]:
    """Return what rank 0 published and True; after two seconds a run for this process alone and False.

    It polls, because a blocking `get` occupies the store until its own time-out of minutes.
    """
    deadline = time.monotonic() + RUN_WAIT_S
    run = None
    while store is not None and not store.has_given_up and time.monotonic() < deadline:
        with contextlib.suppress(Exception):  # the store's server may be gone; the error depends on the store
            run = store.ask(read_run(number), ANSWER_TIMEOUT_S)
            if run is not None and is_of_this_attempt(run, launch):
                return run, True
        time.sleep(0.01)
    if run is not None and run.is_first and (launch is None or not launch.restarts):
        return run, True  # no attempt before: it is the clock of rank 0's host that is behind
    name = f"unknown-{name_part(identity.host, 40)}-{os.getpid()}" + (f"-{number}" if number else "")
    return AgreedRun(run_id=name, attempt=0 if launch is None else launch.restarts), False


def publish_step(store: BoundedStore | None, run: AgreedRun, number: int, step: AgreedStep) -> None:
    """Have the first step published; nobody waits for it."""
    if store is not None:
        text = encode(step).decode()
        store.post(lambda shared: shared.set(_step_key(run, number), text))


def look_up_step(store: BoundedStore | None, run: AgreedRun, number: int) -> AgreedStep | None:
    """Return the first step that rank 0 published; None if there is none yet."""
    key = _step_key(run, number)
    if store is None:
        return None
    with contextlib.suppress(Exception):
        answer = store.ask(lambda shared: shared.get(key) if shared.check([key]) else None, ANSWER_TIMEOUT_S)
        return None if answer is None else decode(answer, AgreedStep)
    return None


def _step_key(run: AgreedRun, number: int) -> str:
    return f"{RUN_KEY}/{number}/attempt-{run.attempt}/first_step"


def _decoded(text: bytes | str) -> AgreedRun:
    run = decode(text, AgreedRun)
    return replace(run, run_id=name_part(run.run_id, MAX_RUN_ID_LENGTH) or "run")


def _new_name(path: Path, launch: ElasticLaunch | None, number: int) -> str:
    """Return a unique name. An elastic id alone would not be: the next launch may have the same one.

    Attempts of one agent make the same name, also where neither store nor disk connects them. A worker that runs two
    programs, one after the other, makes two.
    """
    began, unique = datetime.now(UTC), secrets.token_hex(4)
    if launch is None or not launch.may_restart or is_name_taken(path, launch, number):
        pass
    elif launch.agent_start_ns is not None:
        began = datetime.fromtimestamp(launch.agent_start_ns // 1_000_000_000, UTC)
        unique = launch.run_suffix(number)
    prefix = "" if launch is None else launch.run_prefix
    return f"{prefix}{began:%Y%m%dT%H%M%SZ}-{unique}"


@dataclass(frozen=True, kw_only=True)
class EarlierAttempt:
    """The newest attempt of the run that this job belongs to."""

    run_id: str
    attempt: int


def find_earlier_attempt(path: Path, launch: ElasticLaunch | None, number: int) -> EarlierAttempt | None:
    """Return the attempt before this one below `path`; None if there is none or it cannot be known.

    number: which probe of the process this is.
    """
    if launch is None or not launch.may_restart or not launch.agent:
        return None
    with contextlib.suppress(OSError):
        of_agent = list(path.glob(f"*-{launch.run_suffix(number)}"))
        named = sorted(path.glob(f"{launch.run_prefix}*"), reverse=True) if launch.run_prefix else []
        for run in [*of_agent, *named[:_LATEST_RUNS]]:
            attempt = newest_attempt(run)
            if attempt is None:
                continue
            progress = _any_progress(run / f"attempt-{attempt}")
            if run in of_agent:
                is_earlier = progress is None or progress.header.worker != launch.worker
            else:
                is_earlier = progress is not None and _precedes(progress, launch)
            if is_earlier:
                return EarlierAttempt(run_id=run.name, attempt=attempt)
    return None


def is_name_taken(path: Path, launch: ElasticLaunch, number: int) -> bool:
    """Return whether a run has the name that this launch would give it."""
    with contextlib.suppress(OSError):
        return any(path.glob(f"*-{launch.run_suffix(number)}"))
    return False


def _precedes(progress: Progress, launch: ElasticLaunch) -> bool:
    if launch.agent_start_ns is None or launch.start_ns is None or progress.header.elastic_id != launch.elastic_id:
        return False
    return launch.agent_start_ns < progress.last_sign_ns < launch.start_ns


def _any_progress(attempt: Path) -> Progress | None:
    """Return the progress of any rank."""
    for file in attempt.rglob(f"rank-*{PROGRESS_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError):
            return Progress.parse(file.read_bytes(), lambda header: decode(header, ProgressHeader))
    return None


class BoundedStore:
    """The job's store with limits: after `close()`, or when the total time-out is used up, `ask()` raises at once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._time_left_s = TOTAL_TIMEOUT_S
        self._questions: queue.SimpleQueue[tuple[Future[Any], Callable[[Any], Any]] | None] = queue.SimpleQueue()
        # A daemon, as a call may never return. Started now, as no thread can be started when the process exits.
        self._worker = threading.Thread(target=self._answer, name="tracekit-store", daemon=True)
        try:
            self._worker.start()
        except RuntimeError:
            self._time_left_s = 0.0

    @property
    def is_alive(self) -> bool:
        return self._worker.is_alive()

    @property
    def has_given_up(self) -> bool:
        """Whether no further question will be answered."""
        return self._time_left_s <= 0

    def ask(self, question: Callable[[Any], T], limit_s: float) -> T:
        """Return or raise what `question(store)` does; raises TimeoutError if that takes longer than `limit_s`."""
        answer: Future[T] = Future()
        limit_s = min(limit_s, self._time_left_s)
        if limit_s <= 0:
            raise TimeoutError("the job's store does not answer")
        self._questions.put((answer, question))
        begin = time.monotonic()
        try:
            return answer.result(limit_s)
        except FutureTimeoutError:
            if not answer.done():
                answer.cancel()  # if it still waits in the queue, it is never asked
                self._time_left_s -= time.monotonic() - begin
            raise

    def post(self, question: Callable[[Any], T]) -> Future[T]:
        """Have `question(store)` run later; nobody waits for it. After `close()` it is never run."""
        answer: Future[T] = Future()
        self._questions.put((answer, question))
        return answer

    def close(self) -> None:
        """Give the connection back; may be called again."""
        self._time_left_s = 0.0
        self._questions.put(None)

    def _answer(self) -> None:
        try:
            store, connect_error = _second_client(self._store), None
        except Exception as error:
            store, connect_error = None, error
        while (request := self._questions.get()) is not None:
            answer, question = request
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                if connect_error is not None:
                    raise connect_error
                answer.set_result(question(store))
            except Exception as error:
                answer.set_exception(error)
            del answer, question, request  # else the last question lives as long as the thread


def _second_client(store: Any) -> Any:
    """Return another connection to a TCPStore; other stores are in memory or a file, and returned as they are.

    Before torch 2.8 a client cannot be cloned. Another one is opened there, without the prefixes of `store`: the keys
    of the capture have their own.
    """
    innermost = store
    while type(innermost).__name__ == "PrefixStore":
        innermost = innermost.underlying_store
    if type(innermost).__name__ != "TCPStore":
        return store
    if hasattr(store, "clone"):
        return store.clone()
    return type(innermost)(innermost.host, innermost.port, is_master=False, wait_for_workers=False)
