"""Our figures of a run against HTA's: what differs, and which convention makes it differ."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tracekit.analysis.kernel_list import KernelUse
from tracekit.hta.conventions import CLASSES, Comparison, HtaChoices, Variants, compare
from tracekit.hta.figures import FIGURES, Figures, figures_of_hta, figures_of_run
from tracekit.hta.kernel_classes import ClassDifference, class_differences
from tracekit.hta.package import import_bridge, quiet, rounding
from tracekit.model.run import Run

__all__ = ["CrossCheck", "cross_check"]

_HOST_CATEGORIES = ("cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver")


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
            analysis = run.to_hta(include_last_step=choices.last_step)
            if not choices.host_events:
                _take_host_events_from_streams(analysis)
            return figures_of_hta(analysis, rounded=choices.rounded)

    @cache
    def differences() -> list[ClassDifference]:
        return class_differences(kernels())

    variants = Variants(
        ours=lambda whole: figures_of_run(recording() if whole else run),
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
