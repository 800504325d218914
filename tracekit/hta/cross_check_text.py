"""A cross-check as text: the conventions that make figures differ, with the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tracekit.hta.conventions import Comparison
from tracekit.hta.cross_check import CrossCheck
from tracekit.hta.figures import UNITS
from tracekit.render.console import statement, write

__all__ = ["cross_check_text"]

_SHOWN_KERNELS = 3


def cross_check_text(check: CrossCheck, *, width: int, color: bool) -> str:
    """Return the cross-check in a few lines, for any number of ranks."""
    equal = sum(not each.reasons for each in check.comparisons)
    parts: list[object] = [
        "",
        f"Cross-check with HTA {check.hta_version}: {equal} of {len(check.comparisons)} figures are equal",
    ]
    alike: dict[tuple[str, ...], dict[str, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for each in check.comparisons:
        if each.reasons:
            alike[each.reasons][each.figure].append(each)
    for reasons, by_figure in alike.items():
        differences = "; ".join(_difference(same) for same in by_figure.values())
        parts.append(statement("info", f"HTA {_join(reasons)}: {differences}"))
    for kernel in check.class_differences[:_SHOWN_KERNELS]:
        text = f"{kernel.function}: {kernel.ours} here, {kernel.theirs} for HTA; {kernel.total_ns / 1e6:,.2f} ms"
        parts.append(statement("info", text))
    if (left := len(check.class_differences) - _SHOWN_KERNELS) > 0:
        parts.append(statement("info", f"{left} more functions are classed differently; --json has all"))
    parts += [statement("warning", f"HTA fails with {error} in its {name}") for name, error in check.errors.items()]
    return write(parts, width=width, color=color)


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
