"""Our figures of a run against HTA's: what differs, and which convention makes it differ.

One convention is which kernels communicate, compute or copy. The text names the conventions, with the figures.

A convention is named only where it was tried: without it, HTA's figure is ours. HTA can be told to keep the last step
and to keep nanoseconds. Events of the host can be taken from it. We can count the whole recording, as HTA does with
what it keeps.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tracekit.errors import error_line
from tracekit.hta.package import import_bridge, quiet, rounding, to_hta
from tracekit.model.run import Run
from tracekit.rank.communication_rules import COMPUTE
from tracekit.render.console import statement, write
from tracekit.report.kernel_list import COPY, KernelUse
from tracekit.report.report import analyze

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis


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

_HOST_CATEGORIES = ("cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver")
_NAMES = {"COMMUNICATION": "communication", "COMPUTATION": COMPUTE, "MEMORY": COPY, "OTHER": "other"}
_SHOWN_KERNELS = 3

_LAST_STEP = "leaves out the last step"
_ROUNDING = "rounds times to whole microseconds"
_RECORDING = "counts kernels outside complete steps"
_HOST_EVENTS = "counts host operators that name a stream as kernels"
_SPAN = "counts from the first kernel to the last, not whole steps"
CLASSES = "classes kernels differently"
_UNEXPLAINED = "differs by no convention that was tried"

_LEAST_US, _RELATIVE = 1.0, 1e-6
_LEAST_PERCENT = 0.0051  # HTA rounds to two decimals


@dataclass(frozen=True, kw_only=True)
class CrossCheck:
    """The result of a cross-check.

    Attributes:
        hta_version: of the HTA that was asked.
        comparisons: one a figure and rank, in the order of `FIGURES`.
        class_differences: kernels that count differently, if a figure differs because of them.
        errors: HTA's exceptions, in a line each, by the analysis that failed.
    """

    hta_version: str
    comparisons: Sequence[Comparison]
    class_differences: Sequence[ClassDifference]
    errors: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values. The rank of a figure of all ranks is None."""
        return {
            "hta_version": self.hta_version,
            "figures": [
                {
                    "figure": each.figure,
                    "rank": None if each.rank < 0 else each.rank,
                    "tracekit": each.ours,
                    "hta": each.theirs,
                    "reasons": [*each.reasons],
                }
                for each in self.comparisons
            ],
            "kernels": [
                {"function": each.function, "tracekit": each.ours, "hta": each.theirs, "total_ns": each.total_ns}
                for each in self.class_differences
            ],
            "errors": dict(self.errors),
        }


def cross_check(run: Run, *, recording: Callable[[], Run], kernels: Callable[[], Sequence[KernelUse]]) -> CrossCheck:
    """Compare a run's figures with those that HTA works out from the same events.

    Args:
        run: With all its steps.
        recording: Gives the same run with everything recorded as one span; called only if something differs.
        kernels: Gives what ran on the devices; called only if something differs that the steps do not explain.

    Raises UsageError when HTA is not installed.
    """
    with quiet():
        import_bridge("trace")

    @cache
    def theirs(choices: HtaChoices) -> Figures:
        with quiet(), rounding(enabled=choices.rounded):
            analysis = to_hta(run, include_last_step=choices.last_step)
            if not choices.host_events:
                _take_host_events_from_streams(analysis)
            return figures_of_hta(analysis, rounded=choices.rounded)

    @cache
    def differences() -> list[ClassDifference]:
        return class_differences(kernels())

    variants = Variants(
        ours=cache(lambda whole: figures_of_run(recording() if whole else run)),
        theirs=theirs,
        classes_differ=lambda: bool(differences()),
    )
    comparisons = sorted(compare(variants), key=lambda each: (FIGURES.index(each.figure), each.rank))
    matter = any(CLASSES in each.reasons for each in comparisons)
    return CrossCheck(
        hta_version=importlib.metadata.version("HolisticTraceAnalysis"),
        comparisons=comparisons,
        class_differences=differences() if matter else (),
        errors=theirs(HtaChoices()).errors,
    )


def _take_host_events_from_streams(analysis: Any) -> None:
    symbols = analysis.t.symbol_table.get_sym_index()
    of_host = [symbols[category] for category in _HOST_CATEGORIES if category in symbols]
    for frame in analysis.t.traces.values():
        frame.loc[frame["cat"].isin(of_host), "stream"] = -1


@dataclass(frozen=True, kw_only=True)
class ClassDifference:
    """A function whose kernels count as `ours` for tracekit and as `theirs` for HTA; the sum of their durations."""

    function: str
    ours: str
    theirs: str
    total_ns: int


def class_differences(uses: Iterable[KernelUse]) -> list[ClassDifference]:
    """Return the functions that are classed differently, the longest first. HTA must be installed."""
    utils: Any = importlib.import_module("hta.utils.utils")
    differences = []
    for use in uses:
        theirs = _NAMES[utils.get_kernel_type(use.function)]
        if theirs != (use.kind if use.kind in (COMPUTE, COPY) else "communication"):
            differences.append(
                ClassDifference(function=use.function, ours=use.kind, theirs=theirs, total_ns=use.total_ns)
            )
    return sorted(differences, key=lambda each: -each.total_ns)


