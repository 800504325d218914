"""What would shorten a pipeline's step, and by how much: predicted by replays of other orders and other stages.

Comes in: pipelines as their steps show them. Goes out: the stage that takes longer than the others, if one does;
`Move`s, the most worthwhile first; and findings.

All predictions start from the replay of the order that was run with typical times (R2 of `pipeline_replays`): a stage's
mean for each kind of action, the median of each edge. What late peers and the host add to that is taken to grow with
the number of actions, and counts as uncertain. Half a microbatch, and half a stage, take half the time; a transfer
takes as long as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline, Typical, pipeline_replay
from tracekit.analysis.pipeline.schedules import ORDERED_SCHEDULES, Order, order_of_schedule, schedule_of_order
from tracekit.analysis.pipeline.transfers import edges_between_ranks
from tracekit.analysis.replay.replay import Float64
from tracekit.model.events import ABSENT
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Finding
from tracekit.model.spans import ACTION_KINDS

__all__ = ["Move", "UnevenStage", "order_that_was_run", "pipeline_findings", "pipeline_moves", "uneven_stage"]

_EVEN = "all stages take equally long"
_UNEVEN = 1.15  # times as long as the others
_PERSISTENT = 0.75  # of the steps
_MORE_COMPUTE = 1.05  # times that of other ranks, which may have several stages
_WORTH = 0.02  # of the span of a step
_ERRORS = 2  # a saving is told from none beyond this many of its errors
_NOTABLE = 0.1
_SHOWN = 0.01  # of the pipeline's time
_BEYOND = 0.05  # more bubbles than the least are worth a warning


@dataclass(frozen=True, kw_only=True)
class UnevenStage:
    """A stage that takes `factor` times as long for a microbatch as the median of the others; `fastest` of these takes
    the least.
    """

    stage: int
    ranks: tuple[int, ...]
    factor: float
    work_ns: int
    others_ns: int
    fastest: int


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change, by how much it would shorten a step, and the uncertainty of that."""

    what: str
    saves_ns_per_step: int
    error_ns: int
    share: float


def uneven_stage(pipelines: Sequence[MeasuredPipeline], compute_ns: Mapping[int, float]) -> UnevenStage | None:
    """The slowest stage, if it is slower than the others in most steps, and all of its ranks compute more than theirs:
    where one slow rank has the others of its stage wait in collectives, the stage is not to blame. compute_ns: of each
    rank, a step.
    """
    stages = max(int(p.stage.max()) for own in pipelines for p in own.programs) + 1
    if stages < 2:
        return None
    ranks: set[int] = set()
    each = []
    for own in pipelines:
        for program in own.programs:
            work_ns, forwards = np.zeros((stages, len(program.steps))), np.zeros(stages)
            np.add.at(work_ns, program.stage, program.work_ns)
            np.add.at(forwards, program.stage, program.kind == ACTION_KINDS.index("F"))
            each.append(work_ns / np.maximum(forwards, 1)[:, None])
    of_step_ns = np.concatenate(each, axis=1)
    mean_ns = of_step_ns.mean(axis=1)
    slowest = int(mean_ns.argmax())
    others_ns = float(np.median(np.delete(mean_ns, slowest)))
    persistent = (of_step_ns.argmax(axis=0) == slowest).mean() >= _PERSISTENT
    if not persistent or not others_ns or mean_ns[slowest] < _UNEVEN * others_ns:
        return None
    for own in pipelines:
        for program in own.programs:
            ranks |= {own.ranks[place] for place in np.unique(program.rank[program.stage == slowest]).tolist()}
    others = [compute_ns[rank] for own in pipelines for rank in own.ranks if rank not in ranks]
    if others and min(compute_ns[rank] for rank in ranks) < _MORE_COMPUTE * float(np.median(others)):
        return None
    return UnevenStage(
        stage=slowest,
        ranks=tuple(sorted(ranks)),
        factor=float(mean_ns[slowest] / others_ns),
        work_ns=round(float(mean_ns[slowest])),
        others_ns=round(others_ns),
        fastest=int(mean_ns.argmin()),
    )


