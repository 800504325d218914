"""The report as JSON: the contract that other programs build on.

One object with sorted keys, and floats as Python's `repr`: equal results are equal bytes. Within a `SCHEMA_VERSION`
fields are added, never renamed.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec

from tracekit.explain.pipeline.bubbles import action_table
from tracekit.explain.sections import SECTIONS
from tracekit.explain.step_time.breakdown import capture_overhead
from tracekit.explain.step_time.step_lengths import mean_step_ns, step_lengths
from tracekit.job.messages import message_table
from tracekit.model.communication import GroupKey
from tracekit.model.run import Run, format_ranges
from tracekit.model.texts import unicode_text
from tracekit.rank.recorded_steps import FLIGHT_RECORDER
from tracekit.render.sections.json import section_dict
from tracekit.report.report import Report
from tracekit.report.tables import clock_table, finding_table, note_table, run_table
from tracekit.version import __version__

SCHEMA_VERSION = 1
JSON_HEAD = {"schema_version": SCHEMA_VERSION, "tracekit_version": __version__}
"""What every JSON document of tracekit begins with."""


_BRIEF = ("id", "tag", "text", "action", "certainty", "saving_ns", "saving_error_ns")
_BRIEF_BYTES = 3_000


def json_document(content: dict[str, Any], *, sort_keys: bool = True) -> str:
    """Return a JSON document of tracekit; equal contents give equal bytes."""
    return json.dumps(JSON_HEAD | content, sort_keys=sort_keys, indent=1, allow_nan=False) + "\n"


def result_json(report: Report, *, actions: bool = False) -> str:
    """Return `result_dict(report)` as JSON; `actions` adds every action of a pipeline to its section."""
    result = result_dict(report)
    if actions and result.get("pipeline") is not None:
        result["pipeline"]["actions"] = action_table(report.run).rows
    text = json.dumps(result, sort_keys=True, allow_nan=False)
    try:
        return msgspec.json.format(text, indent=1) + "\n"  # Python's json takes three times as long with an indent
    except msgspec.DecodeError:  # a path that is no Unicode, for which JSON has no text
        text = json.dumps(result, sort_keys=True, allow_nan=False, ensure_ascii=False)
        unicode = json.loads(unicode_text(text))
        return msgspec.json.format(json.dumps(unicode, sort_keys=True), indent=1) + "\n"


def result_dict(report: Report) -> dict[str, Any]:
    """Return the result as plain values. A section that was not asked for is absent; unknown values are None."""
    run = report.run
    result: dict[str, Any] = {
        **JSON_HEAD,
        "run": _run(run),
        "notes": note_table(run).rows,
        "groups": [_group(i, group, run) for i, group in enumerate(run.groups)],
        "clock": {
            "reference_rank": run.reference_rank,
            "ranks": clock_table(run).rows,
        },
        "joins": [
            {
                "rank": summary.rank,
                "collectives": match.recorded,
                "joined": match.joined,
                "unjoined": [
                    {"kind": missed.kind, "reason": missed.reason, "count": missed.count} for missed in match.unjoined
                ],
            }
            for summary in run.ranks
            if (match := summary[FLIGHT_RECORDER]) is not None
        ],
        "point_to_point": message_table(run).rows,
        "unavailable": report.unavailable,
        "findings": finding_table(report.findings).rows,
    }
    for name, section_result in report.results.items():
        result |= section_dict(SECTIONS[name], section_result)
    return result


def brief_json(report: Report) -> str:
    """Return what there is to know first as JSON: findings, then run, steps and the next commands, for an agent.

    It has less than 3,000 bytes, for which the last findings are left out, unless the path of the run is very long.
    """
    run, step_ns = report.run, max(mean_step_ns(report.run), 1)
    findings = [
        {name: row[name] for name in _BRIEF if name in row}
        | {"ranks": format_ranges(finding.concerned) if finding.concerned else None}
        | {"saving_share": None if finding.saving_ns is None else round(finding.saving_ns / step_ns, 3)}
        for row, finding in zip(finding_table(report.findings).rows, report.findings, strict=True)
    ]
    names = ("path", "run_id", "attempt", "world_size", "device", "strategies")
    missing = format_ranges(run.missing_ranks) if run.missing_ranks else None
    first = [finding.id for finding in report.findings[:1]]
    content: dict[str, Any] = {
        "run": {name: getattr(run, name) for name in names} | {"ranks": len(run.ranks), "missing_ranks": missing},
        "step_ns": _step_ns(run),
        "notes": [note.text for note in run.notes if note.is_defect][:1],
        "next": [
            shlex.join(["tracekit", *each, *run.arguments]) for each in (["report"], ["explain", *first], ["open"])
        ],
        **JSON_HEAD,
    }
    text = ""
    for count in range(len(findings), min(len(findings), 1) - 1, -1):
        some = {"findings": findings[:count], "more_findings": len(findings) - count}
        text = unicode_text(json.dumps(some | content, ensure_ascii=False, allow_nan=False, indent=1)) + "\n"
        if len(text.encode()) < _BRIEF_BYTES:
            break
    return text


def _run(run: Run) -> dict[str, Any]:
    of_table = run_table(run).rows[0]
    same = ("hosts", "device_names", "missing_ranks", "strategies", "capture_overhead_ratio")
    overhead = capture_overhead(run)
    return {
        **{name: getattr(run, name) for name in ("path", "run_id", "attempt", "world_size", "device")},
        **{name: of_table[name] for name in same},
        "ranks": [summary.rank for summary in run.ranks],
        "unmeasured_ranks": [
            {"rank": summary.rank, "reason": summary.unmeasured}
            for summary in run.ranks
            if summary.unmeasured is not None
        ],
        "selected_ranks": None if run.selected_ranks is None else list(run.selected_ranks),
        "other_runs": [
            {"run_id": other.run_id, "attempt": other.attempt, "ranks": other.ranks, "start_ns": other.start_ns}
            for other in run.other_runs
        ],
        "mesh": _mesh(run),
        "communication_rules": list(run.communication_rules),
        "step_anchor": run.step_anchor,
        "steps_from": list(run.steps_from),
        "step_ns": _step_ns(run),
        "capture_overhead_ns": None if overhead is None else overhead.per_step_ns,
    }


def _step_ns(run: Run) -> dict[str, Any] | None:
    lengths = step_lengths(run)
    if lengths is None:
        return None
    left_out = [{"step": left.step, "step_ns": left.step_ns} for left in run.left_out]
    return {
        "median": lengths.median_ns,
        "min": lengths.min_ns,
        "max": lengths.max_ns,
        "count": lengths.count,
        "left_out": left_out,
    }


def _mesh(run: Run) -> dict[str, Any] | None:
    """Return the mesh of the lowest rank that has one.

    `coordinates` are in the order of `ranks`, None for a rank outside of the mesh.
    """
    meshes = [summary.mesh for summary in run.ranks]
    mesh = next((mesh for mesh in meshes if mesh is not None), None)
    if mesh is None:
        return None
    coordinates = [
        list(other.coordinate) if other is not None and (other.names, other.shape) == (mesh.names, mesh.shape) else None
        for other in meshes
    ]
    return {"names": list(mesh.names), "shape": list(mesh.shape), "coordinates": coordinates}


def _group(index: int, group: GroupKey, run: Run) -> dict[str, Any]:
    world = group.ranks == tuple(range(run.world_size or 0)) and bool(group.ranks)
    return {
        "id": index,
        "desc": group.description,
        "parallelism": group.parallelism,
        "dimension": group.dimension or group.parallelism,
        "ranks": "world" if world else list(group.ranks),
    }
