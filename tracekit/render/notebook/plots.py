"""Pictures of the sections of a report: `report.plot.breakdown()` and the like.

Each draws the tables of its section, up to a limited number of rows, and returns matplotlib's axes. Times are
milliseconds, means a step. Pictures consist of stacked bars, spans of time and points.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.explain.sections import SECTIONS
from tracekit.explain.step_time.tables import RANKS
from tracekit.explain.whatif.tables import WHATIF
from tracekit.model.table import Table, rows_of, tables_of
from tracekit.model.texts import safe_text, shortened
from tracekit.render.grid import bars_of
from tracekit.render.palette import Look, series_looks
from tracekit.render.sections.text import rows_to_show
from tracekit.report.report import Report
from tracekit.report.shown_ranks import ranks_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SHOWN_RANKS = 32
_SHOWN_ROWS = 20
_MS = 1e6
_GB = 1e9
_A_STEP = "ms a step"

Row = dict[str, Any]
Drawing = Callable[[Report, Any, "Axes | None"], "Axes"]

_HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "++", "")
_SIZE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_LONGEST_LABEL = 60
_LONGEST_TITLE = 100
_ROWS_OF_POINTS = 12  # the height of a figure of points


class Plots:
    """The pictures of a report, a method for each section that has one: `plots.breakdown(ax=None)`.

    A method draws into `ax`, or into a figure of its own, and returns the axes. It raises UsageError where there is
    nothing to draw, and without matplotlib.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        if name not in _DRAW:
            raise AttributeError(f"there is no picture of {name!r}; there are {', '.join(_DRAW)}")

        def draw(ax: Axes | None = None) -> Axes:
            result = getattr(self._report, name)
            if result is None:
                reason = self._report.unavailable.get(name, "the section was not asked for")
                raise UsageError(f"no picture of {name}: {reason}", hint="look at another section")
            return _DRAW[name](self._report, result, ax)

        draw.__name__ = name
        draw.__doc__ = f"Draw the section {name}."
        return draw

    def __dir__(self) -> list[str]:
        return sorted(_DRAW)

    def __repr__(self) -> str:
        return f"<pictures of a report: {', '.join(_DRAW)}>"


def _declared(name: str) -> Drawing:
    """Return what draws the first table of a section that has rows and says what its bars are, with a bar a row."""

    def draw(report: Report, result: Any, ax: Axes | None) -> Axes:
        filled = {table.name: table for table in tables_of(result)}
        tables = filter(_has_bars, SECTIONS[name].tables)
        of_tables = [(table, rows_to_show(filled[table.name], result, report.run)) for table in tables]
        table, rows = next((each for each in of_tables if each[1]), of_tables[0])
        shown = (
            _shown_ranks(report, [row for row in rows if row["steps"]])
            if table is RANKS
            else _ShownRows(rows, len(rows))
        )
        bars = bars_of(table, shown, most=None if table is RANKS else _SHOWN_ROWS)
        title = bars.title if len(bars.labels) == shown.total else f"{bars.title} ({len(bars.labels)} of {shown.total})"
        errors = [row["error_ns"] / _MS for row in rows[:_SHOWN_ROWS]] if table is WHATIF else None
        return draw_bars(ax, bars.labels, bars.segments, title=title, unit=bars.unit, errors=errors)

    return draw


def _phases(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, [row for row in rows_of(result, "ranks") if row["steps"]])
    steps = {row["rank"]: row["steps"] for row in rows}
    sums = [row for row in rows_of(result, "parts") if row["rank"] in steps]
    times = {(row["rank"], row["phase"]): row["total_ns"] / steps[row["rank"]] / _MS for row in sums}
    phases = dict.fromkeys(row["phase"] for row in sums)
    segments = {phase: [times.get((rank, phase), 0.0) for rank in steps] for phase in phases}
    return draw_bars(ax, _ranks(rows), segments, title=rows.titled("Phases of the step"), unit=_A_STEP)


