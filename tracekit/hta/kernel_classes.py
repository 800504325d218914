"""Which kernels communicate, compute or copy for tracekit, and not for HTA."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracekit.analysis.events.communication_rules import COMPUTE
from tracekit.analysis.kernel_list import COPY, KernelUse

__all__ = ["ClassDifference", "class_differences"]

_NAMES = {"COMMUNICATION": "communication", "COMPUTATION": COMPUTE, "MEMORY": COPY, "OTHER": "other"}


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
