"""Findings on ranks whose device has nothing to do: late hosts, loading of data, pauses, and what is not recorded."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.thresholds import (
    BLOCKING_LAUNCHES,
    CLEAR_ERRORS,
    IDLE_SHARE,
    NOTABLE_SAVING,
    NOTABLE_SHARE,
    UNCLASSIFIED_SHARE,
    UNKNOWN_SHARE,
)
from tracekit.model.run import ranks_text
from tracekit.model.texts import milliseconds, shortened

RULE_OPTION = "--communication-rule"
_LONGEST_NAME = 36
_LONGEST_TEXT = 140


class _IdleCause(NamedTuple):
    """Why a device idles: the id of the finding, its term, what it means, the cause in words, and what to do."""

    id: str
    term: str
    meaning: str
    reason: str
    action: str


DO_NOT_WAIT = "do not read results on the host in every step (.item(), .cpu(), boolean indexing)"
_IDLE_CAUSES = {
    "host_bound": _IdleCause(
        "launch-bound",
        "Launch-bound",
        "The host launches work later than the device could begin it.",
        "kernels launched too late",
        'launch fewer, larger kernels: torch.compile, or CUDA graphs (mode="reduce-overhead")',
    ),
    "kernel_gap": _IdleCause(
        "kernel-gaps",
        "Kernel gaps",
        "Kernels are queued, and the device still pauses between them: they are many and short.",
        "gaps between queued kernels",
        "launch fewer, larger kernels (torch.compile), or use CUDA graphs, whose gaps are shorter",
    ),
    "synchronisation": _IdleCause(
        "host-synchronisation",
        "Synchronisation",
        "The host waited until the device was done, so that nothing was queued behind.",
        "host-device synchronisation",
        DO_NOT_WAIT,
    ),
    "graph_capture": _IdleCause(
        "graph-capture",
        "Graph capture",
        "The host captures a graph of kernels, which do not run meanwhile.",
        "capture of CUDA graphs",
        "capture each graph once, before training; each new input shape is captured again",
    ),
    "allocator": _IdleCause(
        "allocator-stalls",
        "Allocator stalls",
        "The host allocates memory of the device while nothing runs there.",
        "allocation of memory",
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "garbage_collection": _IdleCause(
        "garbage-collection",
        "Garbage collection",
        "Python collects garbage while nothing runs on the device.",
        "Python's garbage collection",
        "call gc.freeze() after set-up, or gc.disable() and gc.collect() every 100 steps",
    ),
    "host_compute": _IdleCause(
        "host-compute",
        "Host compute",
        "Operators compute on the host while nothing runs on the device, such as an optimizer whose state is there.",
        "operators on the CPU",
        "compute on the GPU, or overlap it; torch.compile and CUDA graphs do not help",
    ),
    "between_steps": _IdleCause(
        "idle-between-steps",
        "Idle between steps",
        "The host does something else between two steps.",
        "host work between steps",
        "do what runs between the steps less often, or in another thread",
    ),
}
_OF_COMPILED = "launch fewer, larger kernels: compile the rest of the step as well, such as the optimizer"
BEFORE_OPERATORS = "before the first operator"
"""The annotation of Python code before the first operator of its step, where a host may be."""
_PYTHON = "shorten the Python code outside of operators, or move it to another thread"

_DISTRIBUTED = "torch.distributed.checkpoint"
# Of one rank, and of several.
_PAUSES = {
    "save": ("saves a checkpoint", "save a checkpoint"),
    "load": ("loads a checkpoint", "load a checkpoint"),
    "async_save": ("copies a checkpoint for the background", "copy a checkpoint for the background"),
    "await": ("waits for a checkpoint in the background", "wait for a checkpoint in the background"),
    "evaluation": ("evaluates", "evaluate"),
    "logging": ("logs", "log"),
}


IDLE_CAUSES = tuple(_IDLE_CAUSES)
"""Causes of idle time that a finding may name."""
HOST_CAUSES = {
    "copy": ("copies", "copy", "copy from pinned memory (pin_memory=True), and check the links between host and GPU"),
    "data": ("loads data", "load data", "load data ahead: more workers or faster storage"),
    "logging": ("logs", "log", "log less often, or from another thread"),
    "checkpoint": ("saves or loads checkpoints", "save or load checkpoints", "save in the background, or less often"),
    "allocator": ("allocates memory", "allocate memory", _IDLE_CAUSES["allocator"].action),
    "garbage_collection": ("collects garbage", "collect garbage", _IDLE_CAUSES["garbage_collection"].action),
    "host_compute": ("computes on the host", "compute on the host", _IDLE_CAUSES["host_compute"].action),
}
"""What a late host does: of one rank, of several, and what to do about it."""


# ---- idle devices ---------------------------------------------------------------------------------------------------
def _idle(
    device: str,
    share: float,
    aside: Sequence[str],
    main: Mapping[str, Any],
    second: Mapping[str, Any] | None,
    compiled: bool,
) -> Sentence:
    """Return the sentence on idle time.

    aside: what else the devices wait for, with findings of their own.
    main: the cause with the most time: its `cause`, its `share` of the idle time, the `location` where the host was
        longest and the share of that (None if no location stands out), and whether that is mostly Python outside of
        operators.
    second: the same of another cause that is worth naming.
    """
    what = {"gpu": "the GPU idles", "cpu": "no operator or communication runs for", "mixed": "nothing runs for"}
    text = f"{what[device]} {share:.0%} of the step"
    if aside:
        text += f" ({' and '.join(aside)} aside)"
    most = f"{main['share']:.0%}".replace("100%", "All")
    text += f". {most} of that: {_idle_reason(main, device)}"
    if second is not None:
        text += f"; {second['share']:.0%}: {_idle_reason(second, device)}"
        if second["cause"] == "synchronisation" and second["location"] is not None:
            text = _with_room(text, f" in {second['location']}")
    elif main["location_share"] is not None:
        text = _with_room(text, f", longest in {main['location']} ({main['location_share']:.0%})")
    causes = [cause for cause in (main, second) if cause is not None]
    return text, ". ".join(_idle_action(cause, device, compiled) for cause in causes)


def _idle_reason(cause: Mapping[str, Any], device: str) -> str:
    is_python = cause["cause"] == "host_bound" and device == "cpu"
    return "Python outside of operators" if is_python else _IDLE_CAUSES[cause["cause"]].reason


def _idle_action(cause: Mapping[str, Any], device: str, compiled: bool) -> str:
    name = cause["cause"]
    if name == "host_bound" and (device == "cpu" or cause["in_python"]):
        return _PYTHON
    if name == "host_bound" and compiled:
        return _OF_COMPILED
    if name == "host_compute" and (cause["location"] or "").startswith("Optimizer."):
        return "keep the optimizer on the device, or overlap it; torch.compile and CUDA graphs do not help"
    if name == "synchronisation" and cause["location"] is not None:
        return f"{_IDLE_CAUSES[name].action}: {cause['location']} does"
    return _IDLE_CAUSES[name].action


def _with_room(text: str, more: str) -> str:
    """Return the text with more of it, if that is not too long."""
    return text + more if len(text) + len(more) <= _LONGEST_TEXT else text


def _idle_example(cause: str) -> dict[str, object]:
    location = {"host_bound": "aten::index", "synchronisation": "aten::item (train.py:41)"}.get(cause)
    main = {"cause": cause, "share": 0.81, "location": location, "location_share": location and 0.4, "in_python": False}
    return {"device": "gpu", "share": 0.34, "aside": (), "main": main, "second": None, "compiled": False}


def _idle_term(cause: _IdleCause) -> str | Callable[[Mapping[str, object]], str]:
    """Return the term of a cause. A CPU rank launches no kernels: there it is Python that runs."""
    if cause is not _IDLE_CAUSES["host_bound"]:
        return cause.term
    return lambda numbers: "Python overhead" if numbers["device"] == "cpu" else cause.term


_OF_IDLE = ("breakdown", NOTABLE_SAVING, CLEAR_ERRORS, IDLE_SHARE)
IDLE_ENTRIES = {
    cause: entry(each.id, _idle_term(each), *_OF_IDLE, meaning=each.meaning, example=_idle_example(cause))(_idle)
    for cause, each in _IDLE_CAUSES.items()
}


@entry(
    "idle-unexplained",
    "Unexplained idle time",
    "breakdown",
    UNKNOWN_SHARE,
    example={"device": "gpu", "unknown_share": 0.93, "in_graphs": True},
)
def idle_unexplained(device: str, unknown_share: float, in_graphs: bool) -> Sentence:
    """Work was queued, or the host waited, and what ran meanwhile is not recorded: idle time is not known.

    in_graphs: most of the time is within replays of CUDA graphs, which lack kernels.
    """
    if in_graphs:
        text = f"kernels of replayed CUDA graphs are not recorded. For {unknown_share:.0%} of the step"
        return f"{text} it is not known whether the GPU idles", None
    if device == "cpu":
        return f"for {unknown_share:.0%} of the step hosts wait for something that is not recorded", None
    text = f"no recorded kernel runs for {unknown_share:.0%} of the step, and no late launch shows why"
    return text, "see with nvidia-smi whether another process uses the GPU"


def location_text(
    operator: str | None, annotation: str | None, source: str | None = None, *, short: bool = False
) -> str:
    """Return `aten::index`, `Python in ## forward ##` or `Python`, with the source if it is given.

    short: of the source only the file and line, and few letters.
    """
    if short and source is not None:
        source = source.rpartition("): ")[0].rpartition("/")[2].replace("(", ":")
    within = "" if annotation is None else f" {'in ' * (annotation != BEFORE_OPERATORS)}{annotation}"
    name = operator or f"Python{within}"
    text = name if source is None else f"{name} ({source})"
    return shortened(text, _LONGEST_NAME) if short and annotation != BEFORE_OPERATORS else text


@entry(
    "launches-that-block",
    "Blocking launches",
    "breakdown",
    BLOCKING_LAUNCHES,
    example={
        "launches_per_step": 43,
        "behind_per_step": 43,
        "exposed_share": 0.19,
        "idle_share": 0.08,
        "variables": ["CUDA_LAUNCH_BLOCKING"],
    },
)
def launches_that_block(
    launches_per_step: int,
    behind_per_step: int,
    exposed_share: float,
    idle_share: float,
    variables: Sequence[str],
    ranks: Sequence[int] = (),
) -> Sentence:
    """Each launch waits until its kernel has ended, as a variable for debugging tells it to: nothing can overlap."""
    text = (
        f"{behind_per_step} of {launches_per_step} launches a step{f' on {ranks_text(ranks)}' if ranks else ''} wait "
        f"for their kernel, so nothing overlaps. Exposed communication: {exposed_share:.0%} of the step. "
        f"Idle: {idle_share:.0%}"
    )
    return text, f"unset {' and '.join(variables)}, which {'is' if len(variables) == 1 else 'are'} for debugging"


@entry(
    "data-loading",
    "Data loading",
    "phases",
    NOTABLE_SHARE,
    example={"data_share": 0.24, "rank": 1, "worst_share": 0.41},
)
def data_loading(data_share: float, rank: int, worst_share: float | None) -> Sentence:
    """Ranks do nothing but load data for a notable share of the step."""
    text = f"{data_share:.0%} of the step is waiting for the data loader"
    if worst_share is not None:
        text += f". Rank {rank} waits most: {worst_share:.0%}"
    return text, "load ahead in workers: num_workers and prefetch_factor of the DataLoader"


# ---- pauses ---------------------------------------------------------------------------------------------------------
def _pause(
    ranks: Sequence[int],
    does: str,
    function: str | None,
    each_ns: float,
    steps_with_it: int,
    steps: int,
    waiting: int,
    wait_kind: str | None,
) -> Sentence:
    text = pause_text(ranks, does, each_ns, steps_with_it, steps, waiting, wait_kind)
    return text, _pause_action(does, function, everywhere=not ranks)


PAUSE_ENTRIES = {
    pause: entry(
        f"{pause}-pause",
        pause.capitalize(),
        "pauses",
        NOTABLE_SHARE,
        meaning=f"Training pauses for {what}: ranks pause for a notable share of the step, or others wait for them so.",
        example={
            "ranks": (0,),
            "does": does,
            "function": "torch.save" if does == "save" else None,
            "each_ns": 310_000_000,
            "steps_with_it": 2,
            "steps": 10,
            "waiting": 3,
            "wait_kind": "all_reduce",
        },
    )(_pause)
    for pause, what, does in (
        ("checkpoint", "checkpoints", "save"),
        ("evaluation", "evaluation", "evaluation"),
        ("logging", "logging", "logging"),
    )
}


def pause_text(
    ranks: Sequence[int],
    does: str,
    each_ns: float,
    steps_with_it: int,
    steps: int,
    waiting: int = 0,
    wait_kind: str | None = None,
) -> str:
    """Return who pauses, for how long in how many steps, and who waits.

    ranks: who pauses about as long; empty: all ranks. waiting: how many ranks wait for them. wait_kind: the kind of
    communication in which they wait.
    """
    often = "a step" if steps_with_it == steps else f"in {steps_with_it} of {steps} steps"
    text = f"{_who_pauses(ranks, does)} for {milliseconds(each_ns, 0)} ms {often}"
    if not waiting:
        return text
    its = "Its" if len(ranks) == 1 else "Their"
    kind = "" if wait_kind is None else f" in {wait_kind}"
    return f"{text}. {its} {'peer waits' if waiting == 1 else 'peers wait'}{kind}"


def longer_pause_text(ranks: Sequence[int], does: str, longer_ns: float) -> str:
    """Return by how much longer some ranks pause than the others, which pause as well."""
    return f"{_who_pauses(ranks, does)} for {milliseconds(longer_ns, 0)} ms a step longer than the others"


def _who_pauses(ranks: Sequence[int], does: str) -> str:
    return f"{ranks_text(ranks) if ranks else 'all ranks'} {_PAUSES[does][len(ranks) != 1]}"


def _pause_action(does: str, function: str | None, *, everywhere: bool) -> str:
    match does:
        case "save" if function == _DISTRIBUTED:
            return f"save in the background ({_DISTRIBUTED}.async_save), or less often"
        case "save" if everywhere:
            return f"save shards in the background ({_DISTRIBUTED}.async_save), or less often"
        case "save":
            return f"save in the background ({_DISTRIBUTED}.async_save), or less often"
        case "load":
            return "load once, before the training"
        case "async_save":
            return "save less often, or copy into pinned memory: the stager's use_pinned_memory"
        case "await":
            return "save less often: the next checkpoint begins before the last one is written"
        case "evaluation" if not everywhere:
            return "evaluate on all ranks, each its part of the data, or less often"
        case "evaluation":
            return "evaluate less often, or on fewer batches"
        case _:
            return "log less often, or from another thread"


# ---- communication that is not known as such ------------------------------------------------------------------------
@entry(
    "unclassified-communication",
    "Unclassified kernels",
    "breakdown",
    UNCLASSIFIED_SHARE,
    example={"unclassified_share": 0.12, "pattern": "my_ring_kernel", "kind": "all_reduce", "others": 1},
)
def unclassified_communication(unclassified_share: float, pattern: str, kind: str, others: int) -> Sentence:
    """Kernels look like communication, and no rule says what they do: nobody may conclude that all is well."""
    text = f"kernels that look like communication take {unclassified_share:.0%} of the step, and no rule names them"
    if others:
        text += f". {others} more {'has' if others == 1 else 'have'} no rule"
    rule = shlex.join([RULE_OPTION, f"{pattern}={kind}"])
    return text, f"say what they do: {rule}, with another kind, or with compute"


@entry("no-communication", "No communication", "breakdown", example={"ranks": 4, "world_size": 8})
def no_communication(ranks: int, world_size: int | None) -> Sentence:
    """A job of several ranks on GPUs shows no communication at all. ranks: how many are recorded."""
    whose = f"on any of the {ranks} ranks" if ranks > 1 else f"in a job of {world_size} ranks"
    return (
        f"none is recorded {whose}. Who waits for whom is not known",
        f"if kernels communicate, name them with {RULE_OPTION} 'REGEX=KIND' ('tracekit info --kernels' lists all)",
    )
