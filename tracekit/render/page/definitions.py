"""The terms of the HTML report in a sentence or two; docs/definitions.md has the exact ones."""

from __future__ import annotations

from tracekit.render.page.contract import Definition

__all__ = ["definitions"]

_TEXT = """\
step
    On a CPU rank from the start of a step to that of the next. On a GPU rank it begins when the compute ends that was
    launched before.
step of the job
    From the latest end of the step before to the latest end of this one, over all ranks.
compute
    Time covered by kernels that are not communication; on a CPU rank by operators that do not wait.
communication
    Time covered by communication kernels; on a CPU rank by the spans of Gloo.
exposed communication
    Communication that no compute covers. It includes waiting for ranks that come later.
exposed copies
    Copies that neither compute nor communication cover.
idle
    The rest of a step. Compute, exposed communication, exposed copies and idle add up to it exactly.
overlap
    The share of communication that compute covers.
arrival
    The moment at which a rank is ready for a collective.
skew
    The time from the first to the last arrival at a collective.
lateness
    The time from the first rank's arrival to this rank's. Of a step: the longest of its collectives.
wait
    The time from a rank's arrival to the last one.
transfer
    The time from the last arrival, or from when the stream is free, to the end of a collective.
bus bandwidth
    Size by transfer time, times the factor of nccl-tests that makes kinds of collectives comparable.
caused delay
    What a rank's own slowness adds to a step. What it passes on from others is charged to these.
longest chain
    The work and communication over all ranks that bounds a step. Every moment of the step is on it once.
ranks late in turns
    Ranks take turns at being late: waiting that is due to no rank in particular.
bubble
    Time in which a rank of a pipeline has no action, from the first to the last action of its pipeline.
warm-up, drain
    Bubbles at the ends of a step that any pipeline of this schedule has.
uneven stages
    Bubbles because stages take unequal time.
late peers
    Bubbles because single actions of other stages took longer than usual.
host bound
    The device is idle because nothing was launched in time.
kernel gap
    The device is idle although work is queued.
saving
    What the replay of the run with exactly this change saves a step, with the error of the replay. Savings overlap, and
    do not add up.
slowdown S
    The replayed step divided by the one in which all ranks and steps are alike.
sure, likely
    Sure: beyond noise and the clocks' uncertainty in enough steps. Likely: the best explanation of what was recorded.
clock uncertainty
    By how much times of two ranks may be off each other. Smaller differences between ranks mean nothing.
cost of recording
    What the profiler and the capture added to a step, as the capture measured it.
exposed time of a kernel
    Compute while nothing communicates, communication while nothing computes, copies while neither runs.
exposed time of an operator
    Self time in which the device is idle; on a CPU rank, in which nothing communicates.
"""


def definitions() -> list[Definition]:
    """Return the terms in the order in which the page uses them."""
    found: list[Definition] = []
    for line in _TEXT.splitlines():
        if line.startswith(" "):
            found[-1]["text"] = f"{found[-1]['text']} {line.strip()}".strip()
        else:
            found.append(Definition(term=line, text=""))
    return found
