"""What each section of a report says in the terminal: its tables, as they declare themselves, lines and pictures.

A table with a `Display` needs nothing here. `_ROWS` has tables whose rows are not shown as they are, `_LINES` the lines
below the tables of a section, and `_INSTEAD` sections that are drawn otherwise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tracekit.explain.communication.collectives import CollectiveTimes
from tracekit.explain.diagnosis.critical_path import CriticalPath
from tracekit.explain.diagnosis.diagnosis import Diagnosis
from tracekit.explain.diagnosis.tables import cause_name
from tracekit.explain.section import Section
from tracekit.explain.sections import SECTIONS
from tracekit.explain.step_time import tables as step_columns
from tracekit.explain.step_time.breakdown import Breakdown
from tracekit.explain.whatif import tables as whatif_columns
from tracekit.explain.whatif.whatif import WhatIf
from tracekit.findings.hosts import location_text
from tracekit.model.names.modules import names_together
from tracekit.model.run import Run, ranks_text
from tracekit.model.table import FilledTable, Table, rows_of, tables_of
from tracekit.model.texts import milliseconds, percent, shortened
from tracekit.rank.kernel_names import function_of_kernel
from tracekit.render.console import draw, statement, table
from tracekit.render.grid import grid_of
from tracekit.render.sections import lines
from tracekit.render.sections.job import attempt_tables, configuration_block
from tracekit.render.sections.pictures import bucket_blocks, pipeline_blocks
from tracekit.rpc.section import lines_of_servers

Row = dict[str, Any]
RowsShown = Callable[[list[Row], Any, Run], list[Row]]

_FIRST = (
    *("attempts", "diagnosis", "breakdown", "phases", "pauses", "overlap", "collectives", "buckets", "fsdp", "tensor"),
    *("pipeline", "dimensions"),
    *("servers", "rpc"),
    *("stragglers", "critical_path", "whatif", "roofline", "memory"),
)
_LAST = ("kernels", "configuration")
ORDER: tuple[Section[Any], ...] = (
    *(SECTIONS[name] for name in _FIRST),
    *(section for name, section in SECTIONS.items() if name not in (*_FIRST, *_LAST)),
    *(SECTIONS[name] for name in _LAST),
)
"""The sections in the order of the terminal."""
TITLES = {"whatif": "what if"}
"""What sentences call a section that they do not call by its name."""

_HARDLY = 0.02  # of the step or of the idle time: less is not shown
_MOST_RANKS, _SHOWN_RANKS, _SHOWN_IDLE_RANKS = 16, 8, 4  # where there are more ranks than fit, that many are shown
_SHOWN_CAUSES = 5
_LONGEST_KERNEL = 32
_LONGEST_MODULE = {"fsdp_by_layer": 18, "tensor_by_layer": 15}  # with them the tables are 80 columns wide


def section_text(section: Section[Any], result: Any, run: Run, width: int) -> list[object]:
    """Return what a terminal of that many columns shows of a section; nothing where there is nothing to show."""
    if section.name in _INSTEAD:
        return _INSTEAD[section.name](result, run, width)
    filled = {each.name: each for each in tables_of(result)}
    blocks: list[object] = []
    for declared in section.tables:
        if declared.display is not None and declared.name in filled:
            blocks += _drawn(declared, rows_to_show(filled[declared.name], result, run))
    lines_of = _LINES.get(section.name)
    below = [] if lines_of is None else [statement("info", line) for line in lines_of(result)]
    return [*blocks, *below, *([""] if blocks and below else [])]


def _drawn(declared: Table, rows: list[Row], total: int | None = None) -> list[object]:
    return draw(grid_of(declared, rows, total=total)) if rows else []


# ---- rows as they are shown --------------------------------------------------------------------------------------


def rows_to_show(filled: FilledTable, result: Any, run: Run) -> list[Row]:
    """Return the rows of a table as they are shown: most tables have them as they are."""
    as_shown = _ROWS.get(filled.name)
    return filled.rows if as_shown is None else as_shown(filled.rows, result, run)


def where_text(row: Row) -> str:
    """Return where a cause of the step is: ranks, group, module, phase, as far as known."""
    named = ranks_text(row["ranks"]) if row["ranks"] else None
    of_transfer = f"{row['kind']} ({row['group']})" if row["group"] else row["kind"]
    return ", ".join(part for part in (named, of_transfer, row["module"], row["phase"]) if part)


def cause_rows(diagnosis: Diagnosis) -> list[Row]:
    """Return the causes of the step by their names, with the step and with where they are; nothing without steps."""
    rows = rows_of(diagnosis, "causes") if diagnosis.steps else []
    return [
        row
        | {"cause": cause_name(row["cause"]), "where": where_text(row)}
        | {"step_ns": diagnosis.step_ns, "share": row["time_ns"] / diagnosis.step_ns}
        for row in rows
    ]


def _path_rows(rows: list[Row], path: CriticalPath, run: Run) -> list[Row]:
    def name(row: Row) -> str:
        return str(row["name"]) if row["kind"] == "communication" else f"before {row['name']}"

    return [row | {"steps": path.steps, "name": name(row)} for row in rows]


def change_rows(whatif: WhatIf) -> list[Row]:
    """Return what each change would save, with the step that was replayed."""
    of_all = {"step_ns": whatif.measured_ns, "replay_error": percent(whatif.replay_error, 1, "+")}
    return [row | of_all for row in rows_of(whatif, "fix")]


def _collective_rows(rows: list[Row], result: CollectiveTimes, run: Run) -> list[Row]:
    """Return a row for each kind and size, without times in a queue where there are none.

    Of groups with one name (those of a dimension of the mesh), the one with the longest transfers is shown.
    """
    slowest: dict[tuple[object, ...], Row] = {}
    of_all: Row = {"note": "" if all(row["significant"] for row in rows) else "; n.s.: below the clocks' uncertainty"}
    of_all |= {} if any(row["queued_p50_ns"] for row in rows) else {"queued_p50_ns": None}
    for row in rows:
        name = run.groups[row["group"]].label or "all"
        key = (name, row["kind"], row["size_bytes"])
        if key not in slowest or row["transfer_p50_ns"] > slowest[key]["transfer_p50_ns"]:
            slowest[key] = row | {"name": name} | of_all
    return list(slowest.values())


def _module_rows(longest: int) -> RowsShown:
    """Return what adds the end of a long name, which tells modules apart, and how many modules there are."""

    def name(row: Row) -> str:
        if row["module"] is None:
            return "n/a"
        (first, *others), left_out = names_together(row["module"] or "<root>")
        more = f" +{len(others) + left_out}" * bool(others) + f" x{row['modules']}" * (row["modules"] > 1)
        return f"{shortened(first, longest - len(more), keep='end')}{more}"

    return lambda rows, result, run: [row | {"name": name(row)} for row in rows]


def _kernel_rows(rows: list[Row], result: Any, run: Run) -> list[Row]:
    def short(name: str) -> str:
        name = function_of_kernel(name).rpartition("::")[2] if "<" in name or "(" in name else name
        return shortened(name, _LONGEST_KERNEL)

    return [row | {"name": short(row["name"])} for row in rows]


def _load_rows(rows: list[Row], result: Any, run: Run) -> list[Row]:
    """Return the load of each rank's experts over all layers, and the layer with most; nothing of equal loads."""
    if max((row["ratio"] for row in rows if row["ratio"] is not None), default=0) < lines.EVEN_LOAD:
        return []
    layers: dict[tuple[int | None, int], list[Row]] = defaultdict(list)
    for row in rows:
        layers[row["group"], row["rank"]].append(row)
    loads = {key: _load(of_rank) for key, of_rank in layers.items()}
    for (group, rank), load in loads.items():
        others = [each["load"] for (of, member), each in loads.items() if of == group and member != rank]
        load["ratio"] = load["load"] * len(others) / sum(others) if sum(others) else None
    return sorted(loads.values(), key=lambda load: (-load["load"], load["rank"]))


