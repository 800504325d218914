"""In which order a rank of a pipeline runs its actions. An action is (kind, stage, microbatch)."""

from __future__ import annotations

from benchmarks.gpu_jobs.spec import JobSpec

Action = tuple[str, int, int]


def turns_of(spec: JobSpec, pp: int) -> list[tuple[Action, ...]]:
    """Return the actions of a rank, given its index in the pipeline, in turns: messages go between two turns.

    A turn is one action. Interleaved schedules with batched messages exchange them once for a forward and a backward,
    as Megatron-LM does (megatron/core/pipeline_parallel/schedules.py,
    `forward_backward_pipelining_with_interleaving`); otherwise the ranks would wait for each other.
    """
    forwards, backwards, warm_up = _order(spec, pp)
    turns: list[tuple[Action, ...]] = [(forward,) for forward in forwards[:warm_up]]
    for place, backward in enumerate(backwards):
        forward = forwards[warm_up + place : warm_up + place + 1]
        if spec.schedule == "interleaved" and spec.batched_messages:
            turns.append((*forward, backward))
        else:
            turns += [(action,) for action in (*forward, backward)]
    return turns


def _order(spec: JobSpec, pp: int) -> tuple[list[Action], list[Action], int]:
    """Return the forwards and the backwards of a rank in order, and how many forwards come before the first pair."""
    if spec.schedule == "interleaved":
        return _interleaved(spec, pp)
    forwards: list[Action] = [("F", pp, microbatch) for microbatch in range(spec.microbatches)]
    backwards: list[Action] = [("B", pp, microbatch) for microbatch in range(spec.microbatches)]
    warm_up = spec.microbatches if spec.schedule == "gpipe" else min(spec.microbatches, spec.pp - pp - 1)
    return forwards, backwards, warm_up


def _interleaved(spec: JobSpec, pp: int) -> tuple[list[Action], list[Action], int]:
    """Return the order of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021.

    Each rank takes `pp` microbatches through one of its stages before it turns to the next one.
    """
    if spec.microbatches % spec.pp:
        raise ValueError("interleaved schedules take a multiple of pp microbatches")
    order = [
        (turn, first + place)
        for first in range(0, spec.microbatches, spec.pp)
        for turn in range(spec.virtual_stages)
        for place in range(spec.pp)
    ]
    forwards: list[Action] = [("F", turn * spec.pp + pp, microbatch) for turn, microbatch in order]
    last = spec.virtual_stages - 1
    backwards: list[Action] = [("B", (last - turn) * spec.pp + pp, microbatch) for turn, microbatch in order]
    return forwards, backwards, min(len(forwards), 2 * (spec.pp - pp - 1) + last * spec.pp)
