"""Pictures of the sections of a report: `report.plot.breakdown()` and the like.

Each draws what the tables of its section have, of at most so many rows, and returns matplotlib's axes. Times are
milliseconds, means a step. Pictures consist of stacked bars, spans of time and points.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.analysis.report import Report
from tracekit.analysis.table import rows_of
from tracekit.errors import UsageError
from tracekit.model.safe_text import safe_text
from tracekit.render.rank_bars import ranks_to_show
from tracekit.render.sections.diagnosis import where_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Plots", "draw_bars", "label", "size_unit"]

_SHOWN_RANKS = 32
_SHOWN_ROWS = 20
_MS = 1e6
_GB = 1e9
_A_STEP = "ms a step"

Row = dict[str, Any]

# Blue, orange, green, ... of Okabe and Ito, which people who do not see all colours can tell apart.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
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


def _breakdown(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, rows_of(result, "ranks"))
    names = {"compute": "compute_ns", "exposed communication": "exposed_comm_ns", "exposed copies": "exposed_copy_ns"}
    parts = {
        name: [row[part] / row["steps"] / _MS for row in rows] for name, part in {**names, "idle": "idle_ns"}.items()
    }
    return draw_bars(ax, _ranks(rows), parts, title=rows.titled("Where each rank's step goes"), unit=_A_STEP)


def _phases(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, [row for row in rows_of(result, "ranks") if row["steps"]])
    steps = {row["rank"]: row["steps"] for row in rows}
    sums = [row for row in rows_of(result, "parts") if row["rank"] in steps]
    times = {(row["rank"], row["phase"]): row["total_ns"] / steps[row["rank"]] / _MS for row in sums}
    phases = dict.fromkeys(row["phase"] for row in sums)
    parts = {phase: [times.get((rank, phase), 0.0) for rank in steps] for phase in phases}
    return draw_bars(ax, _ranks(rows), parts, title=rows.titled("Phases of the step"), unit=_A_STEP)


def _overlap(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _most(rows_of(result, "by_kind"), "total_ns")
    hidden = [(row["total_ns"] - row["exposed_ns"]) / _MS for row in rows]
    parts = {"exposed": _milliseconds(rows, "exposed_ns"), "hidden": hidden}
    return draw_bars(
        ax, _joined(rows, "kind", "group", "phase"), parts, title=rows.titled("Communication"), unit=_A_STEP
    )


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
    for place, rows in enumerate(by_bucket.values()):
        mean_ms = [sum(row[moment] for row in rows) / len(rows) / _MS for moment in moments]
        for kind, begin, end in zip(spans, mean_ms, mean_ms[1:], strict=False):
            spans[kind].append((place, begin, end - begin, ""))
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


def _dimensions(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = rows_of(result, "by_name")
    labels = [row["dimension"] or "unknown" for row in rows]
    parts = {"exposed": _milliseconds(rows, "exposed_ns")}
    return draw_bars(ax, labels, parts, title="What ranks wait for, by dimension of the mesh", unit=_A_STEP)


def _fsdp(report: Report, result: Any, ax: Axes | None) -> Axes:
    return _by_layer(result, ax, "Exposed communication of FSDP")


def _tensor(report: Report, result: Any, ax: Axes | None) -> Axes:
    return _by_layer(result, ax, "Exposed communication within layers")


def _by_layer(result: Any, ax: Axes | None, title: str) -> Axes:
    rows = _most(rows_of(result, "by_layer"), "exposed_ns")
    parts = {"exposed": _milliseconds(rows, "exposed_ns")}
    return draw_bars(ax, _joined(rows, "module", "kind", "phase"), parts, title=rows.titled(title), unit=_A_STEP)


def _kernels(report: Report, result: Any, ax: Axes | None) -> Axes:
    kernels = rows_of(result, "kernels")
    cost = "total_ns" if kernels else "self_ns"  # an operator's total has that of the operators that it calls
    rows = _most(kernels or rows_of(result, "operators"), cost)
    hidden = [max(row[cost] - row["exposed_ns"], 0) / _MS for row in rows]
    parts = {"exposed": _milliseconds(rows, "exposed_ns"), "hidden": hidden}
    title = "Kernels" if kernels else "Operators, without what they call"
    return draw_bars(ax, [row["name"] for row in rows], parts, title=rows.titled(title), unit=_A_STEP)


def _stragglers(report: Report, result: Any, ax: Axes | None) -> Axes:
    known = [row for row in rows_of(result, "by_rank") if row["wait_ns"] is not None]
    rows = _most(known, "caused_delay_ns", "wait_ns")
    parts = {"delay that it caused": _milliseconds(rows, "caused_delay_ns"), "its wait": _milliseconds(rows, "wait_ns")}
    return draw_bars(ax, _ranks(rows), parts, title=rows.titled("Who holds up whom"), unit=_A_STEP)


def _critical_path(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _most(rows_of(result, "parts"), "total_ns")
    names = [row["name"] if row["kind"] == "communication" else f"{row['kind']} before {row['name']}" for row in rows]
    labels = [f"rank {row['rank']}: {name.replace('_', ' ')}" for row, name in zip(rows, names, strict=True)]
    parts = {"time": [row["total_ns"] / max(result.steps, 1) / _MS for row in rows]}
    return draw_bars(ax, labels, parts, title=rows.titled("The longest chain over all ranks"), unit=_A_STEP)


def _diagnosis(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _most(rows_of(result, "causes"), "time_ns")
    labels = [f"{row['cause'].replace('_', ' ')}, {where_text(row)}".rstrip(", ") for row in rows]
    return draw_bars(
        ax, labels, {"time": _milliseconds(rows, "time_ns")}, title=rows.titled("What the step goes to"), unit=_A_STEP
    )


def _whatif(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = rows_of(result, "fix")
    errors = _milliseconds(rows, "error_ns")
    parts = {"saves": _milliseconds(rows, "saves_ns_per_step")}
    title = f"What each change would save of {result.measured_ns / _MS:,.1f} ms"
    return draw_bars(ax, [row["what"] for row in rows], parts, title=title, unit=_A_STEP, errors=errors)


def _roofline(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, [row for row in rows_of(result, "by_rank") if row["mfu"] is not None])
    recomputed = [max((row["hfu"] or row["mfu"]) - row["mfu"], 0) * 100 for row in rows]
    parts = {"model FLOPs (MFU)": [row["mfu"] * 100 for row in rows], "recomputed (HFU)": recomputed}
    return draw_bars(ax, _ranks(rows), parts, title=rows.titled("Use of the device's peak"), unit="% of the peak")


def _memory(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _shown_ranks(report, rows_of(result, "ranks"))
    names = {"parameters": "parameter_bytes", "gradients": "gradient_bytes", "optimizer": "optimizer_bytes"}
    sizes_bytes = {name: [row[part] or 0 for row in rows] for name, part in names.items()}
    unit, unit_bytes = size_unit(max((size for sizes in sizes_bytes.values() for size in sizes), default=0))
    parts = {name: [size / unit_bytes for size in sizes] for name, sizes in sizes_bytes.items()}
    return draw_bars(ax, _ranks(rows), parts, title=rows.titled("Memory of each rank"), unit=unit)


def _pauses(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = _most(rows_of(result, "ranks"), "total_ns")
    labels = [f"rank {row['rank']}: {row['pause']}" for row in rows]
    return draw_bars(
        ax,
        labels,
        {"time": _milliseconds(rows, "each_ns")},
        title=rows.titled("Pauses"),
        unit="ms in a step that has one",
    )


def _attempts(report: Report, result: Any, ax: Axes | None) -> Axes:
    rows = [row for row in rows_of(result, "attempts") if row["lost_ns"]]
    names = ("detection", "rendezvous", "startup", "reload", "repeated")
    parts = {name: [(row[f"{name}_ns"] or 0) / 1e9 for row in rows] for name in names}
    return draw_bars(ax, [f"before attempt {row['attempt']}" for row in rows], parts, title="Lost time", unit="s")


class _Part(list[Row]):
    """The rows of a table that a picture shows, of `total` that there are."""

    def __init__(self, rows: Iterable[Row], total: int) -> None:
        super().__init__(rows)
        self.total = total

    def titled(self, title: str) -> str:
        """Return the title, with the numbers of rows if the picture does not show all."""
        return title if len(self) == self.total else f"{title} ({len(self)} of {self.total})"


def _shown_ranks(report: Report, rows: Sequence[Row]) -> _Part:
    """Return the rows of the ranks that matter most, of those with complete steps."""
    shown = set(ranks_to_show(report, _SHOWN_RANKS))
    return _Part((row for row in rows if row["rank"] in shown), len(rows))


def _most(rows: Sequence[Row], *names: str) -> _Part:
    """Return the rows with the largest sums of these columns, the largest first."""
    return _Part(sorted(rows, key=lambda row: -sum(row[name] for name in names))[:_SHOWN_ROWS], len(rows))


def _milliseconds(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name] / _MS for row in rows]


def _ranks(rows: Sequence[Row]) -> list[str]:
    return [f"rank {row['rank']}" for row in rows]


def _joined(rows: Sequence[Row], *names: str) -> list[str]:
    """Return a label for each row: its values in these columns."""
    return [", ".join(str(row[name]) for name in names if row[name] not in (None, "")) for row in rows]


_DRAW: dict[str, Callable[[Report, Any, Axes | None], Axes]] = {
    "breakdown": _breakdown,
    "stragglers": _stragglers,
    "phases": _phases,
    "pauses": _pauses,
    "overlap": _overlap,
    "collectives": _collectives,
    "pipeline": _pipeline,
    "buckets": _buckets,
    "dimensions": _dimensions,
    "roofline": _roofline,
    "fsdp": _fsdp,
    "tensor": _tensor,
    "memory": _memory,
    "kernels": _kernels,
    "critical_path": _critical_path,
    "diagnosis": _diagnosis,
    "whatif": _whatif,
    "attempts": _attempts,
}
"""What draws each section, in the order of the sections."""


def label(text: object, most: int = _LONGEST_LABEL) -> str:
    """Return text for a label: in one line, of at most so many characters, and not read as a formula."""
    line = safe_text(" ".join(str(text).split()))
    short = line if len(line) <= most else f"{line[: most - 1]}…"
    return short.replace("$", r"\$")


def size_unit(largest_bytes: float) -> tuple[str, float]:
    """Return the name of the unit for sizes of at most so many bytes, and its bytes."""
    return next((unit for unit in _SIZE_UNITS if largest_bytes >= unit[1]), _SIZE_UNITS[-1])


def draw_bars(
    ax: Axes | None,
    labels: Sequence[object],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    errors: Sequence[float] | None = None,
) -> Axes:
    """Draw a bar a label, from above, that consists of parts, and return the axes.

    Args:
        ax: where to draw; None makes a figure.
        parts: for each name the lengths, one a label. The name of a single part is not shown, nor parts without any.
        errors: half the length of the error bar at the end of each bar.

    Raises UsageError if there are no bars or all have the length 0, and without matplotlib.
    """
    ax = _axes(ax, len(labels) if any(map(any, parts.values())) else 0, title)
    rows, ends = range(len(labels)), [0.0] * len(labels)
    for number, (name, lengths) in enumerate(parts.items()):
        if not any(lengths):
            continue
        style: dict[str, Any] = {"color": _COLORS[number % len(_COLORS)], "hatch": _HATCHES[number % len(_HATCHES)]}
        ax.barh(rows, lengths, left=ends, label=label(name), edgecolor="white", linewidth=0.5, **style)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    if errors is not None:
        ax.errorbar(ends, rows, xerr=errors, fmt="none", ecolor="black", capsize=3)
    _finish(ax, labels, title, unit)
    if len(parts) > 1:
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

    spans: for each kind its spans: the place of the row, begin, length, and a short text in it.
    """
    ax = _axes(ax, len(labels), title)
    for number, (kind, of_kind) in enumerate(spans.items()):
        rows, begins, lengths, texts = zip(*of_kind, strict=True) if of_kind else ((), (), (), ())
        style: dict[str, Any] = {"color": _COLORS[number % len(_COLORS)], "hatch": _HATCHES[number % len(_HATCHES)]}
        bars = ax.barh(rows, lengths, left=begins, label=label(kind), edgecolor="white", linewidth=0.5, **style)
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
    for number, (name, (across, up)) in enumerate(groups.items()):
        mark = "osD^v<>P"[number % 8]
        ax.scatter(across, up, label=label(name), color=_COLORS[number % len(_COLORS)], marker=mark)
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=label(title, _LONGEST_TITLE))
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


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
