"""What the verdict on stragglers says of slow ranks and of a slow link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracekit.analysis.communication.link_references import Reference
from tracekit.analysis.model_parallel.overload import Overload
from tracekit.analysis.stragglers.last_arrivals import WaitsForRank
from tracekit.analysis.stragglers.slow_transfers import Link
from tracekit.model.ranks import format_ranges

_COMPARED_WITH: Mapping[Reference, str] = {
    "others alike": "as others for the same",
    "links within hosts": "as links within hosts for the same (no other between hosts carries it)",
    "links between hosts": "as links between hosts for the same (no other within a host carries it)",
    "NVLink": "as NVLink would for the same",
}

_LONGER_WINDOW = 10  # steps, with which a verdict on few steps may become sure

__all__ = ["action_text", "link_text", "rank_text", "text_of_one_step", "until_sure"]


def rank_text(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    share_of_step: float,
    share_of_compute: float | None,
    peers: int,
    overload: Overload | None = None,
) -> str:
    """Return what slow ranks do longer than their peers, and by how much.

    host: the machine whose ranks these are, if it has no others. share_of_compute: of how long the peers compute, if
    that is known. peers: how many ranks wait for them. overload: the load of the rank's experts, if it computes longer
    for them.
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
    if overload is not None:
        estimated = " (estimated)" if overload.estimated else ""
        return f"{more}: its experts receive {overload.ratio:.2f} times the mean of the others{estimated}"
    return f"{more}: {'it has' if len(ranks) == 1 else 'they have'} more work" if cause == "more_work" else more


def text_of_one_step(text: str, waits: WaitsForRank) -> str:
    """Return what a rank does longer in the only step, and how long others wait for it, from a text of `rank_text`."""
    who, longest = _name([waits.rank], None), waits.longest
    longer = text.partition(", which")[0].removeprefix(f"{who} ")
    most = f"rank {longest.rank} {longest.wait_ns / 1e6:.1f} ms in one {longest.kind}"
    return f"others wait {waits.mean_ns / 1e6:.1f} ms for {who} ({most}), which {longer}"


def link_text(link: Link) -> str:
    """Return how much longer than others a slow link takes."""
    verb = "takes" if len(link.ranks) == 2 else "take"
    return f"{_link_name(link)} {verb} {link.slowdown:.1f} times as long {_COMPARED_WITH[link.reference]}"


def action_text(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    link: Link | None = None,
    overload: bool = False,
    device: str = "cpu",
) -> str:
    """Return what to do about slow ranks or a slow link. device: of the run, cpu, gpu or mixed."""
    if link is not None:
        return f"check {_link_name(link)}: placement, cables, other traffic"
    who = _name(ranks, host)
    if overload:
        return f"even out the load of the experts of {who}"
    match cause:
        case "host":
            return f"record {who} with stacks, and move what Python does between operations out of the step"
        case "data":
            return f"load data ahead on {who}: more workers or faster storage"
        case "more_work":
            return f"give {who} as much work as others"
        case _:
            processor = ("GPU" if device == "gpu" else "processor") + "s" * (len(ranks) != 1)
            return f"look at the {processor} of {who}: clock rate, heat, other processes"


def until_sure(steps: int, missing: str | None) -> str:
    """Return what would make a likely verdict sure. missing: what the recording lacks."""
    if missing is not None:
        return f"add {missing} to be sure"
    return f"record {max(_LONGER_WINDOW, 2 * steps)} steps to be sure"


def _name(ranks: Sequence[int], host: str | None) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {format_ranges(ranks)}" if host is None else f"all ranks of host {host} ({format_ranges(ranks)})"


def _link_name(link: Link) -> str:
    if link.directed:
        return f"the link from rank {link.ranks[0]} to rank {link.ranks[1]}"
    if len(link.ranks) == 2:
        return f"the link between ranks {link.ranks[0]} and {link.ranks[1]}"
    return f"the links between ranks {format_ranges(link.ranks)}"