def order_that_was_run(measured: MeasuredPipeline) -> list[Order]:
    """In most steps."""
    program = max(measured.programs, key=lambda p: len(p.steps))
    return [
        [
            (ACTION_KINDS[program.kind[i]], int(program.stage[i]), int(program.microbatch[i]))
            for i in np.flatnonzero(program.rank == place).tolist()
        ]
        for place in range(len(measured.ranks))
    ]


def pipeline_moves(measured: MeasuredPipeline, virtual_stages: int, microbatches: int) -> tuple[Move, ...]:
    """What surely saves something, and 2 % of the time from the first to the last action."""
    orders = order_that_was_run(measured)
    ranks, typical = len(orders), measured.typical
    spans_ns = np.concatenate([program.span_ns for program in measured.programs])
    measured_ns = float(spans_ns.mean())
    at_once = _posted_at_once(measured)

    def stage_ns(kind: int, stage: int) -> float:
        return float(typical.of_stage[kind, stage])

    base_ns = _span_ns(orders, stage_ns, typical, at_once)
    beyond_ns = measured_ns - base_ns
    spread_ns = float(spans_ns.std(ddof=1)) / len(spans_ns) ** 0.5 if len(spans_ns) > 1 else 0.0
    moves: list[Move] = []

    def consider(what: str, changed: Sequence[Order] | None, duration_ns: Callable[[int, int], float]) -> None:
        if changed is None:
            return
        saves_ns = base_ns - _span_ns(changed, duration_ns, typical, at_once)
        more_ns = beyond_ns * (len(changed[0]) / len(orders[0]) - 1)
        error_ns = float(np.sqrt((saves_ns * beyond_ns / measured_ns) ** 2 + more_ns**2 + spread_ns**2))
        saves_ns -= max(more_ns, 0.0)
        if saves_ns > max(_ERRORS * error_ns, _WORTH * measured_ns):
            share = saves_ns / measured_ns
            moves.append(Move(what=what, saves_ns_per_step=round(saves_ns), error_ns=round(error_ns), share=share))

    consider(_EVEN, orders, lambda kind, stage: float(typical.of_kind[kind]))
    trains = any(kind == "B" for kind, _, _ in orders[0])
    schedule = schedule_of_order(orders) if trains else "unknown"
    if schedule in ORDERED_SCHEDULES:
        consider(
            f"{2 * microbatches} microbatches of half the size",
            order_of_schedule(schedule, ranks, virtual_stages, 2 * microbatches),
            lambda kind, stage: stage_ns(kind, stage) / 2,
        )
    if schedule in {"gpipe", "1f1b"}:
        consider(
            "the interleaved schedule with each stage cut in two",
            order_of_schedule("interleaved1f1b", ranks, 2, microbatches),
            lambda kind, stage: stage_ns(kind, stage % ranks) / 2,
        )
    return tuple(sorted(moves, key=lambda move: -move.saves_ns_per_step))


def pipeline_findings(
    bubble_ratio: float | None,
    ideal_ratio: float | None,
    causes_ns: dict[str, int] | None,
    uneven: UnevenStage | None,
    moves: Sequence[Move],
) -> tuple[Finding, ...]:
    """The bubbles with their largest cause and the best remedy; and an uneven stage."""
    findings = []
    even = next((move for move in moves if move.what == _EVEN), None)
    if uneven is not None:
        findings.append(_about_stage(uneven, even))
    if bubble_ratio is not None and bubble_ratio >= _NOTABLE and causes_ns is not None:
        findings.append(_about_bubbles(bubble_ratio, ideal_ratio, causes_ns, [m for m in moves if m is not even]))
    return tuple(findings)


