"""What this process knows of the elastic launch that it belongs to: its agent, its worker, and when each started.

The agent of torchrun starts a worker process for each rank and attempt. The variables that it sets do not tell attempts
apart: a change of membership restarts the workers and raises no count, and each agent counts for itself. The processes
do: attempts of one agent have the same agent and different workers. The agent is the nearest ancestor without these
variables, so a wrapper script between the two does no harm.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tracekit.capture.output.paths import name_part

ELASTIC_ID = "TORCHELASTIC_RUN_ID"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MAX_NAME_LENGTH = 38  # leaves room for time and random number in 64 characters
_MOST_ANCESTORS = 32
_START_FIELD = 19  # of /proc/<pid>/stat, counted from the state, which follows the name
_PARENT_FIELD = 1
# Threads that a process group starts when all its ranks are there. The names are those of torch's C++ code.
_GROUP_THREADS = ("pt_gloo_", "pt_nccl_")


@dataclass(frozen=True, kw_only=True)
class ElasticLaunch:
    """The launch of this process by torchrun, or by another elastic agent of torch.

    Attributes:
        elastic_id: the id that the user gave, or a default.
        restarts: failures after which this agent has restarted its workers.
        may_restart: whether another attempt can follow.
        agent: identifies the agent among all hosts; empty where the processes cannot be looked up.
        worker: identifies the agent's child that this process is or descends from.
        agent_start_ns: when the agent started, in ns of the wall clock; None if it is not known.
        start_ns: when this process started.
    """

    elastic_id: str
    restarts: int = 0
    may_restart: bool = False
    agent: str = ""
    worker: str = ""
    agent_start_ns: int | None = None
    start_ns: int | None = None

    @property
    def name(self) -> str | None:
        """Return the id if the user chose it: torchrun's default and the random id of `--standalone` mean nothing."""
        is_default = self.elastic_id in {"", "none"} or re.fullmatch(_UUID, self.elastic_id)
        return None if is_default else self.elastic_id

    @property
    def run_prefix(self) -> str:
        """Return how the names of the runs of this launch begin; empty without an id of the user."""
        return "" if self.name is None else f"{name_part(self.name, _MAX_NAME_LENGTH)}-"

    def run_suffix(self, number: int) -> str:
        """Return the end of the name of the run of probe `number` of this agent's workers."""
        return hashlib.sha256(f"{self.agent}/{number}".encode()).hexdigest()[:8]

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ, host_id: str = "") -> ElasticLaunch | None:
        """Return the launch, or None if no elastic agent started this process."""
        elastic_id = environment.get(ELASTIC_ID)
        if elastic_id is None:
            return None
        launch = cls(elastic_id=elastic_id)
        restarts = _number(environment.get("TORCHELASTIC_RESTART_COUNT"))
        # Without restarts only a named job has several attempts: others can join it.
        may_restart = launch.name is not None or _number(environment.get("TORCHELASTIC_MAX_RESTARTS")) > 0
        worker, agent = _worker_and_agent()
        return cls(
            elastic_id=elastic_id,
            restarts=restarts,
            may_restart=may_restart,
            agent="" if agent is None else _digest(host_id, elastic_id, *agent),
            worker="" if worker is None else _digest(host_id, elastic_id, *worker),
            agent_start_ns=None if agent is None else _wall_clock_ns(agent[1]),
            start_ns=process_start_ns(),
        )


def process_start_ns(pid: int | None = None) -> int | None:
    """Return when a process started, by default this one, in ns of the wall clock; None if it is not known."""
    fields = _stat(Path(f"/proc/{pid or 'self'}/stat"))
    return None if fields is None else _wall_clock_ns(int(fields[_START_FIELD]))


def group_joined_ns() -> int | None:
    """Return when the first process group was complete, in ns of the wall clock; None if it is not known.

    That is when it started its threads, which it does last.
    """
    starts = []
    try:
        for thread in Path("/proc/self/task").iterdir():
            if (thread / "comm").read_text(encoding="utf-8", errors="replace").startswith(_GROUP_THREADS):
                fields = _stat(thread / "stat")
                starts += [] if fields is None else [int(fields[_START_FIELD])]
    except OSError:  # no /proc, or a thread that has just ended
        pass
    return _wall_clock_ns(min(starts)) if starts else None


def _worker_and_agent() -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return pid and start of the agent's child that this process is or descends from, and those of the agent."""
    worker: tuple[int, int] | None = None
    pid = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        fields = _stat(Path(f"/proc/{pid}/stat"))
        if fields is None:
            break
        process = (pid, int(fields[_START_FIELD]))
        try:
            # This process may have changed its own variables: what counts for it is that it was asked.
            started_by_agent = worker is None or f"{ELASTIC_ID}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # of another user
            break
        if not started_by_agent:
            return worker, process
        worker = process
        pid = int(fields[_PARENT_FIELD])
    return worker, None


def _stat(file: Path) -> list[str] | None:
    """Return the fields after the name, which may contain anything."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _wall_clock_ns(ticks: int) -> int:
    """Return the wall clock's time at so many clock ticks after the boot. Ticks are 10 ms."""
    since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + since_boot_ns


def _digest(host_id: str, elastic_id: str, pid: int, start: int) -> str:
    return hashlib.sha256(f"{host_id}/{elastic_id}/{pid}/{start}".encode()).hexdigest()[:16]


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
