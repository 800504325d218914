"""The attempts of a job: as a table, as JSON, and as the lines of the answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tracekit.analysis.attempts.attempts import PARTS, Attempts, lost_parts_ns
from tracekit.analysis.attempts.sections import ATTEMPTS_SECTION
from tracekit.analysis.table import Rows, rows_of
from tracekit.model.quantities import count_text
from tracekit.model.ranks import format_ranges, ranks_text
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

_SHOWN_SIZES = 6

__all__ = ["ATTEMPTS_VIEW", "attempt_tables", "attempts_text"]


def attempts_text(result: Attempts) -> str:
    """Return a sentence: how many attempts, on how many ranks, and what restarts cost; empty if there were none."""
    rows = rows_of(result, "attempts")
    if not rows:
        return ""
    parts_ns = lost_parts_ns(rows)
    count = rows[-1]["attempt"] + 1
    text = f"{count} attempts{_sizes(rows)}"
    if not parts_ns:
        return text
    restarts = sum(row["lost_ns"] is not None for row in rows)
    repeated = sum(row["repeated_steps"] or 0 for row in rows)
    names = {"repeated steps": count_text(repeated, "repeated step")}
    shown = {names.get(name, name): lost_ns for name, lost_ns in parts_ns.items() if lost_ns or name not in names}
    split = ", ".join(f"{name} {lost_ns / 1e9:.1f}" for name, lost_ns in shown.items())
    where = "the restart" if restarts == 1 else f"{restarts} restarts"
    return f"{text}; {sum(parts_ns.values()) / 1e9:.1f} s lost at {where}: {split}"


def attempt_tables(result: Attempts) -> list[object]:
    """Return the attempts, and the time lost at each restart; nothing if there were none."""
    rows = rows_of(result, "attempts")
    if not rows:
        return []
    columns = ("attempt", "ranks", "start (UTC)", "took s", "steps", "step ms", "ended")
    parts: list[object] = table("Attempts", columns, [_attempt(row) for row in rows])
    lost = [row for row in rows if row["lost_ns"] is not None]
    if lost:
        names = ("before attempt", "lost", *(name for _, name in PARTS), "number")
        title = "Time lost at restarts (s)"
        parts += table(title, names, [_lost(row) for row in lost])
    return parts


def _sizes(rows: Rows) -> str:
    sizes = ["?" if row["world_size"] is None else str(row["world_size"]) for row in rows]
    if len(set(sizes)) == 1:
        return f" of {sizes[0]} ranks" if sizes[0] not in {"1", "?"} else ""
    if len(sizes) > _SHOWN_SIZES:
        return f", {sizes[0]} to {sizes[-1]} ranks"
    return f", {' -> '.join(sizes)} ranks"


def _attempt(row: dict[str, Any]) -> tuple[str, ...]:
    start_ns = row["start_ns"] or row["first_call_ns"]
    steps = "n/a" if row["first_step"] is None else format_ranges(range(row["first_step"], row["last_step"] + 1))
    return (
        f"{row['attempt']}{'' if row['recorded'] else ' (not recorded)'}",
        _or_unknown(row["world_size"], "{}"),
        "n/a" if start_ns is None else f"{datetime.fromtimestamp(start_ns / 1e9, UTC):%m-%d %H:%M:%S}",
        "n/a" if start_ns is None else f"{(row['last_sign_ns'] - start_ns) / 1e9:.1f}",
        steps,
        _or_unknown(None if row["step_ns"] is None else row["step_ns"] / 1e6, "{:.1f}"),
        _ending(row),
    )


def _ending(row: dict[str, Any]) -> str:
    ranks = row["ended_ranks"]
    who = ranks_text(ranks) if ranks else None
    if row["ending"] == "killed":
        return f"{who} killed" if who else "killed"
    if row["ending"] == "error":
        return f"{who} raised {row['error'] or 'an error'}"
    if row["ending"] == "membership":
        return "others joined"
    return row["ending"] or "n/a"


def _lost(row: dict[str, Any]) -> tuple[str, ...]:
    seconds = [_or_unknown(None if row[part] is None else row[part] / 1e9, "{:.2f}") for part, _ in PARTS]
    return str(row["attempt"]), f"{row['lost_ns'] / 1e9:.2f}", *seconds, str(row["repeated_steps"])


def _or_unknown(value: float | None, form: str) -> str:
    return "n/a" if value is None else form.format(value)


ATTEMPTS_VIEW = SectionView(
    section=ATTEMPTS_SECTION,
    json=lambda result: {"attempts": rows_of(result, "attempts")},
    text=lambda result, run, width: attempt_tables(result),
)
