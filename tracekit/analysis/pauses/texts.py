"""What is said of a pause, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.pauses.rank_pause import RankPause
from tracekit.model.ranks import ranks_text

__all__ = ["action_text", "longer_text", "pause_text"]

_DISTRIBUTED = "torch.distributed.checkpoint"
# Of one rank, and of several.
_DOES = {
    "save": ("saves a checkpoint", "save a checkpoint"),
    "load": ("loads a checkpoint", "load a checkpoint"),
    "async_save": ("copies a checkpoint for the background", "copy a checkpoint for the background"),
    "await": ("waits for a checkpoint in the background", "wait for a checkpoint in the background"),
    "evaluation": ("evaluates", "evaluate"),
    "logging": ("logs", "log"),
}


def pause_text(pause: RankPause, ranks: Sequence[int], waiting: int = 0, wait_kind: str | None = None) -> str:
    """Return who pauses, for how long in how many steps, and who waits.

    ranks: who pauses about as long; empty: all ranks. waiting: how many ranks wait for them. wait_kind: the kind of
    communication in which they wait.
    """
    steps = len(pause.by_step_ns)
    often = "a step" if steps == pause.of_steps else f"in {steps} of {pause.of_steps} steps"
    text = f"{_who_does(pause, ranks)} for {pause.each_ns / 1e6:.0f} ms {often}"
    if not waiting:
        return text
    its = "its" if len(ranks) == 1 else "their"
    kind = "" if wait_kind is None else f" in {wait_kind}"
    return f"{text} while {its} {'peer waits' if waiting == 1 else 'peers wait'}{kind}"


def longer_text(pause: RankPause, ranks: Sequence[int], longer_ns: float) -> str:
    """Return by how much longer some ranks pause than the others, which pause as well."""
    return f"{_who_does(pause, ranks)} for {longer_ns / 1e6:.0f} ms a step longer than others"


def _who_does(pause: RankPause, ranks: Sequence[int]) -> str:
    who = ranks_text(ranks) if ranks else "all ranks"
    return f"{who} {_DOES[pause.action or pause.pause][len(ranks) != 1]}"


def action_text(pause: RankPause, *, everywhere: bool) -> str:
    """Return what to do about a pause. everywhere: all ranks have it."""
    match pause.action or pause.pause:
        case "save" if pause.function == _DISTRIBUTED:
            return f"save in the background: {_DISTRIBUTED}.async_save; or save less often"
        case "save" if everywhere:
            return f"let each rank save its shard in the background ({_DISTRIBUTED}.async_save), or save less often"
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