def cross_check_text(check: CrossCheck, *, width: int, color: bool) -> str:
    """Return the cross-check in a few lines, for any number of ranks."""
    equal = sum(not each.reasons for each in check.comparisons)
    blocks: list[object] = [
        "",
        f"Cross-check with HTA {check.hta_version}: {equal} of {len(check.comparisons)} figures are equal",
    ]
    alike: dict[tuple[str, ...], dict[str, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for each in check.comparisons:
        if each.reasons:
            alike[each.reasons][each.figure].append(each)
    for reasons, by_figure in alike.items():
        differences = "; ".join(_difference(same) for same in by_figure.values())
        blocks.append(statement("info", f"HTA {_join(reasons)}: {differences}"))
    for kernel in check.class_differences[:_SHOWN_KERNELS]:
        text = f"{kernel.function}: {kernel.ours} here, {kernel.theirs} for HTA; {kernel.total_ns / 1e6:,.2f} ms"
        blocks.append(statement("info", text))
    if (left := len(check.class_differences) - _SHOWN_KERNELS) > 0:
        blocks.append(statement("info", f"{left} more functions are classed differently; --json has all"))
    blocks += [statement("warning", f"HTA fails with {error} in its {name}") for name, error in check.errors.items()]
    return write(blocks, width=width, color=color)


def _join(reasons: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(reasons[:-1]), reasons[-1]]))


def _difference(same: Sequence[Comparison]) -> str:
    """Return one figure of ranks that differ alike, on the rank where it differs most."""
    most = max(same, key=lambda each: abs(each.ours - each.theirs))
    unit = UNITS[most.figure]
    where = "all ranks" if most.rank < 0 else f"rank {most.rank}"
    others = f" and {len(same) - 1} more" * (len(same) > 1)
    return f"{most.figure} of {where}{others} {_number(most.ours, unit)}, HTA {_number(most.theirs, unit)}"


def _number(value: float, unit: str) -> str:
    return f"{value:.2f} %" if unit == "%" else f"{value / 1000:,.3f} ms"


@dataclass(frozen=True, kw_only=True)
class HtaChoices:
    """What HTA counts. The defaults are HTA's.

    Attributes:
        last_step: Whether it keeps the last step.
        rounded: Whether it rounds times to whole microseconds.
        host_events: Whether operators of the host with an argument `stream` count as kernels.
    """

    last_step: bool = False
    rounded: bool = True
    host_events: bool = True


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Figures under other conventions. Each is worked out when it is needed.

    Attributes:
        ours: Of complete steps, or of the whole recording.
        theirs: As HTA counts, for a set of choices.
        classes_differ: Whether any kernel is classed differently.
    """

    ours: Callable[[bool], Figures]
    theirs: Callable[[HtaChoices], Figures]
    classes_differ: Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A figure of a rank, ours and HTA's, each with its defaults.

    Attributes:
        reasons: what HTA does that makes them differ, as predicates; empty if they are equal.
    """

    figure: str
    rank: int
    ours: float
    theirs: float
    reasons: tuple[str, ...]


def compare(variants: Variants) -> list[Comparison]:
    """Return the figures that both have, with the fewest conventions that explain each difference."""
    ours, theirs = variants.ours(False), variants.theirs(HtaChoices())
    return [
        Comparison(
            figure=figure,
            rank=rank,
            ours=value,
            theirs=theirs.values[figure, rank],
            reasons=_reasons(figure, rank, variants),
        )
        for (figure, rank), value in ours.values.items()
        if (figure, rank) in theirs.values
    ]


def _reasons(figure: str, rank: int, variants: Variants) -> tuple[str, ...]:
    for conventions in _combinations():
        ours = variants.ours(_RECORDING in conventions)
        choices = HtaChoices(
            last_step=_LAST_STEP in conventions,
            rounded=_ROUNDING not in conventions,
            host_events=_HOST_EVENTS not in conventions,
        )
        theirs = variants.theirs(choices)
        if (figure, rank) not in ours.values or (figure, rank) not in theirs.values:
            continue
        if _are_equal(figure, ours.values[figure, rank], theirs.values[figure, rank], len(ours.values)):
            return conventions
        our_busy, their_busy = ours.busy_us(rank), theirs.busy_us(rank)
        if our_busy is None or their_busy is None or not _are_equal("busy", our_busy, their_busy, len(ours.values)):
            continue
        # The same time is busy, so that only its ends or its division can differ.
        if figure in {"total", "idle"}:
            return (*conventions, _SPAN)
        if variants.classes_differ():
            return (*conventions, CLASSES)
    return (_UNEXPLAINED,)


def _combinations() -> Iterator[tuple[str, ...]]:
    conventions = (_LAST_STEP, _ROUNDING, _RECORDING, _HOST_EVENTS)
    for count in range(len(conventions) + 1):
        yield from itertools.combinations(conventions, count)


def _are_equal(figure: str, ours: float, theirs: float, figures: int) -> bool:
    """Whether two figures are equal but for the decimals that HTA shows and the sums of floats that it makes."""
    if UNITS.get(figure) == "%":
        return abs(ours - theirs) <= _LEAST_PERCENT
    least = _LEAST_US * (figures if figure == "communication" else 1)  # it is rounded for each rank
    return abs(ours - theirs) <= max(least, _RELATIVE * abs(ours))


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
    """Return the time of communication as HTA works it out, before it cuts each interval to whole microseconds."""
    utils: Any = importlib.import_module("hta.utils.utils")
    symbols = analysis.t.symbol_table.get_sym_table()
    communicates = [number for number, name in enumerate(symbols) if utils.is_comm_kernel(name)]
    total = 0.0
    for frame in analysis.t.traces.values():
        merged = utils.merge_kernel_intervals(frame[frame["stream"].ne(-1) & frame["name"].isin(communicates)].copy())
        total += float((merged["end"] - merged["ts"]).sum())
    return {("communication", ALL_RANKS): total}
