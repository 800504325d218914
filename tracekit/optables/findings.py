"""Findings on pipelines that another tracer recorded: a rank that is slow, stalls, and waits far longer than usual."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.findings.catalogue import Sentence, entry
from tracekit.model.run import ranks_text
from tracekit.model.texts import count_text, milliseconds


@entry(
    "persistent-straggler",
    "Straggler",
    "optables",
    example={"rank": 3, "beyond_ns": 18_400_000, "share": 0.12, "peers": 3, "shown": 19, "steps": 20},
)
def persistent_straggler(rank: int, beyond_ns: float, share: float, peers: int, shown: int, steps: int) -> Sentence:
    """A rank computes longer than its peers of the same stage, in most steps."""
    text = (
        f"rank {rank} computes {milliseconds(beyond_ns, 1)} ms a step ({share:.0%}) longer than its "
        f"{'peer' if peers == 1 else 'peers'} of the same stage, in {shown} of {steps} steps"
    )
    return text, f"compare rank {rank}'s device and machine with those of its peers"


@entry(
    "stalls",
    "Stalls",
    "optables",
    example={
        "pattern": "wandering",
        "count": 14,
        "ranks": (0, 2, 5),
        "rank": None,
        "beyond_ns": 231_000_000,
        "steps_with_it": 9,
        "steps": 20,
        "others_are_slow": False,
    },
)
def stalls(
    pattern: str,
    count: int,
    ranks: Sequence[int],
    rank: int | None,
    beyond_ns: float,
    steps_with_it: int,
    steps: int,
    others_are_slow: bool,
) -> Sentence:
    """Operations take far longer than others alike: here and there, of one rank, in one microbatch, or once."""
    operations, in_steps = count_text(count, "operation"), f"in {steps_with_it} of {steps} steps"
    where, longer = (
        f"{operations} on {len(ranks)} ranks, {in_steps}",
        f"{milliseconds(beyond_ns, 1)} ms longer than usual",
    )
    action = "look for garbage collection, data loading, checkpoints or other jobs at these times"
    match pattern:
        case "wandering":
            return f"each time another rank: {where}, last {longer} in all", action
        case "microbatches":
            return (
                f"forward and backward of the same microbatches are longer: {where}",
                "make microbatches even, such as by the length of their sequences",
            )
        case "recurring":
            return f"rank {rank} stalls again and again: {operations}, {in_steps}, last {longer} in all", action
        case _:
            also = "" if others_are_slow else ". No rank is slow otherwise"
            lasts = f"{'lasts' if count == 1 else 'last'} {longer}, {in_steps}"
            return f"{operations} of {ranks_text(ranks)} {lasts}{also}", action


@entry(
    "slow-transfers",
    "Slow transfers",
    "optables",
    example={
        "steps_with_it": 2,
        "steps": 20,
        "step": 7,
        "operation": "forward-recv",
        "duration_ns": 81_000_000,
        "usual_ns": 4_100_000,
    },
)
def slow_transfers(
    steps_with_it: int, steps: int, step: int, operation: str, duration_ns: float, usual_ns: float
) -> Sentence:
    """Ranks wait far longer than usual for messages or collectives in some steps."""
    text = (
        f"ranks wait far longer than usual for messages or collectives in {steps_with_it} of {steps} steps. In step "
        f"{step} a {operation} takes {milliseconds(duration_ns, 1)} ms instead of {milliseconds(usual_ns, 1)}"
    )
    return text, "look at the network and at the hosts at these times"
