"""The sections of the JSON result: the tables of a section under their names, and what is no table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tracekit.explain.ddp.buckets import Buckets
from tracekit.explain.diagnosis.diagnosis import Diagnosis
from tracekit.explain.fsdp.units import Fsdp
from tracekit.explain.pipeline.bubble_causes import CAUSES
from tracekit.explain.pipeline.bubbles import Pipeline
from tracekit.explain.section import Section, Unavailable
from tracekit.explain.step_time.roofline import Roofline
from tracekit.explain.stragglers.stragglers import Stragglers
from tracekit.explain.whatif.whatif import WhatIf
from tracekit.model.table import rows_of, tables_of
from tracekit.rpc.section import RPC_TABLES

_NULL_WITHOUT_RESULT = {"configuration", "diagnosis", "pipeline", "roofline", "whatif"}


def section_dict(section: Section[Any], result: Any) -> Mapping[str, Any]:
    """Return the keys of a section in the JSON result. A section that has no result has none, or one that is null."""
    if isinstance(result, Unavailable):
        return {section.name: None} if section.name in _NULL_WITHOUT_RESULT else {}
    if section.name in _NESTED:
        return {section.name: _NESTED[section.name](result)}
    names = {table.name for table in section.tables if table.in_json}
    tables = {table.name: table.rows for table in tables_of(result) if table.name in names}
    return tables | _BESIDE_TABLES.get(section.name, lambda _: {})(result)


def _buckets_dict(buckets: Buckets) -> dict[str, Any]:
    missing = buckets.whatif_unavailable
    return {
        "bucket_micro_batches": buckets.micro_batches,
        "bucket_whatif_reason": None if missing is None or missing.expected else missing.reason,
    }


def _fsdp_dict(fsdp: Fsdp) -> dict[str, Any]:
    return {"fsdp_remark": None if fsdp.unavailable is None else fsdp.unavailable.reason}


def _diagnosis_dict(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return None without steps that all ranks completed on comparable clocks."""
    if not diagnosis.steps:
        return None
    causes = rows_of(diagnosis, "causes")
    return {"step_ns": diagnosis.step_ns, "steps": diagnosis.steps, "causes": causes}


def _roofline_dict(result: Roofline) -> dict[str, Any]:
    return {
        "by_rank": rows_of(result, "by_rank"),
        "source": result.source,
        "peak_source": result.peak_source,
        "unknown": {name: missing.reason for name, missing in result.unavailable.items()},
        "uncounted": list(result.uncounted),
    }


def _stragglers_dict(stragglers: Stragglers) -> dict[str, Any]:
    """Return the verdict, slow links and ranks. Times are means a step."""
    verdict = stragglers.verdict
    return {
        **_attributes(verdict, "rank host cause caused_delay_ns share_of_step significance_ns"),
        **_attributes(verdict, "persistence certainty text"),
        "ranks": list(verdict.ranks),
        "links": [
            {
                "from": link.ranks[0] if len(link.ranks) == 2 else None,
                "to": link.ranks[1] if len(link.ranks) == 2 else None,
                "ranks": list(link.ranks),
                "slowdown": link.slowdown,
                "compared_with": link.reference,
            }
            for link in stragglers.links
        ],
        "by_rank": rows_of(stragglers, "by_rank"),
    }


def whatif_dict(result: WhatIf) -> dict[str, Any]:
    """Return what changes would save, and where the slowness comes from."""
    return {
        "S": result.slowdown,
        "M_W": result.slowest_ranks_share,
        "M_S": result.last_stage_share,
        "replay_error": result.replay_error,
        "steps": result.steps,
        "measured_step_ns": result.measured_ns,
        "replayed_step_ns": result.replayed_ns,
        "ideal_step_ns": result.ideal_ns,
        "S_by_rank": {str(rank): value for rank, value in result.by_rank.items()},
        "S_by_type": dict(result.by_type),
        "S_by_stage": {str(stage): value for stage, value in result.by_stage.items()},
        "fix": rows_of(result, "fix"),
    }


def pipeline_dict(pipeline: Pipeline) -> dict[str, Any]:
    """Return the schedule, bubbles and their causes, and the stages and ranks of a pipeline."""
    uneven = pipeline.uneven_stage
    return {
        **_attributes(pipeline, "schedule schedule_inferred stages virtual_stages microbatches steps pipelines"),
        **_attributes(pipeline, "bubble_ratio ideal_bubble_ratio ideal_basis bubble_to_ideal_ratio filled_ratio"),
        **_attributes(pipeline, "replay_error"),
        "causes": None if pipeline.causes_ns is None else dict(pipeline.causes_ns),
        "uneven_stage": None if uneven is None else dataclasses.asdict(uneven),
        "moves": [dataclasses.asdict(change) for change in pipeline.changes],
        "by_stage": rows_of(pipeline, "by_stage"),
        "by_rank": [_rank_dict(row) for row in rows_of(pipeline, "by_rank")],
    }


def _rank_dict(row: dict[str, Any]) -> dict[str, Any]:
    causes = {f"{cause}_ns": row[f"{cause}_ns"] for cause in CAUSES}
    known = None not in causes.values()
    return {**{name: row[name] for name in row if name not in causes}, "causes": causes if known else None}


def _attributes(result: object, names: str) -> dict[str, Any]:
    return {name: getattr(result, name) for name in names.split()}


def _tables_dict(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Return what makes an object of the tables of a result, by the names of its fields."""
    return lambda result: {name: rows_of(result, name) for name in names}


_BESIDE_TABLES: Mapping[str, Callable[[Any], dict[str, Any]]] = {"buckets": _buckets_dict, "fsdp": _fsdp_dict}
_NESTED: Mapping[str, Callable[[Any], dict[str, Any] | None]] = {
    "diagnosis": _diagnosis_dict,
    "phases": _tables_dict("parts", "ranks"),
    "pipeline": pipeline_dict,
    "roofline": _roofline_dict,
    "rpc": _tables_dict(*RPC_TABLES),
    "stragglers": _stragglers_dict,
    "whatif": whatif_dict,
}
"""Sections that are one object in the JSON result."""