def _load(layers: list[Row]) -> Row:
    """Return the sums of a rank over layers, in bytes or else in time, and its worst layer where loads are known."""
    sums = {
        name: None if any(row[name] is None for row in layers) else sum(row[name] for row in layers)
        for name in ("received_bytes", "compute_ns")
    }
    worst = max(layers, key=lambda row: row["ratio"] or 0.0)
    layer = None
    if sums["received_bytes"] is not None and worst["ratio"] is not None and worst["module"] is not None:
        layer = f"{worst['module'] or '<root>'}: {worst['ratio']:.2f}"
    load = sums["compute_ns"] or 0 if sums["received_bytes"] is None else sums["received_bytes"]
    return {"rank": layers[0]["rank"], "layer": layer, "load": load} | sums


def _straggler_rows(rows: list[Row], result: Any, run: Run) -> list[Row]:
    """Return who held up the others and who waited, the worst first; nothing without collectives."""
    if len(run.ranks) < 2 or not any(row["arrivals"] for row in rows):
        return []
    known = [row for row in rows if row["wait_ns"] is not None]
    return sorted(known, key=lambda row: (-row["caused_delay_ns"], -row["last_arrivals"], row["rank"]))


_ROWS: Mapping[str, RowsShown] = {
    "attempts": lambda rows, result, run: [row for row in rows if row["lost_ns"] is not None],
    "causes": lambda rows, result, run: cause_rows(result),
    "collectives": _collective_rows,
    "critical_path": _path_rows,
    "expert_load": _load_rows,
    "kernels": _kernel_rows,
    "operators": _kernel_rows,
    "phases_by_phase": lambda rows, result, run: rows if len(rows) > 1 else [],
    "stragglers": _straggler_rows,
    "whatif": lambda rows, result, run: change_rows(result),
    "whatif_slowdowns": lambda rows, result, run: [],  # `tracekit whatif` alone shows them
    **{name: _module_rows(longest) for name, longest in _LONGEST_MODULE.items()},
}


# ---- sections that are drawn otherwise ---------------------------------------------------------------------------


