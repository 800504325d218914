"""Model FLOP/s: which part of its device's peak each rank's step uses.

With F the operations of the complete steps without recomputed forwards, R those of recomputed forwards, T the length of
the steps and P the peak of the device,

    MFU = F / (T P)        HFU = (F + R) / (T P)

(Chowdhery et al., "PaLM", 2022; Korthikanti et al., "Reducing Activation Recomputation", 2022). The peak is that of the
data type of the operations; for several, that of their mixture. Unless it is given, it is that of dense operations,
from the data sheet of the device's maker. While it computes, a device does (F + R) / compute time. The difference to
the rate over the whole step is communication and idle time.

Some kernels of a rank may look like communication although no rule is for them. Which ones, and for how long, is kept
beside the work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.explain.section import KnownWork, Unavailable
from tracekit.explain.step_time import tables
from tracekit.explain.step_time.tables import FLOPS, UnclassifiedKernel
from tracekit.findings.finding import Finding
from tracekit.findings.steps import float32_products
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.communication import KINDS
from tracekit.model.intervals import Intervals
from tracekit.model.names.collectives import kind_of_collective
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.model.table import Frame
from tracekit.rank.kernel_names import function_of_kernel
from tracekit.rank.lanes import complete_steps
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import grouped, summed

_H100_SXM = {"float64": 67.0, "float32": 67.0, "tf32": 494.7, "float16": 989.4, "bfloat16": 989.4, "float8": 1978.9}
_H100_NVL = {"float64": 60.0, "float32": 60.0, "tf32": 417.5, "float16": 835.5, "bfloat16": 835.5}
_H100_PCIE = {"float64": 51.0, "float32": 51.0, "tf32": 378.0, "float16": 756.0, "bfloat16": 756.0}
_A100 = {"float64": 19.5, "float32": 19.5, "tf32": 156.0, "float16": 312.0, "bfloat16": 312.0}
_MI300 = {
    "float64": 163.4,
    "float32": 163.4,
    "tf32": 653.7,
    "float16": 1307.4,
    "bfloat16": 1307.4,
    "float8": 2614.9,
}
_MEMORY = "memory"
# 1e12 operations a second by data type, and TB/s of the device's memory. The first pattern that matches counts. Figures
# of data sheets that only give sparse ones are halved.
_DEVICES: tuple[tuple[str, dict[str, float]], ...] = (
    # NVIDIA GB200 NVL72 and DGX B200 data sheets
    (
        r"\bGB200\b",
        {"float32": 80.0, "tf32": 1250.0, "float16": 2500.0, "bfloat16": 2500.0, "float8": 5000.0, _MEMORY: 8.0},
    ),
    (
        r"\bB200\b",
        {"float32": 75.0, "tf32": 1125.0, "float16": 2250.0, "bfloat16": 2250.0, "float8": 4500.0, _MEMORY: 8.0},
    ),
    # NVIDIA H200 and H100 Tensor Core GPU data sheets, by form factor. GH200 has one of two kinds of memory.
    (r"\bH200 NVL\b", _H100_NVL | {_MEMORY: 4.8}),
    (r"\bH100 NVL\b", _H100_NVL | {_MEMORY: 3.9}),
    (r"\bH200\b", _H100_SXM | {_MEMORY: 4.8}),
    (r"\bGH200\b", _H100_SXM),
    (r"\bH100 PCIe\b", _H100_PCIE | {_MEMORY: 2.0}),
    (r"\bH100\b", _H100_SXM | {_MEMORY: 3.35}),
    # NVIDIA A100 Tensor Core GPU data sheet
    (r"\bA100.*\b80GB\b", _A100 | {_MEMORY: 2.039}),
    (r"\bA100\b", _A100 | {_MEMORY: 1.555}),
    # NVIDIA A10, L4 and L40S data sheets
    (r"\bA10\b", {"float32": 31.2, "tf32": 62.5, "float16": 125.0, "bfloat16": 125.0, _MEMORY: 0.6}),
    (r"\bL4\b", {"float32": 30.3, "tf32": 60.0, "float16": 121.0, "bfloat16": 121.0, "float8": 242.5, _MEMORY: 0.3}),
    (
        r"\bL40S\b",
        {"float32": 91.6, "tf32": 183.0, "float16": 362.0, "bfloat16": 362.0, "float8": 733.0, _MEMORY: 0.864},
    ),
    # NVIDIA V100 and T4 data sheets; neither has bfloat16 or TF32
    (r"\bV100-PCIE\b", {"float64": 7.0, "float32": 14.0, "float16": 112.0, _MEMORY: 0.9}),
    (r"\bV100-SXM", {"float64": 7.8, "float32": 15.7, "float16": 125.0, _MEMORY: 0.9}),
    (r"\bT4\b", {"float32": 8.1, "float16": 65.0, _MEMORY: 0.32}),
    # AMD Instinct MI300X, MI325X and MI250X data sheets (matrix operations; of the MI250X one of its two devices)
    (r"\bMI300X\b", _MI300 | {_MEMORY: 5.3}),
    (r"\bMI325X\b", _MI300 | {_MEMORY: 6.0}),
    (r"\bMI250X\b", {"float64": 47.9, "float32": 47.9, "float16": 191.5, "bfloat16": 191.5, _MEMORY: 1.6}),
)


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The table of all ranks.

    Attributes:
        by_rank: rows of tables.ROOFLINE.
        source: where the number of operations comes from.
        peak_source: where the peak comes from; None where no rank has one.
        unavailable: why a number is null, by its name.
        uncounted: names of operators and kernels whose work could not be counted.
    """

    by_rank: Frame = Frame(tables.ROOFLINE)
    source: Literal["shapes", "given"]
    peak_source: Literal["data sheet", "given"] | None
    unavailable: Mapping[str, Unavailable]
    uncounted: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class _RankWork:
    """The work of one rank over its complete steps.

    Attributes:
        peak: the most operations a second that its device can do of this mixture of data types.
    """

    summary: RankSummary
    steps: int
    step_ns: int
    compute_ns: int
    flops_by_dtype: Mapping[str, int]
    flops: int | None
    recomputed: int | None
    peak: float | None


