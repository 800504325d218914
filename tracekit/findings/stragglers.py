"""Findings on who delays the others: ranks, links, and the experts of a rank. And why nobody is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.thresholds import EXPERT_RATIO, NOTABLE_SAVING
from tracekit.model.run import format_ranges
from tracekit.model.texts import milliseconds

ESTIMATED = "estimated from how long they compute, not from counts of tokens"

_LONGER_WINDOW = 10  # steps, with which a verdict on few steps may become sure
_NEARLY_ALL_TOKENS = 100.0  # times the others' load: their share is no number worth telling

_COMPARED_WITH = {
    "others alike": "as others for the same",
    "links within hosts": "as links within hosts for the same (no other between hosts carries it)",
    "links between hosts": "as links between hosts for the same (no other within a host carries it)",
    "NVLink": "as NVLink would for the same",
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
}


@entry("straggler", "stragglers", NOTABLE_SAVING, example=_STRAGGLER)
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
    longest_wait: Mapping[str, Any] | None = None,
    recorded_with: Sequence[str] = (),
    clock: Mapping[str, Any] | None = None,
) -> Sentence:
    """A rank, or ranks together, hold up the others in most steps, by more than chance and the errors of clocks.

    share_of_compute: by how much they compute longer than their peers, of how long these do; None if it tells little.
    missing: what the recording lacks to be sure. expert_load: of the rank's experts against the mean of the others, if
    that is why it computes longer. recorded_with: options of the profiler with which only these ranks were recorded.
    clock: a counter that shows that the clock of their GPUs is lower, with their rate and that of others.
    """
    text = _rank_text(
        ranks, host, cause, share_of_step, share_of_compute, peers, expert_load, estimated=expert_load_estimated
    )
    if steps == 1 and longest_wait is not None and expert_load is None:
        who = _name(ranks, None)
        longer = text.partition(", which")[0].removeprefix(f"{who} ")
        most = (
            f"rank {longest_wait['rank']} {milliseconds(longest_wait['wait_ns'], 1)} ms in one {longest_wait['kind']}"
        )
        text = f"others wait {milliseconds(others_wait_ns or 0, 1)} ms for {who} ({most}), which {longer}"
    who = _name(ranks, host)
    if expert_load is not None:
        action = f"even out the load of the experts of {who}"
    elif cause == "host":
        action = f"record {who} with stacks, and move what Python does between operations out of the step"
    elif cause == "data":
        action = f"load data ahead on {who}: more workers or faster storage"
    elif cause == "more_work":
        action = f"give {who} as much work as others"
    else:
        processor = ("GPU" if device == "gpu" else "processor") + "s" * (len(ranks) != 1)
        action = f"look at the {processor} of {who}: clock rate, heat, other processes"
    if clock is not None:
        its, rates = "its" if len(ranks) == 1 else "their", [_rate(clock[key]) for key in ("rate", "others_rate")]
        text += f"; {its} {_clock_name(clock['name'])} is {rates[0]}, the others' {rates[1]}"
        action = f"look why the clock of {who} is lower: power limit, heat"
        action += _until_sure(certainty, steps, missing)
    if recorded_with:
        text += f"; only {who} {'was' if len(ranks) == 1 else 'were'} recorded with {', '.join(recorded_with)}"
        action = "record all ranks with the same options of the profiler: these alone make a rank slower"
    return text, action + _until_sure(certainty, steps, missing)


def _clock_name(counter: str) -> str:
    """Return the part of a counter's name that says which clock it is."""
    parts = [part for part in counter.split(" · ") if not part.startswith("GPU")] or [counter]
    return next((part for part in parts if "clock" in part.lower()), parts[0])


def _rate(value: float) -> str:
    """Return a rate in GHz if its number can be one in Hz or MHz, as clocks are 0.1 to 10 GHz; else the number."""
    hertz = next((unit for unit in (1, 1e6) if 1e8 <= value * unit <= 1e10), None)
    return f"{value:,.4g}" if hertz is None else f"{value * hertz / 1e9:.2f} GHz"


def _rank_text(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    share_of_step: float,
    share_of_compute: float | None,
    peers: int,
    expert_load: float | None = None,
    *,
    estimated: bool = False,
) -> str:
    """Return what slow ranks do longer than their peers, and by how much.

    host: the machine whose ranks these are, if it has no others. share_of_compute: of how long the peers compute, if
    that is known. peers: how many ranks wait for them. expert_load: that of the rank's experts against the mean of the
    others, if it computes longer for them. estimated: from compute.
    """
    who, s = _name(ranks, host), "s" if len(ranks) == 1 else ""
    its, them = ("its", "it") if len(ranks) == 1 else ("their", "them")
    whom = f"{its} peer, which waits for {them}" if peers == 1 else f"{its} peers, which wait for {them}"
    step = f"{share_of_step:.0%} of the step"
    if cause == "host":
        return f"{who} spend{s} {step} longer between operations than {whom}"
    if cause == "data":
        return f"{who} load{s} data for {step} longer than {whom}"
    longer = step if share_of_compute is None else f"{share_of_compute:.0%}"
    more = f"{who} compute{s} {longer} longer than {whom}"
    if expert_load is not None:
        said = " (estimated)" if estimated else ""
        return f"{more}: its experts receive {expert_load:.2f} times the mean of the others{said}"
    return f"{more}: {'it has' if len(ranks) == 1 else 'they have'} more work" if cause == "more_work" else more


@entry(
    "slow-link",
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
    action = f"check {name}: placement, cables, other traffic{_until_sure(certainty, steps, missing)}"
    return f"{name} {verb} {slowdown:.1f} times as long {_COMPARED_WITH[reference]}", action


@entry("slow-peer", "whatif", NOTABLE_SAVING, example={"rank": 2})
def slow_peer(rank: int) -> Sentence:
    """A rank computes longer than its peers, which wait for its messages: there are no collectives to compare."""
    return (
        f"rank {rank} computes longer than its peers, which wait for its messages",
        f"compare what rank {rank} runs with its peers",
    )


@entry(
    "expert-load",
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
    }[lack]
    return nobody_text(f"the most that one causes is {milliseconds(size_ns)} ms in the median step, {reason}")


def _until_sure(certainty: str, steps: int, missing: str | None) -> str:
    """Return what would make a likely verdict sure; nothing if it is. missing: what the recording lacks."""
    if certainty == "sure":
        return ""
    if missing is not None:
        return f"; add {missing} to be sure"
    return f"; record {max(_LONGER_WINDOW, 2 * steps)} steps to be sure"


def _name(ranks: Sequence[int], host: str | None) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {format_ranges(ranks)}" if host is None else f"all ranks of host {host} ({format_ranges(ranks)})"
