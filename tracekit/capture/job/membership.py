"""Finds out which rank of the job this is, and agrees with the other ranks on the name of the run."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.elastic_launch import ElasticLaunch
from tracekit.capture.job.process import Identity, default_store, has_joined_peers, identify
from tracekit.capture.job.rpc_worker import rpc_ready
from tracekit.capture.job.run_agreement import (
    ANSWER_TIMEOUT_S,
    AgreedRun,
    AgreedStep,
    BoundedStore,
    await_run,
    is_of_this_attempt,
    look_up_step,
    new_run,
    publish_run,
    publish_step,
    read_run,
)
from tracekit.capture.output.paths import unused_run_id


class JobMembership:
    """The rank's identity, its clock and its run, for one probe.

    Attributes:
        by_rpc: whether the peers are known as workers of RPC.
        launch: of an elastic job; known after `join`.
    """

    def __init__(self, path: Path, number: int) -> None:
        """`path` holds the runs; `number` says which probe of the process this is."""
        self.by_rpc = False
        self.launch: ElasticLaunch | None = None
        self._path = path
        self._number = number
        self._joined = False  # whether identity, clock and run were found with the peers known
        self._identity: Identity | None = None
        self._store: BoundedStore | None = None
        self._clock: HostClock | None = None
        self._run: AgreedRun | None = None
        self._proposed: AgreedRun | None = None  # as rank 0
        self._step: AgreedStep | None = None  # as rank 0 has published it
        self._answer: Future[AgreedRun | None] | None = None
        atexit.register(self._at_exit)  # before the exit hooks of the probe, so that it is called after them

    @property
    def identity(self) -> Identity:
        """This process in its job; known after `join`, its attempt after `settle_run`."""
        assert self._identity is not None
        return self._identity

    @property
    def clock(self) -> HostClock:
        """The clock of this host; known after `join`."""
        assert self._clock is not None
        return self._clock

    @property
    def run(self) -> AgreedRun | None:
        """The run, if it is known."""
        return self._run

    def join(self) -> None:
        """Find out which rank this is; called again later, as the process group may not exist yet."""
        ready = has_joined_peers()
        if self._joined or (self._identity is not None and not ready):
            return
        self._joined = ready
        self._identity = identify()
        self.launch = ElasticLaunch.of_this_process(host_id=self._identity.host_id)
        self.by_rpc = rpc_ready()
        if ready and (store := default_store()) is not None:
            self._store = BoundedStore(store)
        self._clock = HostClock(self._store, self._identity, self._number)
        self._run = None
        if self._identity.rank == 0 or self.by_rpc or self._store is None:
            self._proposed = self._proposed or new_run(self._path, self.launch, self._number, any_rank=self.by_rpc)
            elastic, rank = self.launch is not None, self._identity.rank
            self._set_run(
                publish_run(self._store, self._proposed, self._number, rank, elastic=elastic, any_rank=self.by_rpc)
            )
        elif self.launch is None:
            self._clock.register()  # the only attempt is the first

    def look_up_run(self) -> None:
        """Join, and look up what rank 0 has published of the run.

        This happens early: when this rank writes, rank 0 may have left, and its store with it.
        """
        self.join()
        if self._run is None and self._store is not None:
            with contextlib.suppress(Exception):  # the store's server may be gone; the error depends on the store
                self._accept(self._store.ask(read_run(self._number), ANSWER_TIMEOUT_S))
        if self._run is not None and self._step is None and self.identity.rank != 0:
            self._step = look_up_step(self._store, self._run, self._number)

    def poll_run(self) -> None:
        """Look up the run without waiting: the answer comes with a later call."""
        if self._run is not None or self._store is None:
            return
        answer, self._answer = self._answer, None
        if answer is None:
            self._answer = self._store.post(read_run(self._number))
        elif not answer.done():
            self._answer = answer
        else:
            with contextlib.suppress(Exception):
                self._accept(answer.result())

    def publish_first_step(self, step: AgreedStep) -> None:
        """As rank 0, tell the others which of the job's steps the first call is."""
        if self.identity.rank == 0 and self._run is not None and self._step is None:
            self._step = step
            publish_step(self._store, self._run, self._number, step)

    def settle_run(
        self, call: int, step: AgreedStep, note: Callable[[str], None], warn: Callable[[str], None]
    ) -> tuple[str, AgreedStep]:
        """Return the name of the run in which a recording that begins with `call` is to be written, and the first step.

        The first step is what rank 0 has published; else `step`, what this rank itself has found.
        """
        if self._run is None:
            awaited, was_published = await_run(self._store, self.identity, self._number, self.launch)
            if not was_published:
                note("rank 0 did not name the run in time, so this rank's folder has another name")
            self._set_run(awaited)
        run, identity = self._run, self.identity
        assert run is not None
        agreed = step if step.source == "argument" else self._step or step
        first_step = call + agreed.first_step
        run_id = unused_run_id(self._path, run.run_id, identity.attempt, first_step, identity.rank, identity.world_size)
        if run_id != run.run_id:
            text = f"a recording of this rank in run {run.run_id} exists, so this one is in run {run_id}"
            note(text)
            warn(f"rank {identity.rank}: {text}")
            self._run = replace(run, run_id=run_id)
        return run_id, agreed

    def _accept(self, run: AgreedRun | None) -> None:
        """Take what the store holds, unless it is of an earlier attempt."""
        if run is not None and is_of_this_attempt(run, self.launch):
            self._set_run(run)

    def _set_run(self, run: AgreedRun | None) -> None:
        """Note the run, and with it the attempt, which the keys of the clock have."""
        if run is None:
            return
        self._run = run
        self._identity = replace(self.identity, attempt=run.attempt)
        self.clock.register(run.attempt)

    def leave(self) -> None:
        """Give the connection to the job's store back. Other hosts may still ask this one for its clock."""
        if self._clock is not None:
            self._clock.linger()
            if not self._clock.is_leader:
                atexit.unregister(self._at_exit)
        if self._store is not None:
            with contextlib.suppress(Exception):
                self._store.close()

    def after_fork(self) -> None:
        """In a forked child: the threads are the parent's."""
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if self._clock is not None:
            with contextlib.suppress(Exception):
                self._clock.close()
