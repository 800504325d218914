"""How the job is configured, and how its attempts went: as blocks of the terminal, and as a line of the answer.

The configuration has a row for each component, `name=value` as a program sets it. Where modules or ranks differ in a
value, the value of most of them comes first, and the others stand behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from tracekit.explain.attempts import ATTEMPTS, Attempts, lost_parts_ns, repeated_steps
from tracekit.explain.configuration import Configuration
from tracekit.findings.steps import setting_text
from tracekit.model.names.modules import name_of_layers_alike
from tracekit.model.run import Run, format_ranges, ranks_text
from tracekit.model.table import Rows, rows_of
from tracekit.model.texts import count_text, milliseconds
from tracekit.render.console import draw, table
from tracekit.render.grid import grid_of

_NAMED = ("ddp", "compile")  # components that are not of the whole model
_NAMED_MODULES = 3
_SHOWN_SIZES = 6


def configuration_block(result: Configuration, run: Run) -> list[object]:
    """Return a title and a row for each component."""
    of_component: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(result, "settings"):
        of_component[row["component"]][row["setting"]].append(row)
    rows = []
    for component, settings in of_component.items():
        all_ranks = {rank for of_setting in settings.values() for row in of_setting for rank in row["ranks"]}
        texts = [_setting(name, of_setting, all_ranks) for name, of_setting in settings.items()]
        if component in _NAMED:
            texts.append(_modules(_names_in(row for of_setting in settings.values() for row in of_setting)))
        if all_ranks != {summary.rank for summary in run.ranks}:
            texts.append(f"on {ranks_text(sorted(all_ranks))}")
        rows.append((component, " · ".join(texts)))
    return table("Configuration", ("", "settings"), rows, left=2)


def _setting(name: str, rows: Sequence[dict[str, Any]], all_ranks: set[int]) -> str:
    """Return `reshard_after_forward=True (<root>: False)`."""
    by_value: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_value[setting_text(row["value"])].append(row)
    (usual, usual_rows), *others = sorted(by_value.items(), key=lambda item: -_extent(item[1]))
    elsewhere = {name_of_layers_alike(name) for name in _names_in(usual_rows)}
    exceptions = [_exception(value, of_value, all_ranks, elsewhere) for value, of_value in others]
    return f"{name}={usual}" + (f" ({'; '.join(exceptions)})" if exceptions else "")


def _extent(rows: Iterable[dict[str, Any]]) -> int:
    """Return of how many modules, on how many ranks, a value is."""
    return sum(len(row["ranks"]) * max(len(row["modules"]), 1) for row in rows)


def _exception(value: str, rows: Sequence[dict[str, Any]], all_ranks: set[int], elsewhere: set[str]) -> str:
    """Return where a value holds, and the value. elsewhere: layers that have the usual value, by their common name."""
    ranks = {rank for row in rows for rank in row["ranks"]}
    modules = _names_in(rows)
    where = [_modules(modules, elsewhere)] if modules and ranks == all_ranks else []
    where += [ranks_text(sorted(ranks))] if ranks != all_ranks else []
    return f"{', '.join(where)}: {value}" if where else value


def _names_in(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["modules"]))


def _modules(names: Iterable[str], apart: Collection[str] = ()) -> str:
    """Return names of modules, of layers alike the common one unless that is in `apart`."""
    common = ((name, name_of_layers_alike(name)) for name in names)
    shown = list(dict.fromkeys((name if alike in apart else alike) or "<root>" for name, alike in common))
    more = f" and {len(shown) - _NAMED_MODULES} more" if len(shown) > _NAMED_MODULES else ""
    return ", ".join(shown[:_NAMED_MODULES]) + more


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
    repeated = repeated_steps(rows)
    names = {"repeated steps": count_text(repeated, "repeated step")} if repeated is not None else {}
    shown = {names.get(name, name): lost_ns for name, lost_ns in parts_ns.items() if lost_ns or name not in names}
    split = ", ".join(f"{name} {lost_ns / 1e9:.1f}" for name, lost_ns in shown.items())
    where = "the restart" if restarts == 1 else f"{restarts} restarts"
    more = "" if repeated is not None else "; how many steps were repeated is not known"
    return f"{text}; {sum(parts_ns.values()) / 1e9:.1f} s lost at {where}: {split}{more}"


def attempt_tables(result: Attempts) -> list[object]:
    """Return the attempts, and the time lost at each restart; nothing if there were none."""
    rows = rows_of(result, "attempts")
    if not rows:
        return []
    heads = ("attempt", "ranks", "start (UTC)", "took s", "steps", "step ms", "ended")
    lost = [row for row in rows if row["lost_ns"] is not None]
    return [*table("Attempts", heads, map(_attempt, rows)), *(draw(grid_of(ATTEMPTS, lost)) if lost else [])]


def _sizes(rows: Rows) -> str:
    sizes = ["?" if row["world_size"] is None else str(row["world_size"]) for row in rows]
    if len(set(sizes)) == 1:
        return f" of {sizes[0]} ranks" if sizes[0] not in {"1", "?"} else ""
    if len(sizes) > _SHOWN_SIZES:
        return f", {sizes[0]} to {sizes[-1]} ranks"
    return f", {' -> '.join(sizes)} ranks"


def _attempt(row: dict[str, Any]) -> tuple[str, ...]:
    start_ns, unknown = row["start_ns"] or row["first_call_ns"], "n/a"
    return (
        f"{row['attempt']}{'' if row['recorded'] else ' (not recorded)'}",
        unknown if row["world_size"] is None else str(row["world_size"]),
        unknown if start_ns is None else f"{datetime.fromtimestamp(start_ns / 1e9, UTC):%m-%d %H:%M:%S}",
        unknown if start_ns is None else f"{(row['last_sign_ns'] - start_ns) / 1e9:.1f}",
        unknown if row["first_step"] is None else format_ranges(range(row["first_step"], row["last_step"] + 1)),
        unknown if row["step_ns"] is None else milliseconds(row["step_ns"], 1),
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
