"""What to do about DDP's buckets, and what to set in DDP besides their size.

A finding is returned only if it is worth a notable share of the step and more than its error.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.explain.ddp.bucket_whatif import BucketWhatIf, best_limit
from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, DDP_MODULES, GRADIENT_TIMES, WHOLE
from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.step_lengths import saving_of_ns
from tracekit.findings.ddp import (
    before_rebuilding,
    blocked_bucket,
    bucket_copies,
    bucket_size,
    find_unused_parameters,
    gradients_in_32_bits,
    last_reductions,
    one_bucket,
)
from tracekit.findings.finding import Finding, held
from tracekit.findings.thresholds import BLOCKED_SHARE, NOTABLE_SAVING, TAIL_SHARE
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.metadata import DdpModule, bucket_cap_mb
from tracekit.model.notes import Severity
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.stats.grouped import summed
from tracekit.stats.rows_by_key import rows_by_key

_ONE_OF_MANY_BYTES = 1 << 20  # a smaller module needs no several buckets
_ONE_SIZE = "one size of buckets does not show how long others take"

_Rows = Sequence[dict[str, Any]]


def bucket_findings(run: Run, outcome: BucketWhatIf | Unavailable, times: _Rows) -> tuple[Finding, ...]:
    """Return the findings.

    `outcome`: what other limits of the size would expose. `times`: rows of the table BUCKETS.
    """
    step_ns = run.mean_rank_step_ns()
    if not step_ns or (isinstance(outcome, Unavailable) and outcome.expected):
        return ()
    of_all = next((summary for summary in run.ranks if summary[DDP_MODULES].modules), None)
    modules = of_all[DDP_MODULES].modules if of_all is not None else ()
    limit = _other_limit(outcome, step_ns) if isinstance(outcome, BucketWhatIf) else []
    settings = setting_findings(run, modules, outcome, step_ns) if isinstance(outcome, BucketWhatIf) else []
    findings = [*limit, *settings]
    if not held(limit):
        findings += [*_one_bucket(run, modules, times, step_ns), *_tail(run, modules, times, step_ns, outcome)]
    findings += [*_blocked(run, step_ns), *_unused(run, modules, step_ns), *_before_rebuilding(times, modules)]
    return tuple(findings)


def _other_limit(outcome: BucketWhatIf, step_ns: float) -> list[Finding]:
    """Find the limit that exposes least. Among limits that differ by less than is notable, take the fewest buckets."""
    present = next((cap for cap in outcome.caps if cap.present), None)
    if present is None:
        return []
    best = best_limit(outcome.caps, step_ns)
    gain_ns = min(present.uncovered_ns - best.uncovered_ns, best.saving_ns)
    error_ns = max(present.error_ns, best.error_ns)
    if best.present:
        return []
    return [
        bucket_size(
            cause="transfer",
            time_ns=present.uncovered_ns,
            saving_ns=best.saving_ns,
            saving_error_ns=error_ns,
            evidence={
                "bucket_cap_mb": best.bucket_cap_mb,
                "present_bucket_cap_mb": present.bucket_cap_mb,
                "uncovered_ns": best.uncovered_ns,
                "measured_uncovered_ns": outcome.measured_ns,
                "share": best.uncovered_ns / step_ns,
                "present_share": present.uncovered_ns / step_ns,
            },
            conditions=[NOTABLE_SAVING.reached_by((gain_ns - error_ns) / step_ns)],
        )
    ]


def _one_bucket(run: Run, modules: Sequence[DdpModule], times: _Rows, step_ns: float) -> Iterator[Finding]:
    """Find modules with all gradients in one bucket, whose reduction starts when the backward pass is over."""
    for module in modules:
        if len(module.buckets) != 1 or module.buckets[0].size_bytes < 2 * _ONE_OF_MANY_BYTES:
            continue
        of_module = [row for row in times if row["module"] == module.module]
        added_ns = summed(((row["rank"], row["step"]), row["added_ns"]) for row in of_module)
        time_ns = min(saving_of_ns(run, added_ns) or 0, _least_ns(run, added_ns))
        cap_bytes = module.bucket_cap_bytes
        yield one_bucket(
            cause="transfer",
            time_ns=time_ns,
            evidence={
                "module": module.module,
                "size_mb": module.buckets[0].size_bytes / (1 << 20),
                "cap_mb": None if cap_bytes is None else bucket_cap_mb(cap_bytes),
                "share": time_ns / step_ns,
                "no_replay": _ONE_SIZE,
            },
            conditions=[NOTABLE_SAVING.reached_by(time_ns / step_ns)],
        )


def _tail(
    run: Run, modules: Sequence[DdpModule], times: _Rows, step_ns: float, outcome: BucketWhatIf | Unavailable
) -> Iterator[Finding]:
    """Find what no compute covers of the last bucket, on the rank that waits least for others.

    One rank alone may wait for others that are missing.
    """
    if sum(summary.is_measured for summary in run.ranks) < 2:
        return
    for module in modules:
        if len(module.buckets) < 2:
            continue
        last = [row for row in times if row["module"] == module.module and row["index"] == len(module.buckets) - 1]
        ready_ns = {(row["rank"], row["step"], row["turn"]): row["ready_ns"] for row in last}
        tail_ns: dict[tuple[int, int], int] = defaultdict(int)
        of_bucket_ns: dict[int, int] = defaultdict(int)
        for row in times:
            key = (row["rank"], row["step"], row["turn"])
            if row["module"] == module.module and key in ready_ns:
                after_ns = min(row["added_ns"], max(row["end_ns"] - ready_ns[key], 0))
                tail_ns[row["rank"], row["step"]] += after_ns
                of_bucket_ns[row["index"]] += after_ns
        least_ns = min(saving_of_ns(run, tail_ns) or 0, _least_ns(run, tail_ns))
        if least_ns <= 0:
            continue
        bucket = module.buckets[max(of_bucket_ns, key=lambda index: (of_bucket_ns[index], index))]
        yield last_reductions(
            severity="info",
            cause="transfer",
            time_ns=least_ns,
            remedy="communication",
            evidence={
                "index": bucket.index,
                "size_bytes": bucket.size_bytes,
                "first_parameter": bucket.parameters[0] if bucket.parameters else None,
                "tail_ns": least_ns,
                "share": least_ns / step_ns,
                "smaller_saves_ns": _smaller_saves_ns(outcome),
            },
            conditions=[TAIL_SHARE.reached_by(least_ns / step_ns)],
        )


def _smaller_saves_ns(outcome: BucketWhatIf | Unavailable) -> int | None:
    """Return what the best of the smaller limits saves, by their replay; None where none was replayed."""
    caps = () if isinstance(outcome, Unavailable) else outcome.caps
    present_mb = next((cap.bucket_cap_mb for cap in caps if cap.present), 0.0)
    return max((cap.saving_ns for cap in caps if cap.bucket_cap_mb < present_mb), default=None)


def _least_ns(run: Run, part_ns: Mapping[tuple[int, int], int]) -> int:
    """Return the mean of a part of the step on the rank that has least of it: the others wait in it for that rank.

    part_ns: by rank and step, 0 where missing. A rank that is late in some steps is waited for in the steps after them.
    """
    common = run.common_steps()
    sums = (sum(part_ns.get((s.rank, step), 0) for step in common) for s in run.ranks if s.is_measured)
    return min(sums, default=0) // max(len(common), 1)


def _blocked(run: Run, step_ns: float) -> Iterator[Finding]:
    longest_first = sorted(blocked_buckets(run), key=lambda blocked: (-blocked.held_ns, blocked.index))
    worst = longest_first[0] if longest_first else None
    if worst is None:
        return
    yield blocked_bucket(
        severity="info",
        rank=worst.rank,
        time_ns=round(worst.held_ns),
        evidence={
            "parameter": worst.parameter,
            "index": worst.index,
            "behind": worst.behind,
            "held_ns": worst.held_ns,
            "share": worst.held_ns / step_ns,
        },
        conditions=[BLOCKED_SHARE.reached_by(worst.held_ns / step_ns)],
    )


def _unused(run: Run, modules: Sequence[DdpModule], step_ns: float) -> Iterator[Finding]:
    """Find `find_unused_parameters` in a run whose parameters were all used, always: its all-reduce is not needed."""
    for number, module in enumerate(modules):
        count = sum(len(bucket.parameters) for bucket in module.buckets)
        if not module.find_unused or not count or not all(_all_used(run, number, count)):
            continue
        took_ns = {}
        for summary in run.ranks:
            collectives = summary.collectives
            flags = (collectives.kind == KINDS.index("all_reduce")) & (collectives.dtype == DTYPES.index("int32"))
            flags &= collectives.size_bytes == 4 * count
            for step in {step.step for step in summary.steps if step.complete}:
                here = flags & (collectives.step == step)
                took_ns[summary.rank, step] = int((collectives.end_ns[here] - collectives.start_ns[here]).sum())
        cost_ns = statistics.median(took_ns.values()) if took_ns else 0
        severity: Severity = "warning" if cost_ns >= NOTABLE_SAVING * step_ns else "info"
        yield find_unused_parameters(
            severity=severity,
            time_ns=int(cost_ns),
            evidence={"module": module.module, "all_reduce_ns": int(cost_ns), "parameters": count},
        )


def _all_used(run: Run, module: int, count: int) -> Iterator[bool]:
    for summary in run.ranks:
        times = summary[GRADIENT_TIMES]
        of_module = times.rows(times.module == module)
        passes = len({*zip(of_module.step.tolist(), of_module.backward_pass.tolist(), strict=True)})
        yield passes > 0 and len(of_module) == passes * count


def _before_rebuilding(times: _Rows, modules: Sequence[DdpModule]) -> Iterator[Finding]:
    steps = sorted({row["step"] for row in times if row["index"] == WHOLE})
    if steps:
        size = max(sum(bucket.size_bytes for bucket in module.buckets) for module in modules)
        yield before_rebuilding(severity="info", step=steps[0], evidence={"steps": steps, "size_bytes": size})


def setting_findings(run: Run, modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> list[Finding]:
    """Return the findings. modules: those of the job. outcome: what replays of its passes show."""
    reduced = {number for summary in run.ranks for number in summary[BUCKET_REDUCTIONS].module.tolist()}
    used = [module for number, module in enumerate(modules) if number in reduced]
    return [*_in_16_bits(run, used, outcome, step_ns), *_as_bucket_view(used, outcome, step_ns)]


def _in_16_bits(run: Run, modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> Iterator[Finding]:
    """Find gradients of 32 bits whose reductions are exposed, where no hook compresses them.

    On CPUs converting them and summing them in 16 bits takes longer than it saves, and is not in the replay.
    """
    halved, present_ns = outcome.in_16_bits, outcome.measured_ns
    whole = all(bucket.dtype == "float32" for module in modules for bucket in module.buckets)
    if run.device == "cpu" or halved is None or not whole or any(module.comm_hook != "none" for module in modules):
        return
    gain_ns = min(present_ns - halved.uncovered_ns, halved.saving_ns)
    yield gradients_in_32_bits(
        severity="info",
        cause="transfer",
        time_ns=present_ns,
        saving_ns=gain_ns,
        saving_error_ns=halved.error_ns,
        evidence={
            "comm_hook": "bf16_compress_hook",
            "present_comm_hook": "none",
            "uncovered_ns": halved.uncovered_ns,
            "share": halved.uncovered_ns / step_ns,
            "present_share": present_ns / step_ns,
        },
        conditions=[NOTABLE_SAVING.reached_by((gain_ns - halved.error_ns) / step_ns)],
    )


def _as_bucket_view(modules: Sequence[DdpModule], outcome: BucketWhatIf, step_ns: float) -> Iterator[Finding]:
    """Find copies of reduced gradients out of the buckets that a step waits for."""
    viewed = outcome.without_copies
    if viewed is None or any(module.gradient_as_bucket_view is not False for module in modules):
        return
    size_bytes = sum(bucket.size_bytes for module in modules for bucket in module.buckets)
    yield bucket_copies(
        severity="info",
        cause="transfer",
        time_ns=viewed.saving_ns,
        saving_ns=viewed.saving_ns,
        saving_error_ns=viewed.error_ns,
        evidence={
            "gradient_as_bucket_view": True,
            "present_gradient_as_bucket_view": False,
            "size_bytes": size_bytes,
            "share": viewed.saving_ns / step_ns,
        },
        conditions=[NOTABLE_SAVING.reached_by((viewed.saving_ns - viewed.error_ns) / step_ns)],
    )


@dataclass(frozen=True, kw_only=True)
class BlockedBucket:
    """By how much the launch of a bucket waited for a gradient of an earlier one.

    Attributes:
        held_ns: median over steps.
        parameter: the one most often waited for.
        behind: the bucket of that parameter.
    """

    rank: int
    index: int
    behind: int
    parameter: str
    held_ns: int


def blocked_buckets(run: Run) -> Iterator[BlockedBucket]:
    """Yield the buckets whose gradients were complete, but that waited for an earlier bucket in most steps of a rank.

    DDP launches its buckets in order of their index, whatever the order in which their gradients come.

        bucket 0   g...............................g     its last gradient comes late,
        bucket 1            g...g  (held up)             and no later bucket may be launched
    """
    common = run.common_steps()
    for summary in run.ranks:
        for (_, index), waits in _waits(summary, common).items():
            late = [wait for wait in waits if wait[0] > 0]
            if 2 * len(late) <= len(waits):
                continue
            (behind, parameter), _ = Counter((b, p) for _, b, p in late).most_common(1)[0]
            held_ns = round(statistics.median(ns for ns, _, _ in waits))
            yield BlockedBucket(rank=summary.rank, index=index, behind=behind, parameter=parameter, held_ns=held_ns)


def _waits(summary: RankSummary, common: frozenset[int]) -> dict[tuple[int, int], list[tuple[int, int, str]]]:
    """Return by module and bucket, for each pass, how long it waited, behind which bucket, and for which parameter."""
    times = summary[GRADIENT_TIMES]
    result: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for (module, step, _), here in rows_by_key(times.module, times.step, times.backward_pass).items():
        buckets = summary[DDP_MODULES].modules[module].buckets
        names = [name for bucket in buckets for name in bucket.parameters]
        if step not in common or not names:
            continue
        bucket_of = np.repeat(np.arange(len(buckets)), [len(bucket.parameters) for bucket in buckets])
        parameter, ready_ns = times.parameter[here], times.ready_ns[here]
        last_ns = np.full(len(buckets), np.iinfo(np.int64).min)
        np.maximum.at(last_ns, bucket_of[parameter], ready_ns)
        latest = 0
        for bucket in range(len(buckets)):
            if last_ns[bucket] > last_ns[latest]:
                latest = bucket
            came = last_ns[bucket] > np.iinfo(np.int64).min
            held_ns = int(last_ns[latest] - last_ns[bucket]) if came else 0
            culprit = names[parameter[np.argmax(np.where(bucket_of[parameter] == latest, ready_ns, -1))]]
            result[module, bucket].append((held_ns, latest, culprit))
    return result