def _collectives(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = [row for row in rows_of(result, "table") if row["size_bytes"] and row["busbw_bps"]]
    groups: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in rows:
        sizes, bandwidths = groups[row["kind"]]
        sizes.append(row["size_bytes"])
        bandwidths.append(row["busbw_bps"] / _GB)
    return draw_points(ax, groups, title="Bandwidth of collectives", x="size, bytes", y="bus bandwidth, GB/s")


def _buckets(report: Report, result: Any, ax: Axes | None) -> Axes:
    by_bucket: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows_of(result, "times"):
        by_bucket[row["module"], row["index"]].append(row)
    spans: dict[str, list[tuple[int, float, float, str]]] = {"ready, not launched": [], "queued": [], "reduced": []}
    moments = ("ready_ns", "launch_ns", "start_ns", "end_ns")
    for index, rows in enumerate(by_bucket.values()):
        mean_ms = [sum(row[moment] for row in rows) / len(rows) / _MS for moment in moments]
        for kind, begin, end in zip(spans, mean_ms, mean_ms[1:], strict=False):
            spans[kind].append((index, begin, end - begin, ""))
    labels = [f"bucket {index}" for _, index in by_bucket]
    return draw_spans(
        ax, labels, spans, title="DDP's buckets, mean of ranks and steps", unit="ms from the step's begin"
    )


def _pipeline(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = rows_of(result, "typical_step")
    ranks = sorted({row["rank"] for row in rows})
    begin_ns = min((row["start_ns"] for row in rows), default=0)
    names = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
    spans: dict[str, list[tuple[int, float, float, str]]] = {
        names[kind]: [] for kind in names if any(row["kind"] == kind for row in rows)
    }
    for row in rows:
        busy_ns = row["end_ns"] - row["start_ns"] - row["wait_ns"]
        start_ms = (row["end_ns"] - busy_ns - begin_ns) / _MS  # an action waits before it works
        spans[names[row["kind"]]].append((ranks.index(row["rank"]), start_ms, busy_ns / _MS, str(row["microbatch"])))
    labels = [f"rank {rank}" for rank in ranks]
    schedule = "" if result.schedule == "unknown" else f" ({result.schedule})"
    return draw_spans(ax, labels, spans, title=f"Pipeline{schedule}, the typical step", unit="ms")


def _roofline(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, [row for row in rows_of(result, "by_rank") if row["mfu"] is not None])
    recomputed = [max((row["hfu"] or row["mfu"]) - row["mfu"], 0) * 100 for row in rows]
    segments = {"model FLOPs (MFU)": [row["mfu"] * 100 for row in rows], "recomputed (HFU)": recomputed}
    return draw_bars(ax, _ranks(rows), segments, title=rows.titled("Use of the device's peak"), unit="% of the peak")


def _memory(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, rows_of(result, "ranks"))
    names = {"parameters": "parameter_bytes", "gradients": "gradient_bytes", "optimizer": "optimizer_bytes"}
    sizes_bytes = {name: [row[column] or 0 for row in rows] for name, column in names.items()}
    unit, unit_bytes = size_unit(max((size for sizes in sizes_bytes.values() for size in sizes), default=0))
    segments = {name: [size / unit_bytes for size in sizes] for name, sizes in sizes_bytes.items()}
    return draw_bars(ax, _ranks(rows), segments, title=rows.titled("Memory of each rank"), unit=unit)


class _ShownRows(list[Row]):
    """The rows of a table that a picture shows, of `total` that there are."""

    def __init__(self, rows: Iterable[Row], total: int) -> None:
        super().__init__(rows)
        self.total = total

    def titled(self, title: str) -> str:
        """Return the title, with the numbers of rows if the picture does not show all."""
        return title if len(self) == self.total else f"{title} ({len(self)} of {self.total})"


def _shown_ranks(report: Report, rows: Sequence[Row]) -> _ShownRows:
    """Return the rows of the ranks that matter most, of those with complete steps."""
    shown = set(ranks_to_show(report, _SHOWN_RANKS))
    return _ShownRows((row for row in rows if row["rank"] in shown), len(rows))


def _ranks(rows: Sequence[Row]) -> list[str]:
    return [f"rank {row['rank']}" for row in rows]


_OTHERWISE: dict[str, Drawing] = {
    "phases": _phases,
    "collectives": _collectives,
    "pipeline": _pipeline,
    "buckets": _buckets,
    "roofline": _roofline,
    "memory": _memory,
}


def _has_bars(table: Table) -> bool:
    return table.display is not None and bool(table.display.bars)


_DRAW: dict[str, Drawing] = {
    name: _OTHERWISE.get(name) or _declared(name)
    for name, section in SECTIONS.items()
    if name in _OTHERWISE or any(map(_has_bars, section.tables))
}
"""What draws each section, in the order of the sections."""


def label(text: object, most: int = _LONGEST_LABEL) -> str:
    """Return text for a label: in one line, of at most so many characters, and not read as a formula."""
    return shortened(safe_text(" ".join(str(text).split())), most).replace("$", r"\$")


def size_unit(largest_bytes: float) -> tuple[str, float]:
    """Return the name of the unit for sizes of at most so many bytes, and its bytes."""
    return next((unit for unit in _SIZE_UNITS if largest_bytes >= unit[1]), _SIZE_UNITS[-1])


def draw_bars(
    ax: Axes | None,
    labels: Sequence[object],
    segments: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    errors: Sequence[float] | None = None,
) -> Axes:
    """Draw a bar a label, from above, that consists of segments, and return the axes.

    Args:
        ax: where to draw; None makes a figure.
        segments: for each name the lengths, one a label. The name of a single one is not shown, nor those without any.
        errors: half the length of the error bar at the end of each bar.

    Raises UsageError if there are no bars or all have the length 0, and without matplotlib.
    """
    ax = _axes(ax, len(labels) if any(map(any, segments.values())) else 0, title)
    rows, ends = range(len(labels)), [0.0] * len(labels)
    for number, (look, (name, lengths)) in enumerate(zip(series_looks(segments), segments.items(), strict=True)):
        if not any(lengths):
            continue
        ax.barh(rows, lengths, left=ends, label=label(name), **_bar_style(look, number))
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    if errors is not None:
        ax.errorbar(ends, rows, xerr=errors, fmt="none", ecolor="black", capsize=3)
    _finish(ax, labels, title, unit)
    if len(segments) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def draw_spans(
    ax: Axes | None,
    labels: Sequence[object],
    spans: Mapping[str, Sequence[tuple[int, float, float, str]]],
    *,
    title: str,
    unit: str,
) -> Axes:
    """Draw spans of time in a row a label, and return the axes.

    spans: for each kind its spans: the index of the row, begin, length, and a short text in it.
    """
    ax = _axes(ax, len(labels), title)
    for number, (look, (kind, of_kind)) in enumerate(zip(series_looks(spans), spans.items(), strict=True)):
        rows, begins, lengths, texts = zip(*of_kind, strict=True) if of_kind else ((), (), (), ())
        bars = ax.barh(rows, lengths, left=begins, label=label(kind), **_bar_style(look, number))
        if any(texts):
            ax.bar_label(bars, labels=list(texts), label_type="center", fontsize=7, color="white")
    _finish(ax, labels, title, unit)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def draw_points(
    ax: Axes | None, groups: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str, x: str, y: str
) -> Axes:
    """Draw points on logarithmic axes, a colour and mark for each group, and return the axes."""
    ax = _axes(ax, _ROWS_OF_POINTS if groups else 0, title)
    for number, (look, (name, (across, up))) in enumerate(zip(series_looks(groups), groups.items(), strict=True)):
        ax.scatter(across, up, label=label(name), color=look.colour, marker="osD^v<>P"[number % 8])
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=label(title, _LONGEST_TITLE))
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def _bar_style(look: Look, number: int) -> dict[str, Any]:
    """Return how the bars of a series are drawn: those in which nothing is done as outlines."""
    if look.is_hollow:
        return {"facecolor": "none", "edgecolor": look.colour}
    hatch = _HATCHES[number % len(_HATCHES)]
    return {"facecolor": look.colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}


def _axes(ax: Axes | None, rows: int, title: str) -> Axes:
    """Return the axes, or new ones in a figure with room for the rows.

    Raises UsageError without rows, and without matplotlib.
    """
    if not rows:
        raise UsageError(f"{title}: there is nothing to draw", hint="this run has no values for it, or all are 0")
    if ax is not None:
        return ax
    if importlib.util.find_spec("matplotlib") is None:
        hint = "install it with: pip install 'torch-tracekit[plot]'"
        raise UsageError("pictures need matplotlib, which is not installed", hint=hint)
    from matplotlib import pyplot

    axes: Axes
    _, axes = pyplot.subplots(figsize=(9, min(max(1.4 + 0.3 * rows, 2.4), 12)), layout="constrained")
    return axes


def _finish(ax: Axes, labels: Sequence[object], title: str, unit: str) -> None:
    ax.set_yticks(range(len(labels)), [label(text) for text in labels])
    ax.invert_yaxis()
    ax.set(xlabel=unit, title=label(title, _LONGEST_TITLE))
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
