"""Why ranks idle, what their hosts do then, and what to do about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.configuration.parts import CONFIGURATION
from tracekit.analysis.finding import Finding, Remedy
from tracekit.analysis.stats.uncertainty import NOTABLE_SHARE
from tracekit.analysis.step_time.columns import IDLE_PLACES
from tracekit.analysis.step_time.parts import IDLE, MOST_PLACES, NAMED_WAITS, HostPlace
from tracekit.analysis.table import Rows
from tracekit.model.run import Run
from tracekit.model.safe_text import shortened

__all__ = ["idle_findings", "idle_place_rows", "idle_rows", "place_text"]

_NOTABLY_IDLE = 0.2  # of a step
_MAIN_PLACE = 0.1  # of the idle time of a cause: a smaller place says little
_SECOND_CAUSE = 0.3  # of the idle time: a cause with less is not named beside the main one
_LONGEST_NAME = 36
_LONGEST_TEXT = 142

_REASONS = {
    "host_bound": "the host launches late",
    "kernel_gap": "queued kernels begin with gaps",
    "synchronisation": "the host had waited for the GPU",
    "allocator": "the host allocates memory",
    "garbage_collection": "Python collects garbage",
    "between_steps": "the host is between steps",
    "other": "something that is not recorded held it up",
}
_ACTIONS = {
    "host_bound": "launch fewer, larger kernels: torch.compile or CUDA graphs",
    "kernel_gap": "launch fewer, larger kernels (torch.compile), or use CUDA graphs, whose gaps are shorter",
    "synchronisation": "do not read results on the host in every step (.item(), .cpu(), boolean indexing)",
    "allocator": "let the allocator keep its memory: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "garbage_collection": "call gc.freeze() once all is set up, or gc.disable() and gc.collect() every 100 steps",
    "between_steps": "do what runs between the steps less often, or in another thread",
}
# Causes that other sections report on, as the text names them.
_REPORTED_APART = {"data": "loading", "checkpoint": "checkpoints", "logging": "logging"}
_CLOSED_BY_HOST = frozenset(_ACTIONS) - {"kernel_gap"}
_OF_COMPILED = (
    "launch fewer, larger kernels: compile the rest of the step as well, such as the optimizer, or capture it"
)
_PYTHON = "shorten the Python code outside of operators, or move it to another thread"


def idle_rows(run: Run) -> Rows:
    """Return rows of columns.IDLE."""
    return [
        {"rank": summary.rank, "cause": idle.cause, "total_ns": idle.total_ns}
        for summary in run.ranks
        for idle in summary[IDLE]
    ]


def idle_place_rows(run: Run) -> Rows:
    """Return rows of columns.IDLE_PLACES, for each cause the places with the most time first."""
    rows = []
    for cause in dict.fromkeys(idle.cause for summary in run.ranks for idle in summary[IDLE]):
        for place, by_rank in _places(run, cause)[:MOST_PLACES]:
            worst = max(by_rank, key=lambda rank: by_rank[rank])
            worst_ns = {"worst_rank": worst, "worst_ns": by_rank[worst]}
            rows.append(IDLE_PLACES.row(place, cause=cause, ranks=len(by_rank), **worst_ns))
    return rows


def _places(run: Run, cause: str) -> list[tuple[HostPlace, dict[int, int]]]:
    """Return what the hosts of all ranks were in, the places with the most time first, and their time by rank."""
    times_ns: dict[tuple[str | None, str | None, str | None], dict[int, int]] = defaultdict(dict)
    for summary in run.ranks:
        for idle in summary[IDLE]:
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
        causes_ns.update({idle.cause: idle.total_ns for idle in summary[IDLE]})
    waits_ns = Counter[str]()
    for summary in run.ranks:
        waits_ns.update({wait.what: wait.total_ns for wait in summary[NAMED_WAITS]})
    apart_ns = {cause: causes_ns.pop(cause, 0) for cause in _REPORTED_APART}
    named_ns = waits_ns.total()
    causes_ns["other"] = max(causes_ns["other"] - named_ns, 0)
    step_ns = sum(step.step_ns for step in steps)
    idle_ns = sum(step.idle_ns for step in steps) - sum(apart_ns.values()) - named_ns
    if not step_ns or idle_ns < _NOTABLY_IDLE * step_ns:
        return []
    main, *others = [_Cause.of(run, *counted) for counted in causes_ns.most_common(2)]
    second = next((other for other in others if other.name in _ACTIONS and other.ns >= _SECOND_CAUSE * idle_ns), None)
    place = main.longest
    what = {"gpu": "nothing runs on the GPU", "cpu": "no operator or communication runs", "mixed": "nothing runs"}
    text = f"{what[run.device]} for {idle_ns / step_ns:.0%} of the step"
    aside = [_REPORTED_APART[cause] for cause, time_ns in apart_ns.items() if time_ns >= NOTABLE_SHARE * step_ns]
    aside += [
        f"waits for {waited_for}" for waited_for, wait_ns in waits_ns.items() if wait_ns >= NOTABLE_SHARE * step_ns
    ]
    if aside:
        text += f" ({' and '.join(aside)} aside)"
    text += f": {main.ns / idle_ns:.0%} of it as {main.reason(run)}"
    if second is not None:
        text += f", {second.ns / idle_ns:.0%} as {second.reason(run)}"
        if second.name == "synchronisation" and second.longest is not None:
            text = _with_room(text, f" in {_shortened(second.longest)}")
    where = None if place is None else place_text(place.operator, place.annotation, place.source)
    if place is not None and second is None and place.total_ns >= _MAIN_PLACE * main.ns:
        text = _with_room(text, f", longest in {_shortened(place)} ({place.total_ns / idle_ns:.0%})")
    actions = [action for each in (main, second) if each is not None and (action := each.action(run))]
    evidence: dict[str, object] = {
        "idle_share": idle_ns / step_ns,
        "data_idle_ns": apart_ns["data"] // len(steps),
        "idle_causes_ns": {name: total_ns // len(steps) for name, total_ns in causes_ns.most_common() if total_ns},
        "host_in": where,
    }
    if run.device != "gpu":
        evidence["no_replay"] = "a replay of CPU ranks keeps what Python does"
    elif main.name not in _CLOSED_BY_HOST:
        evidence["no_replay"] = "no change of the host would close these gaps"
    remedy: Remedy | None = "host" if "no_replay" not in evidence else None
    return [
        Finding(
            severity="warning",
            text=text,
            cause=main.name,
            time_ns=idle_ns // len(steps),
            action="; ".join(actions) or None,
            evidence=evidence,
            remedy=remedy,
        )
    ]


def _with_room(text: str, more: str) -> str:
    """Return the text with more of it, if that is not too long."""
    return text + more if len(text) + len(more) <= _LONGEST_TEXT else text


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

    def reason(self, run: Run) -> str:
        return "Python runs instead" if self.name == "host_bound" and run.device == "cpu" else _REASONS[self.name]

    def action(self, run: Run) -> str | None:
        """Return what to do about it, if anything is known."""
        python_ns = sum(place.total_ns for place in self.places if place.operator is None)
        if self.name == "host_bound" and (run.device == "cpu" or python_ns > self.ns / 2):
            return _PYTHON
        if self.name == "host_bound" and _is_compiled(run):
            return _OF_COMPILED
        if self.name == "synchronisation" and self.longest is not None:
            return f"{_ACTIONS[self.name]}; {_shortened(self.longest)} does"
        return _ACTIONS.get(self.name)


def _is_compiled(run: Run) -> bool:
    return any(setting.component == "compile" for summary in run.ranks for setting in summary[CONFIGURATION])


def place_text(operator: str | None, annotation: str | None, source: str | None = None) -> str:
    """Return `aten::index`, `Python in ## forward ##` or `Python`, with the source if it is given."""
    name = operator or ("Python" if annotation is None else f"Python in {annotation}")
    return name if source is None else f"{name} ({source})"


def _shortened(place: HostPlace) -> str:
    """Return the same in few letters: of the source, the file and line."""
    source = None if place.source is None else place.source.rpartition("): ")[0].rpartition("/")[2].replace("(", ":")
    return shortened(place_text(place.operator, place.annotation, source), _LONGEST_NAME)
