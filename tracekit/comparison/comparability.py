"""Whether two runs are of the same job, so that their steps can be compared, and in which settings they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.tables import MEMORY_USE
from tracekit.model.events import PROFILER_OPTIONS
from tracekit.model.metadata import Mesh
from tracekit.model.run import Run, format_ranges

_MOST_VALUES = 3


def why_incomparable(baseline: Run, candidate: Run) -> str | None:
    """Return why the steps of two runs cannot be compared, None if they can."""
    return next(_reasons(baseline, candidate), None)


def _reasons(baseline: Run, candidate: Run) -> Iterator[str]:
    for run in (baseline, candidate):
        if not run.common_steps():
            yield f"{run.path} has no step that all ranks completed"
    for what, value, text in _IDENTITY:
        if value(baseline) != value(candidate):
            yield f"the {what} differs: {text(baseline)} in {baseline.path}, {text(candidate)} in {candidate.path}"
    if _measured_ranks(baseline) != _measured_ranks(candidate):
        sides = (
            f"{format_ranges(_measured_ranks(r)) or 'none'} in {r.path}{why_ranks_lack(r)}"
            for r in (baseline, candidate)
        )
        yield f"the set of usable ranks differs: {', '.join(sides)}"
    meshes = _mesh(baseline), _mesh(candidate)
    if None not in meshes and meshes[0] != meshes[1]:
        yield f"the mesh differs: {meshes[0]} in {baseline.path}, {meshes[1]} in {candidate.path}"


def _measured_ranks(run: Run) -> tuple[int, ...]:
    return tuple(summary.rank for summary in run.ranks if summary.unmeasured is None)


def why_ranks_lack(run: Run) -> str:
    """Return the first reason why a rank of a run cannot be used, in parentheses; nothing without one."""
    usable = _measured_ranks(run)
    reasons = (
        note.text for note in run.notes if note.severity != "info" and note.file is not None and note.rank not in usable
    )
    reason = next(reasons, None)
    return f" ({reason})" if reason else ""


# What must be the same: its name, its value, and its value as text.
_IDENTITY: tuple[tuple[str, Callable[[Run], object], Callable[[Run], str]], ...] = (
    ("number of ranks", lambda run: run.world_size, lambda run: str(run.world_size or "unknown")),
    ("device", lambda run: run.device, lambda run: run.device.upper()),
    ("parallelism", lambda run: run.strategies, lambda run: " + ".join(run.strategies) or "none"),
)


def _mesh(run: Run) -> str | None:
    """Return `dp=2, tp=4`, of the lowest rank that has a mesh."""
    mesh: Mesh | None = next((summary.mesh for summary in run.ranks if summary.mesh is not None), None)
    return None if mesh is None else ", ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.shape, strict=True))


def find_differences(baselines: Sequence[Run], candidate: Run) -> list[dict[str, object]]:
    """Return what the runs differ in besides their times, rows of tables.RUN_DIFFERENCES.

    None of it keeps the runs from being compared: it may be the change that is measured.
    """
    of_baselines, of_candidate = [_facts(run) for run in baselines], _facts(candidate)
    names = dict.fromkeys(name for facts in (*of_baselines, of_candidate) for name in facts)
    rows: list[dict[str, object]] = []
    for name in names:
        values = list(dict.fromkeys(facts.get(name) for facts in of_baselines))
        if values != [of_candidate.get(name)]:
            rows.append({"what": name, "baseline": _joined(values), "candidate": of_candidate.get(name)})
    return rows


def _joined(values: Sequence[str | None]) -> str | None:
    return None if values == [None] else " | ".join("none" if value is None else value for value in values)


def _facts(run: Run) -> dict[str, str]:
    facts: dict[str, set[str]] = {}
    for summary in run.ranks:
        if summary.device_name is not None:
            facts.setdefault("device", set()).add(summary.device_name)
        if summary.host is not None:
            facts.setdefault("host", set()).add(summary.host)
        if (memory := summary[MEMORY_USE]) is not None and memory.parameter_bytes is not None:
            facts.setdefault("parameter_bytes", set()).add(f"{memory.parameter_bytes:,}")
        for option in PROFILER_OPTIONS:
            facts.setdefault(option, set()).add(str(option in summary.profiler_options))
        for settings in summary[CONFIGURATION]:
            for name, value in settings.values.items():
                facts.setdefault(f"{settings.component}.{name}", set()).add(str(value))
    result = {name: _shortened(sorted(values)) for name, values in facts.items()}
    return result | {"recorded_steps": format_ranges(run.common_steps())}


def _shortened(values: Sequence[str]) -> str:
    more = f" and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
    return ", ".join(values[:_MOST_VALUES]) + more
