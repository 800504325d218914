"""Puts spans around the actions of `torch.distributed.pipelining`, and describes the schedule.

A span has the kind, the stage and the microbatch. Every schedule passes a microbatch to one of three methods of a
stage, after it has waited for what the stage receives, so these spans contain no waiting. The schedule computes the
loss of the last stage; that counts as part of the stage's forward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, PatchSet
from tracekit.capture.hooks.span import span
from tracekit.capture.observers import MetadataDraft
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import pipeline_span

_STAGE = ("torch.distributed.pipelining.stage", "_PipelineStageBase")
_SCHEDULE = ("torch.distributed.pipelining.schedules", "_PipelineSchedule")
_SLUGS = {
    "_ScheduleForwardOnly": "gpipe",  # the forward half of it
    "ScheduleGPipe": "gpipe",
    "Schedule1F1B": "1f1b",
    "ScheduleInterleaved1F1B": "interleaved1f1b",
    "ScheduleLoopedBFS": "loopedbfs",
    "ScheduleInterleavedZeroBubble": "interleavedzerobubble",
    "ScheduleZBVZeroBubble": "zbv",
    "ScheduleDualPipeV": "dualpipev",
}


class PipelineObserver:
    """Holds the stages that ran until `detach`, and their groups until `contribute`."""

    def __init__(self) -> None:
        self._patches = PatchSet()
        self._stages: dict[int, Any] = {}
        self._groups: list[Any] = []
        self._layout: PipelineLayout | None = None

    def attach(self, objects: LiveObjects) -> None:
        stage, schedule = (getattr(sys.modules.get(module), name, None) for module, name in (_STAGE, _SCHEDULE))
        if stage is None or schedule is None:
            return
        patches = [
            Patch(stage, "forward_one_chunk", self._forward),
            Patch(stage, "backward_one_chunk", self._backward),
            Patch(stage, "backward_weight_one_chunk", self._backward_weight),
            Patch(schedule, "_maybe_compute_loss", _loss),
        ]
        self._patches.apply(patches)

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        if self._stages:
            stage_ids = set(self._stages)
            schedules = [s for s in objects.instances(*_SCHEDULE) if stage_ids & {id(stage) for stage in _stages_of(s)}]
            # An evaluation may have another schedule for the same stages.
            schedule = max(schedules, key=lambda s: bool(getattr(s, "_has_backward", False)), default=None)
            stages = list(self._stages.values()) if schedule is None else _stages_of(schedule)
            self._layout = _layout(schedule, stages)
            self._groups = [_group_of(stage) for stage in [*stages, *self._stages.values()]]
        self._stages = {}

    def contribute(self, draft: MetadataDraft) -> None:
        if self._layout is not None:
            for group in self._groups:
                draft.groups.set_parallelism(group, "pp")
            if len({id(group) for group in self._groups}) > 1:
                draft.note("stages of several pipelines ran on this rank; only one of the pipelines is described")
            draft.strategies.append("pp")
            number = draft.groups.id_of(self._groups[0])
            draft.pipeline = replace(self._layout, group=number)
        self._groups = []

    def _forward(self, forward: Callable[..., Any], stage: Any, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._stages[id(stage)] = stage
        with span(pipeline_span("F", stage.stage_index, fwd_chunk_id)):
            return forward(stage, fwd_chunk_id, *args, **kwargs)

    def _backward(
        self,
        backward: Callable[..., Any],
        stage: Any,
        bwd_chunk_id: int,
        loss: Any = None,
        full_backward: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if not stage.has_backward:  # an evaluation: torch calls it and it returns at once
            return backward(stage, bwd_chunk_id, loss, full_backward, *args, **kwargs)
        self._stages[id(stage)] = stage
        with span(pipeline_span("B" if full_backward else "I", stage.stage_index, bwd_chunk_id)):
            return backward(stage, bwd_chunk_id, loss, full_backward, *args, **kwargs)

    def _backward_weight(
        self, backward: Callable[..., Any], stage: Any, bwd_chunk_id: int, *args: Any, **kwargs: Any
    ) -> Any:
        if not stage.has_backward:
            return backward(stage, bwd_chunk_id, *args, **kwargs)
        with span(pipeline_span("W", stage.stage_index, bwd_chunk_id)):
            return backward(stage, bwd_chunk_id, *args, **kwargs)


def _layout(schedule: Any, stages: list[Any]) -> PipelineLayout:
    return PipelineLayout(
        schedule="unknown" if schedule is None else slug_of_schedule(type(schedule)),
        stages=int(stages[0].num_stages),
        virtual_stages=len(stages),
        microbatches=int(stages[0].chunks or 0) if schedule is None else int(schedule._n_microbatches),
        stage_ids=sorted(int(stage.stage_index) for stage in stages),
    )


def slug_of_schedule(kind: type) -> str:
    """Return the JSON name of a schedule, by its class or the known class from which it derives."""
    return next((_SLUGS[base.__name__] for base in kind.__mro__ if base.__name__ in _SLUGS), "unknown")


def _loss(
    compute: Callable[..., Any], schedule: Any, stage: Any, output: Any, targets: Any, mb_index: int, *rest: Any
) -> Any:
    if not stage.is_last or getattr(schedule, "_loss_fn", None) is None:
        return compute(schedule, stage, output, targets, mb_index, *rest)
    with span(pipeline_span("F", stage.stage_index, mb_index, loss=True)):
        return compute(schedule, stage, output, targets, mb_index, *rest)


def _stages_of(schedule: Any) -> list[Any]:
    stages = getattr(schedule, "_stages", None)
    return [schedule._stage] if stages is None and hasattr(schedule, "_stage") else list(stages or ())


def _group_of(stage: Any) -> Any:
    """Return the process group of a stage, by default the default group."""
    return stage.group or sys.modules["torch.distributed"].distributed_c10d._get_default_group()
