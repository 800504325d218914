"""Why ranks idle, what their hosts do then, and what to do about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.configuration.tables import CONFIGURATION
from tracekit.analysis.step_time.tables import IDLE_PLACES, IDLE_SUMS, MOST_PLACES, NAMED_WAITS, HostPlace
from tracekit.analysis.table import Rows
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import idle_entry, place_text
from tracekit.findings.thresholds import IDLE_SHARE, NOTABLE_SHARE
from tracekit.model.run import Run

__all__ = ["idle_findings", "idle_place_rows", "idle_rows"]

_MAIN_PLACE = 0.1  # of the idle time of a cause: a smaller place says little
_SECOND_CAUSE = 0.3  # of the idle time: a cause with less is not named beside the main one
_CLOSED_BY_HOST = frozenset({"host_bound", "synchronisation", "allocator", "garbage_collection", "between_steps"})
# Causes that other sections report on, as the text names them.
_REPORTED_APART = {"data": "loading", "checkpoint": "checkpoints", "logging": "logging"}


def idle_rows(run: Run) -> Rows:
    """Return rows of tables.IDLE."""
    return [
        {"rank": summary.rank, "cause": idle.cause, "total_ns": idle.total_ns}
        for summary in run.ranks
        for idle in summary[IDLE_SUMS]
    ]


def idle_place_rows(run: Run) -> Rows:
    """Return rows of tables.IDLE_PLACES, for each cause the places with the most time first."""
    rows = []
    for cause in dict.fromkeys(idle.cause for summary in run.ranks for idle in summary[IDLE_SUMS]):
        for place, by_rank in _places(run, cause)[:MOST_PLACES]:
            worst = max(by_rank, key=lambda rank: by_rank[rank])
            worst_ns = {"worst_rank": worst, "worst_ns": by_rank[worst]}
            rows.append(IDLE_PLACES.row(place, cause=cause, ranks=len(by_rank), **worst_ns))
    return rows


def _places(run: Run, cause: str) -> list[tuple[HostPlace, dict[int, int]]]:
    """Return what the hosts of all ranks were in, the places with the most time first, and their time by rank."""
    times_ns: dict[tuple[str | None, str | None, str | None], dict[int, int]] = defaultdict(dict)
    for summary in run.ranks:
        for idle in summary[IDLE_SUMS]:
            for place in idle.places if idle.cause == cause else ():
                times_ns[place.operator, place.annotation, place.source][summary.rank] = place.total_ns
    places = [
        (HostPlace(operator=operator, annotation=annotation, source=source, total_ns=sum(by_rank.values())), by_rank)
        for (operator, annotation, source), by_rank in times_ns.items()
    ]
    return sorted(places, key=lambda place: -place[0].total_ns)


def idle_findings(run: Run) -> list[Finding]:
    """Find time in which the ranks neither compute, communicate nor copy, with its main cause.

    Loading data, pauses and named waits have separate findings.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    causes_ns = Counter[str]()
    for summary in run.ranks:
        causes_ns.update({idle.cause: idle.total_ns for idle in summary[IDLE_SUMS]})
    waits_ns = Counter[str]()
    for summary in run.ranks:
        waits_ns.update({wait.what: wait.total_ns for wait in summary[NAMED_WAITS]})
    apart_ns = {cause: causes_ns.pop(cause, 0) for cause in _REPORTED_APART}
    named_ns = waits_ns.total()
    causes_ns["other"] = max(causes_ns["other"] - named_ns, 0)
    step_ns = sum(step.step_ns for step in steps)
    idle_ns = sum(step.idle_ns for step in steps) - sum(apart_ns.values()) - named_ns
    if not step_ns or idle_ns <= 0:
        return []
    main, *others = [_Cause.of(run, *counted) for counted in causes_ns.most_common(2)]
    second = next((each for each in others if each.name != "other" and each.ns >= _SECOND_CAUSE * idle_ns), None)
    place = main.longest
    aside = [_REPORTED_APART[cause] for cause, time_ns in apart_ns.items() if time_ns >= NOTABLE_SHARE * step_ns]
    aside += [
        f"waits for {waited_for}" for waited_for, wait_ns in waits_ns.items() if wait_ns >= NOTABLE_SHARE * step_ns
    ]
    evidence: dict[str, object] = {
        "device": run.device,
        "idle_share": idle_ns / step_ns,
        "data_idle_ns": apart_ns["data"] // len(steps),
        "idle_causes_ns": {name: total_ns // len(steps) for name, total_ns in causes_ns.most_common() if total_ns},
        "host_in": None if place is None else place_text(place.operator, place.annotation, place.source),
        "aside": aside,
        "main": main.numbers(idle_ns),
        "second": None if second is None else second.numbers(idle_ns),
        "compiled": _is_compiled(run),
    }
    if run.device != "gpu":
        evidence["no_replay"] = "a replay of CPU ranks keeps what Python does"
    elif main.name not in _CLOSED_BY_HOST:
        evidence["no_replay"] = "no change of the host would close these gaps"
    return [
        idle_entry(main.name)(
            cause=main.name,
            time_ns=idle_ns // len(steps),
            evidence=evidence,
            remedy="host" if "no_replay" not in evidence else None,
            conditions=[IDLE_SHARE.reached_by(idle_ns / step_ns)],
        )
    ]


@dataclass(frozen=True, kw_only=True)
class _Cause:
    """A cause of idle time: for how many ns all ranks idle in all steps, and where their hosts were, longest first."""

    name: str
    ns: int
    places: Sequence[HostPlace]

    @classmethod
    def of(cls, run: Run, name: str, ns: int) -> _Cause:
        return cls(name=name, ns=ns, places=[place for place, _ in _places(run, name)])

    @property
    def longest(self) -> HostPlace | None:
        return self.places[0] if self.places else None

    def numbers(self, idle_ns: int) -> dict[str, object]:
        """Return what the sentence says of it. idle_ns: of all causes."""
        place = self.longest
        stands_out = place is not None and place.total_ns >= _MAIN_PLACE * self.ns
        return {
            "cause": self.name,
            "share": self.ns / idle_ns,
            "place": None if place is None else place_text(place.operator, place.annotation, place.source, short=True),
            "place_share": place.total_ns / idle_ns if place is not None and stands_out else None,
            "in_python": sum(place.total_ns for place in self.places if place.operator is None) > self.ns / 2,
        }


def _is_compiled(run: Run) -> bool:
    return any(setting.component == "compile" for summary in run.ranks for setting in summary[CONFIGURATION])