def _about_stage(uneven: UnevenStage, even: Move | None) -> Finding:
    ranks = f"rank{'s' * (len(uneven.ranks) > 1)} {format_ranges(uneven.ranks)}"
    text = (
        f"stage {uneven.stage} ({ranks}) takes {uneven.factor:.2f} times as long as the other stages: "
        f"{uneven.work_ns / 1e6:.2f} against {uneven.others_ns / 1e6:.2f} ms a microbatch"
    )
    if even is not None:
        text += f"; moving layers from it to stage {uneven.fastest}, until all take equally long, would shorten a step "
        text += f"by {_saving(even)}"
    return Finding(
        severity="warning",
        text=text,
        rank=uneven.ranks[0] if len(uneven.ranks) == 1 else None,
        saving_ns=even.saves_ns_per_step if even is not None else None,
        evidence={"stage": uneven.stage, "factor": uneven.factor, "error_ns": even.error_ns if even else None},
    )


def _about_bubbles(
    bubble_ratio: float, ideal_ratio: float | None, causes_ns: dict[str, int], moves: Sequence[Move]
) -> Finding:
    total_ns = sum(causes_ns.values())
    schedule_ns = causes_ns["warmup_ns"] + causes_ns["drain_ns"]
    shares = {
        "warm-up and drain": schedule_ns,
        "uneven stages": causes_ns["imbalance_ns"],
        "transfers": causes_ns["transfer_ns"],
        "late peers": causes_ns["late_peer_ns"],
        "other": causes_ns["other_ns"],
    }
    parts = [
        f"{name} {bubble_ratio * own_ns / total_ns:.0%}"
        for name, own_ns in shares.items()
        if total_ns and abs(bubble_ratio * own_ns / total_ns) >= _SHOWN
    ]
    text = f"bubbles take {bubble_ratio:.0%} of the pipeline's time: {', '.join(parts)}"
    if ideal_ratio is not None:
        text += f"; {ideal_ratio:.0%} is the least for this order"
    if moves:
        text += f"; {moves[0].what} would shorten a step by {_saving(moves[0])}"
    return Finding(
        severity="warning" if moves or bubble_ratio - (ideal_ratio or 0.0) >= _BEYOND else "info",
        text=text,
        saving_ns=moves[0].saves_ns_per_step if moves else None,
        evidence={"bubble_ratio": bubble_ratio, "ideal_bubble_ratio": ideal_ratio, **causes_ns},
    )


def _saving(move: Move) -> str:
    return f"{move.saves_ns_per_step / 1e6:.1f} ± {move.error_ns / 1e6:.1f} ms ({move.share:.0%})"


def _posted_at_once(measured: MeasuredPipeline) -> bool:
    """Whether most receives are posted right before the action that needs them, so that no transfer is hidden."""
    at_once = np.concatenate(
        [sent.posted_after == edges.previous for sent, edges in zip(measured.transfers, measured.edges, strict=True)]
    )
    return bool(len(at_once)) and bool(at_once.mean() > 0.5)


def _span_ns(
    orders: Sequence[Order], duration_ns: Callable[[int, int], float], typical: Typical, at_once: bool
) -> float:
    """How long a step takes in which the ranks run these orders with these durations of a kind and a stage."""
    rank = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    rows = [(ACTION_KINDS.index(kind), stage, number) for order in orders for kind, stage, number in order]
    kind, stage, microbatch = np.array(rows, dtype=np.int32).T
    edges = edges_between_ranks(rank, kind, stage, microbatch)
    posted_after = edges.previous if at_once else np.full(len(edges), ABSENT, dtype=np.int64)
    work_ns = np.array([duration_ns(*what) for what in zip(kind.tolist(), stage.tolist(), strict=True)])
    transfer_ns: Float64 = typical.of_edges(stage, edges)
    return float(pipeline_replay(rank, edges, posted_after)(work_ns[:, None], transfer_ns[:, None])[1][0])
