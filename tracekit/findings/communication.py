"""Findings on communication that compute does not hide: transfers, jitter, dimensions of the mesh, hosts."""

from __future__ import annotations

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.hosts import HOST_CAUSES
from tracekit.findings.thresholds import FOR_THE_SERVER, NOTABLE_SHARE, SLOW_HOST, WAITING_FOR_SERVER
from tracekit.model.texts import milliseconds

_FULL = 0.8  # of a server's time
BY_ITS_WORK = 0.5  # load of a server, as a share of the waiting for it
_HELD = 0.5  # of the waiting for a server, while it waits for others
_ENOUGH_STEPS = 10  # to tell whether the same rank comes last in most

REPLAYED_ACTIONS = {"communication": "overlap it with compute"}
"""What to do about exposed transfers, by the remedy that a replay shows to save something."""
_LEAVE_OUT_BARRIERS = (
    "remove torch.distributed.barrier() where correctness allows: collectives synchronize by themselves"
)


@entry(
    "exposed-transfers",
    "Exposed communication",
    "diagnosis",
    NOTABLE_SHARE,
    example={"share": 0.37, "unseen": False, "kind": "all_reduce", "group": "dp", "phase": "backward"},
)
def exposed_transfers(
    share: float,
    unseen: bool,
    kind: str | None,
    group: str | None,
    phase: str | None,
    blocking_share: float | None = None,
    bound_ns: int | None = None,
) -> Sentence:
    """The chain of events that bounds the step consists of transfers to a notable share, which no compute hides.

    A chain of transfers may run beside compute, so no more counts than the ranks' exposed time. unseen: ranks are
    missing, so that waiting for them cannot be told from transfers. blocking_share: of the step, in which compute waits
    for communication; None where it is not recorded what waits for what. bound_ns: what would be saved if transfers
    took no time.
    """
    unknown = " (or waiting for missing ranks)" if unseen else ""
    what = f"{kind or 'communication'}{f' ({group})' if group else ''}{f' in {phase}' if phase else ''}"
    bound = ""
    if bound_ns is not None:
        bound = f". Upper bound, if communication were free: {milliseconds(bound_ns, 1)} ms a step"
    action = "overlap it with compute, send less, or use a faster link" if kind != "barrier" else _LEAVE_OUT_BARRIERS
    return (
        f"transfers that overlap no compute{unknown} take {share:.0%} of the step. The largest part: {what}"
        + _blocking_text(blocking_share),
        f"{action}{bound}",
    )


@entry(
    "exposed-communication",
    "Exposed communication",
    "diagnosis",
    NOTABLE_SHARE,
    example={"exposed_share": 0.42, "kind": "all_to_all", "phase": "forward", "all_ranks": False},
)
def exposed_communication(
    exposed_share: float, kind: str, phase: str | None, all_ranks: bool, blocking_share: float | None = None
) -> Sentence:
    """Compute does not hide communication, and it is not known how much of that is waiting for other ranks.

    all_ranks: whether all ranks of the job are recorded.
    """
    where = f"{kind}{f' in {phase}' if phase else ''}"
    text = f"communication without compute takes {exposed_share:.0%} of the step, waiting included. Most is {where}"
    text += _blocking_text(blocking_share)
    how = "the same steps with tracekit.probe, which measures clocks" if all_ranks else "all ranks"
    return text, f"record {how}, to tell waiting from transfer"


def _blocking_text(blocking_share: float | None) -> str:
    return "" if blocking_share is None else f". Compute blocks on it for {blocking_share:.0%}"


@entry(
    "waiting-for-server",
    "Server-bound",
    "servers",
    WAITING_FOR_SERVER,
    FOR_THE_SERVER,
    example={"server": 0, "wait_share": 0.61, "work_ns": 31_200_000, "load": 0.99, "held_share": 0.02},
)
def waiting_for_server(server: int, wait_share: float, work_ns: int, load: float, held_share: float) -> Sentence:
    """Ranks that train wait for messages of a rank that serves them, such as a parameter server.

    work_ns: of the server for each message that it receives. load: the share of time in which that keeps it busy.
    held_share: of the waiting, while the server waits for another rank.
    """
    text = f"waiting for rank {server}, which serves the others, takes {wait_share:.0%} of the step"
    if held_share >= _HELD:
        return f"{text}. Most of it lasts until others have sent", f"let rank {server} answer whoever comes first"
    text += f". It works {milliseconds(work_ns, 1)} ms on each message, {min(load, 1):.0%} of the time"
    if load < BY_ITS_WORK * wait_share:
        return text, "send less to it, in fewer messages, or ahead of need"
    text += ". Its rate is the limit" if load >= _FULL else ""
    return text, "make its work on a message quicker, or spread it over more ranks"


