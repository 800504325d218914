"""What a check returns: whether a statement of a report is right, with the numbers seen and expected."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from benchmarks.studies.gpu_jobs.evidence import Evidence

K = TypeVar("K", bound=Hashable)
Verdict = Literal["right", "wrong", "abstained"]


@dataclass(frozen=True)
class Outcome:
    """Whether a statement is right. It is abstained if the report says that it does not know."""

    verdict: Verdict
    seen: str
    expected: str


Check = Callable[[Evidence], Outcome | None]
"""Compares one statement of a report with the truth; None where a job has nothing to state."""


def right_if(right: bool, seen: object, expected: object) -> Outcome:
    return Outcome("right" if right else "wrong", str(seen), str(expected))


def abstained(expected: object, why: object = "no statement") -> Outcome:
    return Outcome("abstained", str(why), str(expected))


def compare(seen: float | None, expected: float, *, within: float, share: float = 0.0) -> Outcome:
    """Compare two numbers: right if they are `within` of each other, or that `share` of the expected one if more."""
    return compare_each({"": seen}, {"": expected}, within=within, share=share)


def compare_each(
    seen: Mapping[K, float | None] | Mapping[K, float],
    expected: Mapping[K, float],
    *,
    within: float | Mapping[K, float],
    share: float = 0.0,
    enough: float = 1.0,
) -> Outcome:
    """Compare numbers by key: right if `enough` of the expected ones are there and none is there that is not expected.

    The outcome shows the number that is farthest off. It is abstained if there is no number at all.
    """
    if expected and all(value is None for value in seen.values()):
        return abstained(f"{len(expected)} numbers")
    more = [key for key in seen if key not in expected]
    worst = (-1.0, "as expected", "as seen")
    wrong = 0
    for key, number in expected.items():
        value = seen.get(key)
        allowed = max(within[key] if isinstance(within, Mapping) else within, share * abs(number))
        off = float("inf") if value is None else abs(value - number)
        wrong += off > allowed
        if off - allowed > worst[0] or worst[0] < 0:
            worst = (off - allowed, f"{key}: {_text(value)}", f"{key}: {_text(number)} ± {_text(allowed)}")
    if more:
        return Outcome("wrong", f"{len(more)} not expected, such as {more[0]}: {_text(seen[more[0]])}", "none of them")
    right = wrong <= (1 - enough) * len(expected)
    counted = f" ({wrong} of {len(expected)} are off)" if wrong else ""
    return Outcome("right" if right else "wrong", worst[1].removeprefix(": ") + counted, worst[2].removeprefix(": "))


def _text(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
