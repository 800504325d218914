"""The figures that tracekit and HTA both have of a rank, in the same units."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analysis.report import analyze
from tracekit.hta.analyses import error_line
from tracekit.model.run import Run

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

__all__ = ["ALL_RANKS", "FIGURES", "UNITS", "Figures", "figures_of_hta", "figures_of_run"]

FIGURES = ("total", "compute", "exposed", "idle", "overlap", "communication")
"""Figures in the order in which they are shown.

* total: the time that is divided into the next three.
* compute: time with a kernel that computes.
* exposed: time with communication or copies, and no compute.
* idle: time without any of them.
* overlap: communication that compute hides.
* communication: time with communication, hidden or not; of all ranks together, because HTA sums it over ranks.
"""

UNITS = {figure: "%" if figure == "overlap" else "us" for figure in FIGURES}

ALL_RANKS = -1
"""The rank of a figure that is of all ranks together."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures by name and rank, in microseconds or percent; and HTA's errors by the analysis that failed."""

    values: Mapping[tuple[str, int], float]
    errors: Mapping[str, str]

    def busy_us(self, rank: int) -> float | None:
        """Return the time of a rank that is not idle; of all ranks, the sum."""
        if rank == ALL_RANKS:
            ranks = [each for figure, each in self.values if figure == "total"]
            busy = [self.busy_us(each) for each in ranks]
            return sum(each for each in busy if each is not None) if busy else None
        total, idle = self.values.get(("total", rank)), self.values.get(("idle", rank))
        return None if total is None or idle is None else total - idle


def figures_of_run(run: Run) -> Figures:
    """Return tracekit's figures: sums over the complete steps of each rank."""
    result = analyze(run, only=["breakdown"]).breakdown
    values: dict[tuple[str, int], float] = {}
    if result is not None:
        for row in result.ranks.to_dict("records"):
            rank = row["rank"]
            values["total", rank] = row["step_ns"] / 1000
            values["compute", rank] = row["compute_ns"] / 1000
            values["exposed", rank] = (row["exposed_comm_ns"] + row["exposed_copy_ns"]) / 1000
            values["idle", rank] = row["idle_ns"] / 1000
            if row["comm_ns"]:
                values["overlap", rank] = 100 * row["overlap_ratio"]
        values["communication", ALL_RANKS] = result.ranks["comm_ns"].sum() / 1000
    return Figures(values=values, errors={})


def figures_of_hta(analysis: TraceAnalysis, *, rounded: bool) -> Figures:
    """Return HTA's figures. An analysis of HTA that fails is an error, and its figures are absent.

    `rounded`: whether times are whole microseconds in the breakdown by type of kernel, which HTA always makes of them.
    """
    communication = _communication if rounded else _exact_communication
    values: dict[tuple[str, int], float] = {}
    errors = {}
    for name, collect in (("temporal breakdown", _times), ("overlap", _overlap), ("kernel breakdown", communication)):
        try:
            values |= collect(analysis)
        except Exception as error:
            errors[name] = error_line(error)
    return Figures(values={key: value for key, value in values.items() if value == value}, errors=errors)


def _times(analysis: Any) -> dict[tuple[str, int], float]:
    columns = {"total": "kernel_time", "compute": "compute_time", "exposed": "non_compute_time"}
    columns["idle"] = "idle_time"
    frame = analysis.get_temporal_breakdown(visualize=False)
    return {
        (figure, int(rank)): float(value)
        for figure, column in columns.items()
        for rank, value in zip(frame["rank"], frame[f"{column}(us)"], strict=True)
    }


def _overlap(analysis: Any) -> dict[tuple[str, int], float]:
    frame = analysis.get_comm_comp_overlap(visualize=False)
    return {
        ("overlap", int(rank)): float(value)
        for rank, value in zip(frame["rank"], frame["comp_comm_overlap_pctg"], strict=True)
    }


def _communication(analysis: Any) -> dict[tuple[str, int], float]:
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    communicates = kinds["kernel_type"].str.contains("COMMUNICATION")
    return {("communication", ALL_RANKS): float(kinds.loc[communicates, "sum"].sum())}


def _exact_communication(analysis: Any) -> dict[tuple[str, int], float]:
    """Return the time of communication as HTA works it out, before it cuts each stretch to whole microseconds."""
    utils: Any = importlib.import_module("hta.utils.utils")
    symbols = analysis.t.symbol_table.get_sym_table()
    communicates = [number for number, name in enumerate(symbols) if utils.is_comm_kernel(name)]
    total = 0.0
    for frame in analysis.t.traces.values():
        merged = utils.merge_kernel_intervals(frame[frame["stream"].ne(-1) & frame["name"].isin(communicates)].copy())
        total += float((merged["end"] - merged["ts"]).sum())
    return {("communication", ALL_RANKS): total}