@entry("late-by-turns", "Jitter", "diagnosis", NOTABLE_SHARE, example={"share": 0.08})
def late_by_turns(share: float) -> Sentence:
    """Another rank comes last in each step, so that no single one is to blame for the waiting."""
    return (
        f"{share:.0%} of the step is waiting for the slowest rank, each time another one",
        "look for what differs from step to step: uneven batches, other processes, garbage collection",
    )


@entry(
    "late-at-times",
    "Jitter",
    "diagnosis",
    NOTABLE_SHARE,
    example={"share": 0.08, "late_steps": 3, "steps": 3, "last_rank": 1, "last_in": 2},
)
def late_at_times(share: float, late_steps: int, steps: int, last_rank: int | None, last_in: int) -> Sentence:
    """Ranks wait for one that comes last, but neither is one rank to blame, nor is it another one each time.

    last_rank: the one that comes last in most of these steps, in last_in of them.
    """
    when = f", in {late_steps} of {steps} steps" if late_steps else ", in small parts"
    if 2 * last_in > steps:
        when = f": rank {last_rank} in {last_in} of {steps} steps"
    text = f"{share:.0%} of the step is waiting for the slowest rank{when}"
    if steps < _ENOUGH_STEPS:
        action = f"record more steps, tracekit.probe(steps={_ENOUGH_STEPS})"
        return text + ". These are too few to tell whether it is always the same", action
    return text, "look for what differs in these steps: uneven batches, other processes, garbage collection"


@entry(
    "cause-by-turns",
    "Jitter",
    "diagnosis",
    NOTABLE_SHARE,
    example={"cause": "garbage_collection", "time_ns": 12_000_000},
)
def cause_by_turns(cause: str, time_ns: float) -> Sentence:
    """The same hits another rank in each step, and the others wait for it: garbage collection, allocation, loading."""
    what = cause.replace("_", " ").replace("allocator", "allocating memory").replace("copy", "copying")
    text = f"{what} takes {milliseconds(time_ns, 1)} ms a step, each time on another rank. The others wait"
    return text, HOST_CAUSES[cause][2]


@entry(
    "mesh-dimension",
    "Device mesh",
    "dimensions",
    NOTABLE_SHARE,
    example={
        "dimension": "dp_shard",
        "inferred": False,
        "share": 0.22,
        "group_size": 8,
        "hosts": 2,
        "alike": False,
        "next_dimension": "tp",
        "next_share": 0.09,
        "misplaced": None,
    },
)
def mesh_dimension(
    dimension: str,
    inferred: bool,
    share: float,
    group_size: int | None,
    hosts: int | None,
    alike: bool,
    next_dimension: str | None,
    next_share: float,
    misplaced: str | None,
) -> Sentence:
    """Of a job that is parallel in several dimensions, one has most of the exposed communication.

    misplaced: a dimension within hosts that should change places with it, since it communicates in every layer.
    """
    groups = ""
    if group_size is not None:
        where = "" if hosts is None else " within a host" if hosts == 1 else f" on {hosts} hosts"
        groups = f", in groups of {group_size} ranks{where}"
    text = (
        f"{dimension}{' (inferred)' * inferred} has most exposed communication: {share:.0%} of the step{groups}. "
        f"{'As much has' if alike else 'Next is'} {next_dimension or 'what is in no known group'}: {next_share:.0%}"
    )
    if misplaced is None:
        return text, None
    text += f". Its groups span hosts, those of {misplaced} do not"
    return text, f"swap the two dimensions in init_device_mesh, so that {dimension} stays within a host"


@entry("slow-host", "Slow host", "collectives", SLOW_HOST, example={"host": "node7", "slowdown": 2.4})
def slow_host(host: str, slowdown: float) -> Sentence:
    """All groups of a host take longer for their transfers than equal groups on other hosts."""
    return (
        f"transfers on host {host} take {slowdown:.1f} times as long as those on other hosts",
        "check the network links and the network card of that host",
    )