def roofline(run: Run, known: KnownWork | None = None) -> Roofline | Unavailable:
    """Return the utilisation of each rank; unavailable for a run without complete steps."""
    known = known or KnownWork()
    ranks = [s for s in run.ranks if s.is_measured and any(step.complete for step in s.steps)]
    if not ranks:
        return Unavailable(reason="no step is complete")
    works = [_work(summary, known) for summary in ranks]
    given = known.flops_per_step is not None
    return Roofline(
        by_rank=[_row(work, given=given) for work in works],
        source="given" if given else "shapes",
        peak_source=_peak_source(works, known),
        unavailable=_unavailable(works, known),
        uncounted=() if given else tuple(sorted({name for s in ranks for name in s[FLOPS].uncounted})),
        findings=tuple(_without_tensor_cores(works)),
    )


def _work(summary: RankSummary, known: KnownWork) -> _RankWork:
    complete = [step for step in summary.steps if step.complete]
    counted = summary[FLOPS]
    by_dtype = summed((row.dtype, row.flops) for row in counted.rows)
    recomputed: int | None = sum(row.flops for row in counted.rows if row.recomputed)
    flops: int | None = sum(by_dtype.values())
    if known.flops_per_step is not None:
        flops, recomputed = round(known.flops_per_step * len(complete)), None
    elif counted.unavailable is not None:
        flops, recomputed = None, None
    return _RankWork(
        summary=summary,
        steps=len(complete),
        step_ns=sum(step.step_ns for step in complete),
        compute_ns=sum(step.compute_ns for step in complete),
        flops_by_dtype=by_dtype,
        flops=flops,
        recomputed=recomputed,
        peak=known.peak_flops_per_s or _peak(summary, by_dtype),
    )


def _peak(summary: RankSummary, by_dtype: Mapping[str, int]) -> float | None:
    peaks = peak_rates(summary.device_name) if summary.device == "gpu" else {}
    if not sum(by_dtype.values()) or not by_dtype.keys() <= peaks.keys():
        return None
    of_one = sum(by_dtype.values()) / sum(flops / (peaks[dtype] * 1e12) for dtype, flops in by_dtype.items())
    return of_one * summary[FLOPS].devices


def _peak_source(works: Sequence[_RankWork], known: KnownWork) -> Literal["data sheet", "given"] | None:
    if known.peak_flops_per_s is not None:
        return "given"
    return "data sheet" if any(work.peak is not None for work in works) else None


def _row(work: _RankWork, *, given: bool) -> dict[str, object]:
    flops, recomputed, peak = work.flops, work.recomputed, work.peak
    possible = None if peak is None else work.step_ns / 1e9 * peak
    used = None if flops is None or not possible else flops / possible
    used = None if used is not None and used > 1 else used  # the peak cannot be this device's
    without = None if used is None or not flops else used * (1 - (recomputed or 0) / flops)
    return tables.ROOFLINE.row(
        work,
        rank=work.summary.rank,
        recomputed_flops=recomputed,
        recompute=None if given else work.summary[FLOPS].recompute,
        lower_bound=not given and bool(work.summary[FLOPS].uncounted),
        dtypes=sorted(work.flops_by_dtype, key=lambda dtype: (-work.flops_by_dtype[dtype], dtype)),
        flops_per_s=None if flops is None or not work.step_ns else flops / work.step_ns * 1e9,
        computing_flops_per_s=None if flops is None or not work.compute_ns else flops / work.compute_ns * 1e9,
        peak_flops_per_s=peak,
        mfu=without,
        hfu=None if given else used,
    )


