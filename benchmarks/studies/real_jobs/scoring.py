"""Compares what is said of a run with a defect with what was planted, and with the run without it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.real_jobs.pairs import Pair

Result = Mapping[str, Any]

_BLAMED = frozenset({"compute", "more_work", "host", "between_steps", "data", "link", "imbalance", "expert_load"})
"""Causes whose findings blame the ranks that they name."""

_SHARE, _OF_STEP = 0.15, 0.01  # a saving may be off by so much, or by that of the step if it is more


@dataclass(frozen=True, kw_only=True)
class Score:
    """What was said of a pair of runs.

    Attributes:
        named: whether the first finding that blames anyone blames the culprits, and nobody else.
        right_cause: whether it also says why.
        certainty: of that finding; None if there is none.
        step_ns: median step of the run with the defect.
        measured_ns: by how much it is longer than that of the run without.
        planted_ns: by how much one rank is delayed, for which all others wait; None where something else is planted.
        predicted_ns: saving of the finding that names the culprits; None if it states none.
        error_ns: of the prediction, as stated.
        false_alarm: highest certainty with which anyone is blamed in the run without the defect.
        text: of the finding that was scored.
    """

    kind: str
    seed: int
    named: bool
    right_cause: bool
    certainty: str | None
    step_ns: int
    measured_ns: int
    planted_ns: int | None
    predicted_ns: int | None
    error_ns: int | None
    false_alarm: str | None
    text: str

    @property
    def relative_error(self) -> float:
        """Return the error of the prediction as a share of what was measured. Without a prediction it is all of it."""
        return abs((self.predicted_ns or 0) - self.measured_ns) / max(abs(self.measured_ns), 1)

    @property
    def is_close(self) -> bool:
        return self._is_close(self.predicted_ns or 0, self.measured_ns)

    @property
    def is_close_to_planted(self) -> bool | None:
        """Return whether the prediction is close to the planted delay; None where none is known."""
        return None if self.planted_ns is None else self._is_close(self.predicted_ns or 0, self.planted_ns)

    @property
    def is_measured_well(self) -> bool | None:
        """Return whether what was measured is as close to the planted delay; None where none is known."""
        return None if self.planted_ns is None else self._is_close(self.measured_ns, self.planted_ns)

    def _is_close(self, saving_ns: int, truth_ns: int) -> bool:
        return abs(saving_ns - truth_ns) <= max(_SHARE * abs(truth_ns), _OF_STEP * self.step_ns)


def score(pair: Pair, planted: Result, removed: Result) -> Score:
    """Return the score of a pair; `planted` and `removed` are results of `analyze --json`."""
    blaming = _blaming(planted, pair.causes)
    first = blaming[0] if blaming else None
    named = first is not None and _is_right(pair, first)
    finding = next((f for f in blaming if _is_right(pair, f)), None)
    step_ns = int(planted["run"]["step_ns"]["median"])
    shown = finding or first
    return Score(
        kind=pair.kind,
        seed=pair.seed,
        named=named,
        right_cause=first is not None and named and first["cause"] in pair.causes,
        certainty=None if first is None else first["certainty"],
        step_ns=step_ns,
        measured_ns=step_ns - int(removed["run"]["step_ns"]["median"]),
        planted_ns=pair.delay_ns,
        predicted_ns=None if finding is None else finding["saving_ns"],
        error_ns=None if finding is None else finding["saving_error_ns"],
        false_alarm=false_alarm(removed),
        text="nobody is blamed" if shown is None else str(shown["text"]),
    )


def false_alarm(result: Result) -> str | None:
    """Return the highest certainty with which anyone is blamed in a run without a defect."""
    alarms = {str(f["certainty"]) for f in _blaming(result)}
    return "sure" if "sure" in alarms else "likely" if alarms else None


def _blaming(result: Result, causes: Collection[str] = ()) -> list[Mapping[str, Any]]:
    """Return the findings that blame a rank; `causes` of the defect blame, too."""
    return [f for f in result["findings"] if f["ranks"] and (f["cause"] in _BLAMED or f["cause"] in causes)]


def _is_right(pair: Pair, finding: Mapping[str, Any]) -> bool:
    """Return whether a finding is about the culprits. If all ranks have the defect, its cause tells."""
    if not pair.culprits:
        return finding["cause"] in pair.causes
    return tuple(finding["ranks"]) == pair.culprits
