"""Pipelines of forwards only, one stage a rank, in which every action runs as soon as it can. Times are nanoseconds.

The forward of microbatch m takes 100 on each stage. Without transfers, stage s runs it from 100 (s + m) on. A step of p
stages and n microbatches takes 100 (p + n - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.exchanges import Message, actions, rank, run_of
from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline, measure_pipeline
from tracekit.explain.pipeline.steps import pipeline_steps
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.explain.pipeline.transfers import message_exchanges
from tracekit.job.messages import match_messages
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run

_FORWARD_NS = 100
_STEP_NS = 1_000_000  # from the beginning of a step to that of the next one
_Times = Callable[[int, int], int]


def line(
    stages: int,
    microbatches: int,
    *,
    steps: Sequence[int] = (5,),
    reversed_steps: Sequence[int] = (),
    longer: _Times = lambda _step, _stage: 0,
    transfers: Sequence[int] = (),
    pause: int = 0,
    paused_stage: int = 0,
    columns: dict[str, Callable[[int], int]] | None = None,
) -> tuple[Run, MeasuredPipeline]:
    """Return a line of stages.

    reversed_steps: in which the last microbatch runs first. longer: by how much forwards of a step and a stage take
    longer. transfers: after each stage but the last. pause: before each action of one stage. columns: of `Actions`,
    values by stage.
    """
    rows: list[list[Actions]] = [[] for _ in range(stages)]
    for number in steps:
        numbers = range(microbatches)[:: -1 if number in reversed_steps else 1]
        arrived = [number * _STEP_NS] * microbatches
        for stage in range(stages):
            free, spans = number * _STEP_NS, []
            for place, microbatch in enumerate(numbers):
                start = max(free, arrived[place]) + pause * (stage == paused_stage)
                free = start + _FORWARD_NS + longer(number, stage)
                arrived[place] = free + (transfers[stage] if transfers and stage < stages - 1 else 0)
                spans.append(("F", microbatch, start, free))
            rows[stage].append(actions(*spans, stage=stage, step=number))
    of_stages = []
    for stage, parts in enumerate(rows):
        every = Actions.concatenate(parts)
        extra = {name: np.full(len(every), values(stage)) for name, values in (columns or {}).items()}
        of_stages.append(replace(every, **extra))
    return measured_run(of_stages, steps=steps)


def measured_run(
    stages: Sequence[Actions], messages: Sequence[Sequence[Message]] = (), *, steps: Sequence[int] = (5,)
) -> tuple[Run, MeasuredPipeline]:
    """Return a pipeline with these actions of each rank."""
    count = len(stages)
    layout = PipelineLayout(schedule="gpipe", stages=count, virtual_stages=1, microbatches=1, stage_ids=[0])
    members = [
        rank(
            stage,
            messages[stage] if messages else (),
            actions=of_stage,
            pipeline=layout,
            pipeline_ranks=tuple(range(count)),
            steps=steps,
        )
        for stage, of_stage in enumerate(stages)
    ]
    members = [
        replace(m, steps=tuple(replace(step, start_ns=step.step * _STEP_NS) for step in m.steps)) for m in members
    ]
    run = run_of(members)
    run = run_of(members, messages=match_messages(members, run.clocks)[0])
    (found,) = pipeline_steps(run, members, {member.rank: member[ACTIONS] for member in members})
    measured = measure_pipeline(found, message_exchanges(run))
    assert measured is not None
    return run, measured
