"""Which lines stand below the tables of a section, or in place of one."""

from __future__ import annotations

import statistics
from typing import Any

from tracekit.explain.fsdp.units import Fsdp
from tracekit.explain.model_parallel.layers import TensorParallel
from tracekit.explain.step_time.breakdown import capture_overhead
from tracekit.explain.step_time.phases import StepPhases
from tracekit.explain.step_time.roofline import Roofline
from tracekit.explain.step_time.sections import Memory
from tracekit.explain.stragglers.stragglers import Stragglers
from tracekit.findings.stragglers import ESTIMATED
from tracekit.model.run import Run
from tracekit.model.table import rows_of
from tracekit.model.texts import file_size, milliseconds, percent, scaled

_WHAT = {"flops": "model FLOP/s", "peak": "MFU", "mfu": "MFU"}
EVEN_LOAD = 1.1
"""Load of experts by the mean of the others, below which it is even."""


def of_fsdp(fsdp: Fsdp) -> list[str]:
    """Return why a number is not there."""
    return [fsdp.unavailable.reason] if fsdp.unavailable is not None and rows_of(fsdp, "by_module") else []


def of_stragglers(stragglers: Stragglers) -> list[str]:
    """Return why no rank is named."""
    rows, verdict = rows_of(stragglers, "by_rank"), stragglers.verdict
    several = len(rows) > 1 and any(row["arrivals"] for row in rows)
    return [verdict.text] if several and verdict.cause is None and verdict.text else []


def of_tensor(tensor: TensorParallel) -> list[str]:
    """Return that the load of experts is even, or that it is an estimate."""
    rows = [row for row in rows_of(tensor.experts, "ranks") if row["ratio"] is not None]
    if not rows:
        return []
    most = max(row["ratio"] for row in rows)
    estimated = any(row["received_bytes"] is None for row in rows)
    if most < EVEN_LOAD:
        text = f"experts are evenly loaded: none gets more than {most:.2f} times the mean of the others"
        return [f"{text} ({ESTIMATED})" if estimated else text]
    return [f"the load of experts is {ESTIMATED}"] if estimated else []


def of_phases(phases: StepPhases) -> list[str]:
    """Return what happened in the steps, of the first rank that shows it: ranks rarely differ."""
    ranks = rows_of(phases, "ranks") if rows_of(phases, "by_phase") else []
    phrases = []
    row = next((row for row in ranks if row["micro_steps"] and row["micro_steps"] != 1), None)
    if row is not None:
        phrases.append(f"{row['micro_steps']:.3g} backward passes a step")
    row = next((row for row in ranks if row["recompute_count"] and row["steps"]), None)
    if row is not None:
        phrases.append(
            f"{row['recompute_count'] / row['steps']:.3g} checkpointed forwards run again a step "
            f"({milliseconds(row['recompute_ns'] / row['steps'])} ms of its backward on rank {row['rank']})"
        )
    row = next((row for row in ranks if row["autocast"]), None)
    if row is not None:
        phrases.append(f"autocast to {', '.join(row['autocast'])}")
    row = next((row for row in ranks if row["scaled_steps"]), None)
    if row is not None:
        skipped = "n/a" if row["skipped_steps"] is None else row["skipped_steps"]
        phrases.append(f"scaled gradients, {skipped} of {row['scaled_steps']} optimizer steps skipped")
    return ["; ".join(phrases)] if phrases else []


def of_memory(memory: Memory) -> list[str]:
    """Return the memory of the rank with the highest peak."""
    rows = rows_of(memory, "ranks")
    if not rows:
        return []
    worst = max(rows, key=lambda row: (row["peak_bytes"] or 0, -row["rank"]))
    names = (("parameter_bytes", "parameters"), ("gradient_bytes", "gradients"), ("optimizer_bytes", "optimizer"))
    phrases = [f"{'n/a' if worst[field] is None else file_size(worst[field])} {name}" for field, name in names]
    phrases += [f"peak {file_size(worst['peak_bytes'])}"] if worst["peak_bytes"] is not None else []
    return [f"Memory: {', '.join(phrases)}" + (f" (rank {worst['rank']}, the highest)" if len(rows) > 1 else "")]


def of_roofline(result: Roofline) -> list[str]:
    """Return means over ranks; nothing for a run without countable work and without a reason."""
    rows = [row for row in rows_of(result, "by_rank") if row["flops"]]
    reasons = "; ".join(
        f"{_WHAT[name]} n/a: {missing.reason}" for name, missing in result.unavailable.items() if name in _WHAT
    )
    if not rows:
        return [reasons] if "flops" in result.unavailable else []
    steps, flops = sum(row["steps"] for row in rows), sum(row["flops"] for row in rows)
    least = "at least " if any(row["lower_bound"] for row in rows) else ""
    of = f" ({', '.join(rows[0]['dtypes'])})" if rows[0]["dtypes"] else ""
    compute_ns, step_ns = sum(row["compute_ns"] for row in rows), sum(row["step_ns"] for row in rows)
    text = f"{least}{scaled(flops / steps, 'FLOP')} a step and rank{of}: {scaled(flops / step_ns * 1e9, 'FLOP/s')}"
    if compute_ns:
        text += f", {scaled(flops / compute_ns * 1e9, 'FLOP/s')} in the {compute_ns / step_ns:.0%} spent computing"
    if all(row["mfu"] is not None for row in rows):
        text += f"; MFU {least}{_mean_percent(rows, 'mfu')}"
        again = sum(row["recomputed_flops"] or 0 for row in rows)
        if again:
            inferred = " (inferred)" * any(row["recompute"] == "inferred" for row in rows)
            text += f", HFU {_mean_percent(rows, 'hfu')} with the {again / flops:.0%} that are recomputed{inferred}"
        peak = scaled(max(row["peak_flops_per_s"] for row in rows), "FLOP/s")
        text += f", of {peak} ({'given' if result.peak_source == 'given' else 'data sheet, dense'})"
    elif reasons:
        text += f"; {reasons}"
    if result.uncounted:
        text += f"; not counted: {', '.join(result.uncounted[:3])}{' ...' * (len(result.uncounted) > 3)}"
    return [text]


def _mean_percent(rows: list[dict[str, Any]], name: str) -> str:
    return f"{100 * statistics.fmean(row[name] for row in rows):.3g}%"


def overhead_text(run: Run) -> str | None:
    """Return what recording cost; None for traces of other tools."""
    cost = capture_overhead(run)
    if cost is not None:
        share = percent(cost.ratio, 1 if cost.ratio < 0.995 else 0)
        where = f", most on rank {cost.rank}" if len(run.ranks) > 1 else ""
        return f"recording cost about {milliseconds(cost.per_step_ns)} ms a step ({share}){where}"
    recorded = any(summary.run_id is not None for summary in run.ranks)
    return "what recording cost was not measured" if recorded else None
