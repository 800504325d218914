"""Findings on who delays the others: ranks, links, and the experts of a rank. And why nobody is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.hosts import BEFORE_OPERATORS, DO_NOT_WAIT, HOST_CAUSES, location_text
from tracekit.findings.thresholds import EXPERT_RATIO, NOTABLE_SAVING
from tracekit.model.run import format_ranges
from tracekit.model.texts import milliseconds

ESTIMATED = "estimated from how long they compute, not from counts of tokens"

_MOST = 0.5  # of a delay
_LONGER_WINDOW = 10  # steps, with which a verdict on few steps may become sure
_RECORD_STACKS = "record again with `@tracekit.probe(stack=True)`: the report then names the line"
_NEARLY_ALL_TOKENS = 100.0  # times the others' load: their share is no number worth telling

_COMPARED_WITH = {
    "others alike": "as others for the same transfers",
    "links within hosts": "as links within hosts for the same transfers. No other link between hosts carries them",
    "links between hosts": "as links between hosts for the same transfers. No other link within a host carries them",
    "NVLink": "as NVLink would for the same transfers",
}

_STRAGGLER = {
    "ranks": (3,),
    "host": None,
    "cause": "more_work",
    "share_of_step": 0.21,
    "share_of_compute": 0.26,
    "peers": 3,
    "device": "gpu",
    "steps": 12,
    "certainty": "sure",
    "others_wait_ns": 5_100_000,
}


@entry("straggler", "Straggler", "stragglers", NOTABLE_SAVING, example=_STRAGGLER)
def straggler(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    share_of_step: float,
    share_of_compute: float | None,
    peers: int,
    device: str,
    steps: int,
    certainty: str,
    missing: str | None = None,
    expert_load: float | None = None,
    expert_load_estimated: bool = False,
    others_wait_ns: int | None = None,
    excess_ns: int = 0,
    longest_wait: Mapping[str, Any] | None = None,
    recorded_with: Sequence[str] = (),
    clock: Mapping[str, Any] | None = None,
    host_in: Mapping[str, Any] | None = None,
    waits_for_device: Mapping[str, Any] | None = None,
    slow_operators: Mapping[str, Any] | None = None,
    other_devices: Mapping[str, Any] | None = None,
    late_steps: Sequence[int] | None = None,
    on_host: str | None = None,
) -> Sentence:
    """A rank, or ranks together, hold up the others in most steps, by more than chance and the errors of clocks.

    share_of_compute: by how much they compute longer than their peers, of how long these do; None if it tells little.
    missing: what the recording lacks to be sure.
    others_wait_ns: in collectives in which the rank is last, mean of the others. excess_ns: the delay of a step.
    expert_load: of the rank's experts against the mean of the others, if that is why it computes longer.
    recorded_with: options of the profiler with which only these ranks were recorded.
    clock: a counter that shows that the clock of their GPUs is lower, with their rate and that of others.
    host_in: the `operator`, `annotation` and `source` in which a late host is.
    waits_for_device: the `calls` a step in which the host does so, and `peers_calls`.
    slow_operators: how many `times` as long operators take on a late host, with an example.
    other_devices: the model of `slow` GPUs, and that of the `others`, if they differ.
    late_steps: in which they are late, if that is in some only.
    on_host: where they are, if they are on one of several hosts.
    """
    who, longer = _name(ranks, host), _longer(ranks, cause, share_of_step, share_of_compute, host_in, waits_for_device)
    if cause == "operators" and slow_operators is not None:
        each, peers_each = (slow_operators[key] / 1000 for key in ("each_ns", "peers_ns"))
        text = f"{who} take{'s' * (len(ranks) == 1)} {slow_operators['times']:.1f} times as long as "
        text += f"{_peers(ranks, peers)} for the same operators ({slow_operators['operator']}: {each:.0f} against "
        text += f"{peers_each:.0f} us). The others wait {share_of_step:.0%} of the step"
    elif steps == 1 and longest_wait is not None and expert_load is None:
        waited_ns = others_wait_ns or 0
        step_ns = excess_ns / share_of_step if share_of_step else 0
        share = f", {waited_ns / step_ns:.0%} of the step" if step_ns else ""
        text = f"the others wait {milliseconds(waited_ns, 1)} ms for {who}{share} (rank {longest_wait['rank']} "
        text += f"{milliseconds(longest_wait['wait_ns'], 1)} ms in one {longest_wait['kind']})"
        text += f". {_it(ranks).capitalize()} {longer} than {_peers(ranks, peers)}"
    else:
        text = f"{who} {longer} than {_peers(ranks, peers)}"
        if late_steps is not None:
            text += f" in {len(late_steps)} of {steps} steps ({format_ranges(late_steps)}). No other rank is late"
        elif others_wait_ns or excess_ns:
            text += f". {_waiting(ranks, peers, others_wait_ns, excess_ns)}"
    where = who if on_host is None else f"{who} on {on_host}"
    action = _action(ranks, who, where, cause, device, host_in)
    if waits_for_device is not None:
        action = f"on {who}: {DO_NOT_WAIT}"
    elif other_devices is not None:
        gpus = "Its GPU is" if len(ranks) == 1 else "Their GPUs are"
        text += f". {gpus} {other_devices['slow']}, the others' {other_devices['others']}"
        action = f"give all ranks GPUs of one model, or {who} less work"
    elif expert_load is not None:
        said = " (estimated)" if expert_load_estimated else ""
        text += f". Its experts receive {expert_load:.2f} times the mean of the others{said}"
        action = f"even out the load of the experts of {who}"
    elif cause == "more_work":
        text += f". {'It has' if len(ranks) == 1 else 'They have'} more work"
    elif clock is not None:
        rates = f"{clock['name']} is {clock['rate']:,.4g}, the others' {clock['others_rate']:,.4g}"
        text += f". {_their(ranks).capitalize()} {rates}"
        action = f"look why the clock of {where} is lower: power limit, heat"
    if recorded_with:
        text += f". Only {who} {'was' if len(ranks) == 1 else 'were'} recorded with {', '.join(recorded_with)}"
        action = "record all ranks with the same options of the profiler, which cost time themselves"
    return text, _until_sure(action, certainty, steps, missing)


late_steps = entry(
    "late-in-some-steps",
    "Intermittent straggler",
    "stragglers",
    NOTABLE_SAVING,
    meaning="A rank, or ranks together, are late in some steps, and no other rank is in any.",
    example={**_STRAGGLER, "ranks": (5,), "cause": "compute", "late_steps": (7, 8, 9, 10), "peers": 7},
)(straggler.compose)


@entry(
    "idle-in-some-steps", "Uneven batches", "stragglers", example={"rank": 3, "rank_steps": (7, 8, 9, 10), "steps": 8}
)
def idle_steps(rank: int, rank_steps: Sequence[int], steps: int) -> Sentence:
    """A rank computes next to nothing in some steps, as it has no data there. It is late for nobody."""
    when = f"in {len(rank_steps)} of {steps} steps ({format_ranges(rank_steps)})"
    action = "give all ranks as many batches: drop_last, or a sampler that pads"
    return f"rank {rank} computes nothing {when}. Nobody is late there", action


def _longer(
    ranks: Sequence[int],
    cause: str | None,
    share_of_step: float,
    share_of_compute: float | None,
    host_in: Mapping[str, Any] | None,
    waits_for_device: Mapping[str, Any] | None,
) -> str:
    """Return what slow ranks do longer, and by how much."""
    s, step = "s" * (len(ranks) == 1), f"{share_of_step:.0%} of the step"
    if waits_for_device is not None:
        calls, others = (waits_for_device[key] for key in ("calls", "peers_calls"))
        return f"spend{s} {step} longer in host-device synchronisation ({calls:.0f} a step, others {others:.0f})"
    if cause == "host":
        return f"spend{s} {step} longer {_where(host_in)}"
    if cause in HOST_CAUSES:
        return f"{HOST_CAUSES[cause][not s]} for {step} longer"
    return f"compute{s} {step if share_of_compute is None else f'{share_of_compute:.0%}'} longer"


def _where(host_in: Mapping[str, Any] | None) -> str:
    """Return `in Python`, or in what the host is."""
    if host_in is None:
        return "in Python"
    source, before = host_in["source"], host_in["annotation"] == BEFORE_OPERATORS
    if source is not None:
        path, _, function = source.rpartition("): ")
        source = f"in {function} ({path.rpartition('/')[2].replace('(', ':')})"
    if host_in["operator"] is None and (before or source is not None):
        return ", ".join(filter(None, (f"{BEFORE_OPERATORS} of the step" * before, source)))
    return f"in {location_text(host_in['operator'], host_in['annotation'], host_in['source'], short=True)}"


def _action(
    ranks: Sequence[int], who: str, where: str, cause: str | None, device: str, host_in: Mapping[str, Any] | None
) -> str:
    """Return what to do about slow ranks; `where` names their host, too."""
    if cause == "host":
        known = host_in is not None and (host_in["source"] or host_in["operator"])
        if host_in is not None and host_in["annotation"] == BEFORE_OPERATORS:
            if not known:
                return f"{_RECORD_STACKS}. If it gets the batch, load ahead in workers"
            return "move what Python does there out of the step. If it gets the batch, load ahead in workers"
        if host_in is not None and host_in["operator"]:
            return f"compare what {who} run{'s' * (len(ranks) == 1)} there with what the others do"
        return "move what Python does there out of the step" if known else _RECORD_STACKS
    if cause == "operators":
        return f"look at the host of {where}: binding to cores and NUMA nodes, clock rate, other processes"
    if cause in HOST_CAUSES:
        return f"on {who}: {HOST_CAUSES[cause][2]}"
    if cause == "more_work":
        return f"give {who} as much work as others"
    processor = ("GPU" if device == "gpu" else "processor") + "s" * (len(ranks) != 1)
    return f"look at the {processor} of {where}: clock rate, heat, other processes"


def _waiting(ranks: Sequence[int], peers: int, others_wait_ns: int | None, excess_ns: int) -> str:
    """Return how long the others wait, or by how much they are late if most wait for those that wait."""
    if others_wait_ns is None or others_wait_ns < _MOST * excess_ns:
        return f"That delays a step by {milliseconds(excess_ns, 1)} ms"
    who = f"{_their(ranks).capitalize()} peer waits" if peers == 1 else "The others wait"
    return f"{who} {milliseconds(others_wait_ns, 1)} ms a step"


def _it(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "they"


def _their(ranks: Sequence[int]) -> str:
    return "its" if len(ranks) == 1 else "their"


def _peers(ranks: Sequence[int], peers: int) -> str:
    return f"{_their(ranks)} peer{'s' * (peers != 1)}"


@entry(
    "slow-link",
    "Slow link",
    "stragglers",
    NOTABLE_SAVING,
    example={
        "ranks": (1, 2),
        "directed": False,
        "slowdown": 3.1,
        "reference": "others alike",
        "steps": 10,
        "certainty": "sure",
    },
)
def slow_link(
    ranks: Sequence[int],
    directed: bool,
    slowdown: float,
    reference: str,
    steps: int,
    certainty: str,
    missing: str | None = None,
) -> Sentence:
    """Transfers over one link take longer than others of the same kind, size and members."""
    if directed:
        name = f"the link from rank {ranks[0]} to rank {ranks[1]}"
    elif len(ranks) == 2:
        name = f"the link between ranks {ranks[0]} and {ranks[1]}"
    else:
        name = f"the links between ranks {format_ranges(ranks)}"
    verb = "takes" if len(ranks) == 2 else "take"
    action = _until_sure(f"check {name}: placement, cables, other traffic", certainty, steps, missing)
    return f"{name} {verb} {slowdown:.1f} times as long {_COMPARED_WITH[reference]}", action


@entry("slow-peer", "Straggler", "whatif", NOTABLE_SAVING, example={"rank": 2})
def slow_peer(rank: int) -> Sentence:
    """A rank computes longer than its peers, which wait for its messages: there are no collectives to compare."""
    return (
        f"rank {rank} computes longer than its peers. They wait for its messages",
        f"compare what rank {rank} runs with its peers",
    )


@entry(
    "expert-load",
    "Expert imbalance",
    "tensor",
    EXPERT_RATIO,
    example={
        "rank": 5,
        "ratio": 1.83,
        "module": "layers.3.moe",
        "estimated": False,
        "recorded": 8,
        "members": 8,
        "inferred": False,
        "avoidable": True,
    },
)
def expert_load(
    rank: int,
    ratio: float,
    module: str | None,
    estimated: bool,
    recorded: int,
    members: int,
    inferred: bool,
    avoidable: bool,
) -> Sentence:
    """The experts of one rank receive clearly more tokens than those of the others.

    module: "" for the outermost one; None where it is true of all. recorded: how many of the group's members are.
    inferred: from all-to-alls of uneven sizes. avoidable: with even loads the step would be notably shorter.
    """
    amount = f"{ratio:.2f} times the mean of the others" if ratio < _NEARLY_ALL_TOKENS else "nearly all tokens"
    where = "" if module is None else f" in {module or 'the outermost module'}"
    text = f"the experts of rank {rank} receive {amount}{where}"
    if estimated:
        text += f" ({ESTIMATED})"
    if recorded < members:
        text += f" ({recorded} of the group's {members} ranks recorded)"
    if inferred:
        text += " (inferred: all-to-alls of uneven sizes)"
    return text, "even out the load: auxiliary loss, expert capacity, placement" if avoidable else None


def nobody_text(reason: str) -> str:
    """Return that no rank is named, and why."""
    return f"no rank is named: {reason}"


def nobody_is_late_text(clock_ns: int) -> str:
    """Return that none is late. clock_ns: of clocks that are too uncertain to say more; else 0."""
    if clock_ns:
        return nobody_text(f"times of different ranks can be compared to {milliseconds(clock_ns)} ms only")
    return nobody_text("none is late more than the others")


def closest_text(lack: str, size_ns: float, share_of_step: float, significance_ns: float, persistence: float) -> str:
    """Return that no rank is named, and what the one that comes closest lacks."""
    reason = {
        "size": f"{share_of_step:.1%} of a step",
        "significance": f"not significant (below {milliseconds(significance_ns)} ms)",
        "another step": "which may be chance in one step",
        "persistence": f"in {persistence:.0%} of the steps only",
        "distance": "and others cause nearly as much",
        "cause": "which its own time does not show",
    }[lack]
    return nobody_text(f"the most that one causes is {milliseconds(size_ns)} ms in the median step, {reason}")


def _until_sure(action: str, certainty: str, steps: int, missing: str | None) -> str:
    """Return an action with what would make a likely verdict sure. missing: what the recording lacks."""
    if certainty == "sure":
        return action
    if missing is not None:
        return f"{action}. Sure with {missing}"
    again = f"steps={max(_LONGER_WINDOW, 2 * steps)})"
    if "(stack=True)" in action:  # one recording is enough for both
        return f"{action.replace('stack=True)', f'stack=True, {again}')} and is sure"
    return f"{action}. Sure with tracekit.probe({again}"


def _name(ranks: Sequence[int], host: str | None) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {format_ranges(ranks)}" if host is None else f"all ranks of host {host} ({format_ranges(ranks)})"