def _breakdown(breakdown: Breakdown) -> list[object]:
    ranks = rows_of(breakdown, "ranks")
    shown = _most(ranks, "step_ns", _SHOWN_RANKS)
    return [*_drawn(step_columns.RANKS, shown, len(ranks)), *_idle(breakdown, ranks)]


def _most(ranks: list[Row], column: str, most: int) -> list[Row]:
    """Return the ranks that are shown: of more than fit those with the most of a part."""
    most_first = sorted(ranks, key=lambda row: -row[column] / max(row["steps"], 1))
    return sorted(most_first[: most if len(ranks) > _MOST_RANKS else None], key=lambda row: row["rank"])


def _idle(breakdown: Breakdown, every_rank: list[Row]) -> list[object]:
    """Return causes of idle time by rank, and what the hosts did; nothing where ranks hardly idle."""
    ranks = {row["rank"]: row for row in _most(every_rank, "idle_ns", _SHOWN_IDLE_RANKS) if row["steps"]}
    causes = Counter[str]()
    by_rank: dict[int, Counter[str]] = {rank: Counter() for rank in ranks}
    for row in rows_of(breakdown, "idle"):
        if row["rank"] in ranks:
            causes[row["cause"]] += row["total_ns"]
            by_rank[row["rank"]][row["cause"]] += row["total_ns"]
    if causes.total() < _HARDLY * sum(row["step_ns"] for row in ranks.values()):
        return []
    shown = [cause for cause, total_ns in causes.most_common(_SHOWN_CAUSES) if total_ns >= _HARDLY * causes.total()]
    rows = []
    for rank, row in ranks.items():
        of_causes_ns = [by_rank[rank][cause] for cause in shown]
        times_ns = (row["idle_ns"], *of_causes_ns, row["idle_ns"] - sum(of_causes_ns))
        rows.append((str(rank), *(milliseconds(time_ns / row["steps"]) for time_ns in times_ns)))
    title = "Why ranks idle (ms a step, mean of complete steps)"
    title += f"; the {len(ranks)} most idle" * (len(ranks) < len(every_rank))
    heads = ("rank", "idle", *(cause.replace("_", " ") for cause in shown), "rest")
    return [*table(title, heads, rows), *_locations(breakdown, every_rank)]


def _locations(breakdown: Breakdown, ranks: list[Row]) -> list[object]:
    steps, idle_ns = (sum(row[name] for row in ranks) for name in ("steps", "idle_ns"))
    rows = [
        row | {"location": location_text(row["operator"], row["annotation"]), "steps": steps}
        for row in rows_of(breakdown, "idle_locations")
        if row["total_ns"] >= _HARDLY * idle_ns
    ]
    return _drawn(step_columns.IDLE_LOCATIONS, rows)


def whatif_table(result: WhatIf) -> list[object]:
    """Return what each change would save, then where the slowness comes from."""
    blocks: list[object] = [f"  {replay_summary(result)}"]
    if result.slowest_ranks_share is not None:
        blocks.append(f"  The slowest 3 % of the ranks explain {_part_text(result.slowest_ranks_share)} of that.")
    if result.last_stage_share is not None:
        blocks.append(f"  The last stage explains {_part_text(result.last_stage_share)} of that.")
    blocks.append("")
    blocks += (
        _drawn(whatif_columns.WHATIF, change_rows(result))
        if result.changes
        else ["  No change that was tried saves more than its uncertainty.", ""]
    )
    blocks += _drawn(whatif_columns.WHATIF_SLOWDOWNS, rows_of(result, "slowdowns"))
    return blocks + [statement("info", note) for note in result.notes]


def _part_text(share: float) -> str:
    """Return a share in words where it is none or all: who is faster than the ideal step makes up for others."""
    return "none" if share < 0.005 else "all" if share > 0.995 else f"{share:.0%}"


def replay_summary(result: WhatIf) -> str:
    """Return a sentence on the step as measured, as replayed, and ideal."""
    return (
        f"A step takes {milliseconds(result.measured_ns)} ms; replayed {milliseconds(result.replayed_ns)} ms "
        f"({percent(result.replay_error, 1, '+')}). If all ranks and steps were alike, it would take "
        f"{milliseconds(result.ideal_ns)} ms: the slowdown is {result.slowdown:.3f}."
    )


_INSTEAD: Mapping[str, Callable[[Any, Run, int], list[object]]] = {
    "attempts": lambda result, run, width: attempt_tables(result),
    "breakdown": lambda result, run, width: _breakdown(result),
    "buckets": lambda result, run, width: bucket_blocks(result, width),
    "configuration": lambda result, run, width: configuration_block(result, run),
    "pipeline": lambda result, run, width: pipeline_blocks(result, width),
}
_LINES: Mapping[str, Callable[[Any], list[str]]] = {
    "fsdp": lines.of_fsdp,
    "memory": lines.of_memory,
    "phases": lines.of_phases,
    "roofline": lines.of_roofline,
    "rpc": lines_of_servers,
    "stragglers": lines.of_stragglers,
    "tensor": lines.of_tensor,
}
