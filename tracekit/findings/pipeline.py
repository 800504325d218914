"""Findings on pipelines: bubbles with their causes, and stages that do not take equally long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.thresholds import BUBBLE_RATIO, NOTABLE_SHARE
from tracekit.model.run import ranks_text
from tracekit.model.texts import milliseconds

_SHOWN_SHARE = 0.01  # of the pipeline's time: a smaller part of the bubbles is not named


@entry(
    "pipeline-bubble",
    "Pipeline bubble",
    "pipeline",
    BUBBLE_RATIO,
    example={
        "bubble_ratio": 0.43,
        "named_ratio": 0,
        "ideal_bubble_ratio": 0.27,
        "warmup_ns": 12_000_000,
        "drain_ns": 12_000_000,
        "imbalance_ns": 9_000_000,
        "transfer_ns": 5_000_000,
        "late_peer_ns": 1_000_000,
        "other_ns": 0,
        "schedule": "16 microbatches of half the size",
    },
)
def pipeline_bubble(
    bubble_ratio: float,
    named_ratio: float,
    ideal_bubble_ratio: float | None,
    warmup_ns: int,
    drain_ns: int,
    imbalance_ns: int,
    transfer_ns: int,
    late_peer_ns: int,
    other_ns: int,
    schedule: str | None,
) -> Sentence:
    """Ranks of the pipeline idle for a notable part of its time, by the order of its actions or by what delays them.

    bubble_ratio: without `named_ratio`, which the stage, rank or link of another finding causes. schedule: what to try,
    which saves most by a replay.
    """
    parts_ns = {
        "warm-up and drain": warmup_ns + drain_ns,
        "uneven stages": imbalance_ns,
        "transfers": transfer_ns,
        "late peers": late_peer_ns,
        "other": other_ns,
    }
    # Replays of typical times may have more idle time than there was: then a later cause is negative. In words no cause
    # has more than what is left.
    total_ns = sum(parts_ns.values())
    reached_ns = [min(most, total_ns) for most in accumulate(accumulate(parts_ns.values()), max)]
    shown_ns = (after - before for before, after in pairwise([0, *reached_ns]))
    shares = {name: bubble_ratio * part_ns / max(total_ns, 1) for name, part_ns in zip(parts_ns, shown_ns, strict=True)}
    shares["cause of another finding"] = named_ratio
    largest_first = sorted(shares.items(), key=lambda part: -part[1])
    parts = [f"{name} {share:.0%}" for name, share in largest_first if share >= _SHOWN_SHARE]
    least = "" if ideal_bubble_ratio is None else f" (this schedule needs {ideal_bubble_ratio:.0%})"
    text = f"bubbles take {bubble_ratio + named_ratio:.0%} of the pipeline's time{least}: {', '.join(parts)}"
    if schedule is not None:
        return text, f"try {schedule}"
    if largest_first[0][0] == "late peers":
        return text, "look in the schedule for actions that take longer than usual: these make peers late"
    return text, None


@entry(
    "uneven-stage",
    "Uneven stages",
    "pipeline",
    example={
        "stage": 2,
        "ranks": (2,),
        "factor": 1.52,
        "work_ns": 6_080_000,
        "others_ns": 4_000_000,
        "fastest": 0,
    },
)
def uneven_stage(
    stage: int, ranks: Sequence[int], factor: float, work_ns: int, others_ns: int, fastest: int
) -> Sentence:
    """One stage takes longer than those of other ranks in most steps, and all of its ranks compute more."""
    text = (
        f"stage {stage} ({ranks_text(ranks)}) takes {factor:.2f} times as long as the other stages: "
        f"{milliseconds(work_ns)} against {milliseconds(others_ns)} ms a microbatch"
    )
    return text, f"move layers from it to the other stages, first to stage {fastest}"


@entry("uneven-stages", "Uneven stages", "whatif", NOTABLE_SHARE, example={})
def uneven_stages() -> Sentence:
    """The step would be shorter if all stages took equally long, by a replay, and no single one is to blame."""
    return "the stages of the pipeline do not take equally long", "move layers from slow stages to quick ones"
