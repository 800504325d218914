"""What one rank did in any stretch of its time in which it did not wait in communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tracekit.analysis.diagnosis.parts import ACTIVITIES, PhaseActivities
from tracekit.analysis.events.phases import STEP_PHASES
from tracekit.analysis.stats.apportion import apportion
from tracekit.model.events import Int64

__all__ = ["RankActivities", "Times"]

_OTHER = ACTIVITIES.index("other")
_NO_PHASE = STEP_PHASES.index("other")
_AT_ONCE = 10_000  # stretches, which bounds the memory
Times = dict[tuple[str, str], int]  # of each activity and phase, in ns


class RankActivities:
    """The activities of one rank by stretch of a phase.

    Within a stretch of a phase, activities are taken as spread evenly: their sums over whole phases are exact.
    """

    def __init__(self, table: PhaseActivities) -> None:
        self._begin_ns, first, stretch = np.unique(table.begin_ns, return_index=True, return_inverse=True)
        self._end_ns, self._phase = table.end_ns[first], table.phase[first]
        time_ns = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(time_ns, (stretch, table.activity), table.time_ns)
        self._share = time_ns / np.maximum(time_ns.sum(axis=1, keepdims=True), 1.0)

    def divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        """Return the time of each of s stretches by activity and phase.

        begin_ns, end_ns: of the stretches, on the rank's wall clock, int64 [s].
        known_ns: ns of each stretch by activity, where they were measured. The remaining time is divided among the
        other activities as is usual in its phases. With an empty mapping all time is. Outside of recorded phases it is
        compute.
        """
        parts = (slice(at, at + _AT_ONCE) for at in range(0, len(known_ns), _AT_ONCE))
        return [times for part in parts for times in self._divide(begin_ns[part], end_ns[part], known_ns[part])]

    def _divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        first = np.searchsorted(self._end_ns, begin_ns, side="right")
        count = np.maximum(np.searchsorted(self._begin_ns, end_ns, side="left") - first, 0)
        which = np.repeat(np.arange(len(first)), count)
        place = np.arange(len(which)) + np.repeat(first - np.cumsum(count) + count, count)
        phase = self._phase[place]
        overlap_ns = np.minimum(self._end_ns[place], end_ns[which]) - np.maximum(self._begin_ns[place], begin_ns[which])
        weights = self._share[place] * overlap_ns[:, None]
        usual = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(usual, which, weights)
        by_phase = np.zeros((len(first), len(STEP_PHASES), len(ACTIVITIES)))
        np.add.at(by_phase, (which, phase), weights)
        # Of an activity that is unusual in these phases, each phase has as much as the stretch has of the phase.
        of_stretch = np.zeros((len(first), len(STEP_PHASES)))
        np.add.at(of_stretch, (which, phase), overlap_ns)
        of_stretch[count == 0, _NO_PHASE] = 1.0
        by_phase = np.where(by_phase.any(axis=1, keepdims=True), by_phase, of_stretch[..., None])
        times_ns = apportion(_by_activity(end_ns - begin_ns, usual, known_ns), by_phase.swapaxes(1, 2).copy())
        result: list[Times] = [{} for _ in known_ns]
        found = np.nonzero(times_ns)
        columns = (rows.tolist() for rows in (*found, times_ns[found]))
        for stretch, activity, number, time_ns in zip(*columns, strict=True):
            result[stretch][ACTIVITIES[activity], STEP_PHASES[number]] = time_ns
        return result

    def phase_at(self, time_ns: int) -> str:
        """Return the phase at a time on the rank's wall clock; "other" outside of the recorded steps."""
        at = int(np.searchsorted(self._begin_ns, time_ns, side="right")) - 1
        return STEP_PHASES[self._phase[at] if at >= 0 and time_ns < self._end_ns[at] else _NO_PHASE]


def _by_activity(total_ns: Int64, usual: NDArray[np.float64], known_ns: Sequence[Mapping[str, int]]) -> Int64:
    """Return how long each of `ACTIVITIES` took of each time: as known, and the rest in the usual proportion."""
    times_ns = np.zeros(usual.shape, dtype=np.int64)
    for stretch, known in enumerate(known_ns):
        for name, time_ns in known.items():
            activity = ACTIVITIES.index(name)
            times_ns[stretch, activity], usual[stretch, activity] = time_ns, 0.0
        if known and not usual[stretch].any():
            usual[stretch, _OTHER] = 1.0
    return times_ns + apportion(total_ns - times_ns.sum(axis=1), usual)
