"""The shapes that pictures of sections consist of, drawn by matplotlib: stacked bars, spans of time, points."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.render.safe_text import safe_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_bars", "draw_points", "draw_spans", "label", "size_unit"]

# Blue, orange, green, ... of Okabe and Ito, which people who do not see all colours can tell apart.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
_HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "++", "")
_SIZE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_LONGEST_LABEL = 60
_LONGEST_TITLE = 100
_ROWS_OF_POINTS = 12  # the height of a figure of points


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
