"""Which conventions of HTA make one of its figures another one than ours.

A convention is named only where it was tried: without it, HTA's figure is ours. HTA can be told to keep the last step
and to keep nanoseconds. Events of the host can be taken from it. We can count the whole recording, as HTA does with
what it keeps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tracekit.hta.figures import UNITS, Figures

__all__ = ["CLASSES", "Comparison", "HtaChoices", "Variants", "compare"]

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
    variants = Variants(
        ours=cache(variants.ours), theirs=cache(variants.theirs), classes_differ=cache(variants.classes_differ)
    )
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