def _unavailable(works: Sequence[_RankWork], known: KnownWork) -> dict[str, Unavailable]:
    """Return why a number is null on some rank, by the name of the number, in the order in which they are shown."""
    result = {"memory_traffic": Unavailable(reason="traces do not record what kernels read and write")}
    uncounted = next((why for work in works if (why := work.summary[FLOPS].unavailable) is not None), None)
    if known.flops_per_step is not None:
        result["hfu"] = Unavailable(reason="of given operations it is not known what is computed again")
    elif uncounted is not None:
        result["flops"] = uncounted
    without_peak = next((work for work in works if work.peak is None), None)
    if without_peak is not None:
        result["peak"] = _no_peak(without_peak)
    elif any(work.flops is not None and work.peak and work.flops > work.step_ns / 1e9 * work.peak for work in works):
        reason = "the steps do more than the peak allows, so it is not this device's, or not of this data type"
        result["mfu"] = Unavailable(reason=reason)
    return result


def _no_peak(work: _RankWork) -> Unavailable:
    name, dtypes = work.summary.device_name, ", ".join(sorted(work.flops_by_dtype))
    if work.summary.device == "cpu":
        return Unavailable(reason="the peak of CPUs is not known")
    if name is None:
        return Unavailable(reason="no device is named in the trace")
    if not dtypes:
        return Unavailable(reason="the data type of the operations is not known")
    return Unavailable(reason=f"no peak is known of {name} in {dtypes}")


def _without_tensor_cores(works: Sequence[_RankWork]) -> list[Finding]:
    """Find products of float32 that would be faster on tensor cores, even at the device's peak."""
    gains = []
    for work in works:
        peaks = peak_rates(work.summary.device_name) if work.summary.device == "gpu" else {}
        flops = work.flops_by_dtype.get("float32", 0) / work.steps
        if work.summary[FLOPS].scalar_float32 and {"float32", "tf32"} <= peaks.keys():
            gains.append((flops / peaks["float32"] - flops / peaks["tf32"]) / 1e3)
    if len(gains) < len(works) or not works:
        return []
    least_ns = min(gains)
    step_ns = max(work.step_ns / work.steps for work in works)
    return [
        float32_products(
            cause="compute",
            evidence={
                "float32_flops": int(min(work.flops_by_dtype.get("float32", 0) for work in works)),
                "no_replay": "how long each product takes on tensor cores is not recorded",
            },
            conditions=[NOTABLE_SHARE.reached_by(least_ns / step_ns)],
        )
    ]


def peak_rates(device_name: str | None) -> dict[str, float]:
    """Return 1e12 operations a second by data type, and TB/s of "memory", for a name as CUDA or ROCm reports it.

    Empty for an unknown device.
    """
    return next((peaks for pattern, peaks in _DEVICES if re.search(pattern, device_name or "")), {})


def unclassified_kernels(recorded: RecordedSteps) -> tuple[UnclassifiedKernel, ...]:
    """Return a row for each function: times within the complete steps, counts by launch."""
    events, lanes = recorded.trace.events, recorded.lanes
    communication = lanes.communication_events
    is_unclassified = communication.kind == KINDS.index("unclassified")
    if not is_unclassified.any():
        return ()
    complete = complete_steps(lanes, recorded.steps)
    name = events.name[communication.row]
    numbers = np.unique(name[is_unclassified]).tolist()
    names_of_function = grouped((function_of_kernel(events.strings[number]), number) for number in numbers)
    result = []
    for function, names in names_of_function.items():
        mask = is_unclassified & np.isin(name, names)
        time = Intervals.union_of(communication.start_ns[mask], communication.end_ns[mask]) & complete.time
        count = int((mask & complete.counted).sum())
        if count or len(time):
            result.append(
                UnclassifiedKernel(
                    pattern=_pattern(function, [events.strings[number] for number in names]),
                    kind=kind_of_collective(function),
                    count=count,
                    total_ns=time.len_ns,
                )
            )
    return tuple(result)


def _pattern(function: str, names: Sequence[str]) -> str:
    """Return a regular expression that is found in all these names of kernels of the function."""
    text = function if all(function in name for name in names) else function.rpartition("::")[2]
    return re.escape(text)
