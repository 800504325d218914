"""Finds out which rank of the job this is, and agrees with the other ranks on the name of the run."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable
from pathlib import Path

from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.process import (
    Identity,
    await_run_id,
    default_store,
    has_joined_peers,
    identify,
    look_up_run_id,
    publish_run_id,
)
from tracekit.capture.job.store import BoundedStore
from tracekit.capture.output.places import unused_run_id
from tracekit.capture.rpc.remote_calls import rpc_ready

__all__ = ["JobMembership"]


class JobMembership:
    """The rank's identity, its clock and its run, for one probe.

    Attributes:
        by_rpc: whether the peers are known as workers of RPC.
    """

    def __init__(self, path: Path, number: int) -> None:
        """`path` holds the runs; `number` says which probe of the process this is."""
        self.by_rpc = False
        self._path = path
        self._number = number
        self._joined = False  # whether identity, clock and run id were found with the peers known
        self._identity: Identity | None = None
        self._store: BoundedStore | None = None
        self._clock: HostClock | None = None
        self._run_id: str | None = None
        atexit.register(self._at_exit)  # before the exit hooks of the probe, so that it is called after them

    @property
    def identity(self) -> Identity:
        """This process in its job; known after `join`."""
        assert self._identity is not None
        return self._identity

    @property
    def clock(self) -> HostClock:
        """The clock of this host; known after `join`."""
        assert self._clock is not None
        return self._clock

    def join(self) -> None:
        """Find out which rank this is; called again later, as the process group may not exist yet."""
        ready = has_joined_peers()
        if self._joined or (self._identity is not None and not ready):
            return
        self._joined = ready
        self._identity = identify()
        self.by_rpc = rpc_ready()
        if ready and (store := default_store()) is not None:
            self._store = BoundedStore(store)
        self._clock = HostClock(self._store, self._identity, self._number)
        self._clock.register()
        self._run_id = publish_run_id(self._store, self._identity, self._number, any_rank=self.by_rpc)

    def look_up_run(self) -> None:
        """Join, and look up the run's name if rank 0 has published it.

        This happens early: when this rank writes, rank 0 may have left, and its store with it.
        """
        self.join()
        if self._run_id is None:
            self._run_id = look_up_run_id(self._store, self._number)

    def settle_run(self, first_step: int, note: Callable[[str], None], warn: Callable[[str], None]) -> str:
        """Return the name of the run in which a recording that begins with `first_step` is to be written."""
        identity, run_id = self.identity, self._run_id
        if run_id is None:
            run_id, was_published = await_run_id(self._store, identity, self._number)
            if not was_published:
                note("rank 0 did not name the run in time, so this rank's folder has another name")
        self._run_id = unused_run_id(
            self._path, run_id, identity.attempt, first_step, identity.rank, identity.world_size
        )
        if self._run_id != run_id:
            text = f"a recording of this rank in run {run_id} exists, so this one is in run {self._run_id}"
            note(text)
            warn(f"rank {identity.rank}: {text}")
        return self._run_id

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
