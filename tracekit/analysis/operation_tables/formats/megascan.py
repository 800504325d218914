"""Traces of MegaScan (MegatronApp), which times Megatron's forwards and backwards with CUDA events.

It writes a file a rank, `benchmark-data-{d}-pipeline-{p}-tensor-{t}.json`, and a script of it joins them:

* Of a rank: `iteration` begins (`ph` B) and ends (E) each traced iteration. The records between have `rel_ts` in ns
  since the begin of the iteration on that rank.
* Joined: events of Chrome's format, `ts` in us, `args.iteration`, `pid` = d * pipeline ranks + p, `tid` = t.

A forward or backward is a B and an E; the E has `microbatch`, `model_chunk` and `pp_rank` or `pp_rk`. The iterations of
all ranks count as begun at the same time, as the script of MegaScan takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracekit.analysis.operation_tables.formats.names import kind_of
from tracekit.analysis.operation_tables.operations import COLLECTIVES, COMPUTE, KINDS, Operations, OperationTable
from tracekit.errors import InputError
from tracekit.model.events import ABSENT

__all__ = ["RANK_FILE", "is_megascan", "read_megascan"]

RANK_FILE = re.compile(r"benchmark-data-(\d+)-pipeline-(\d+)-tensor-(\d+)\.json")
_KEPT = (*COMPUTE, *COLLECTIVES, "optimizer")
_Row = tuple[int, int, int, int, int, int, int]
"""Replica, place in the pipeline, step, chunk, microbatch, kind and start; the end follows."""


def is_megascan(head: str) -> bool:
    """Return whether a JSON text that begins like this is such a trace."""
    fields = set(re.findall(r'"(rel_ts|pad_before|model_chunk|pp_rank|pp_rk|iteration begin|iteration)"', head))
    return head.lstrip().startswith("[") and bool({"rel_ts", "pad_before", "model_chunk"} & fields)


def read_megascan(path: Path) -> OperationTable:
    """Return the operations of a folder of files of ranks, of one such file, or of a joined trace.

    Raises InputError when a file cannot be read, or has no forward and no backward.
    """
    notes: list[str] = []
    try:
        rows = _rows(path, notes)
    except (KeyError, TypeError, ValueError) as error:
        what = f"an event lacks {error}" if isinstance(error, KeyError) else f"an event has a wrong value: {error}"
        raise InputError(f"{path}: {what}", hint="give traces of MegaScan as it writes them") from None
    if not any(KINDS[row[5]] in COMPUTE for row, _ in rows):
        raise InputError(
            f"{path}: no forward and no backward in it", hint="trace with --trace-granularity base or full"
        )
    replica, place, step, chunk, microbatch, kind, start_ns = (
        np.array(column) for column in zip(*(r for r, _ in rows), strict=True)
    )
    ranks = int(place.max()) + 1
    operations = Operations(
        rank=replica * ranks + place,
        replica=replica,
        stage=place + ranks * chunk,
        step=step,
        microbatch=microbatch,
        kind=kind.astype(np.int32),
        start_ns=start_ns,
        end_ns=np.array([end_ns for _, end_ns in rows]),
    )
    return OperationTable(
        path=str(path),
        source="a trace of MegaScan",
        operations=operations.in_order(),
        measured_ns={},
        notes=(*notes, "all ranks count as beginning an iteration at the same time, as MegaScan takes them"),
    )


def _rows(path: Path, notes: list[str]) -> list[tuple[_Row, int]]:
    """Return the operations of a folder or file, and add what was left out to `notes`."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    of_ranks = [(file, match) for file in files if (match := RANK_FILE.fullmatch(file.name))]
    if not of_ranks:
        return _rows_of_joined(_records(path))
    others = sum(match[3] != "0" for _, match in of_ranks)
    if others:
        notes.append(f"{others} files of tensor-parallel ranks left out: those of a stage run together")
    kept = [(file, int(match[1]), int(match[2])) for file, match in of_ranks if match[3] == "0"]
    return [row for file, replica, place in kept for row in _rows_of_rank(_records(file), replica, place)]


def _records(file: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: cannot be read ({str(error).splitlines()[0]})", hint="give traces of MegaScan"
        ) from None
    if not isinstance(records, list):
        raise InputError(f"{file}: no list of events", hint="give traces of MegaScan")
    return [record for record in records if isinstance(record, dict)]


def _rows_of_rank(records: Iterable[Mapping[str, Any]], replica: int, place: int) -> list[tuple[_Row, int]]:
    rows: list[tuple[_Row, int]] = []
    step, inside = -1, False
    open_ns: dict[str, int] = {}
    for record in records:
        name, phase = str(record.get("name")), record.get("ph")
        if name == "iteration":
            inside = phase == "B"
            step += inside
            open_ns = {}
        elif inside and phase == "B":
            open_ns[name] = int(record["rel_ts"])
        elif inside and phase == "E" and name in open_ns:
            row = _row(name, record, replica, place, step, open_ns.pop(name))
            rows += [(row, int(record["rel_ts"]))] if row is not None else []
    return rows


def _rows_of_joined(records: Iterable[Mapping[str, Any]]) -> list[tuple[_Row, int]]:
    events = [record for record in records if "ts" in record and record.get("tid", 0) in (0, "0")]
    places = [
        int(event["args"][key]) for event in events for key in ("pp_rank", "pp_rk") if key in event.get("args", {})
    ]
    ranks = max(places, default=0) + 1
    open_us: dict[tuple[int, str], float] = {}
    rows: list[tuple[_Row, int]] = []
    for event in sorted(events, key=lambda event: (event.get("ts", 0), event.get("ph") != "E")):
        name, process, phase = str(event.get("name")), int(event.get("pid", 0)), event.get("ph")
        if phase == "B":
            open_us[process, name] = event["ts"]
        elif phase == "E" and (process, name) in open_us:
            start_ns = round(open_us.pop((process, name)) * 1000)
            details = event.get("args", {})
            row = _row(name, details, process // ranks, process % ranks, int(details.get("iteration", 0)), start_ns)
            rows += [(row, round(event["ts"] * 1000))] if row is not None else []
    return rows


def _row(name: str, details: Mapping[str, Any], replica: int, place: int, step: int, start_ns: int) -> _Row | None:
    kind = kind_of(name)
    if kind not in _KEPT:
        return None
    microbatch = details.get("microbatch") if kind in COMPUTE else None
    if kind in COMPUTE and microbatch is None:
        return None
    number = ABSENT if microbatch is None else int(microbatch)
    return replica, place, step, int(details.get("model_chunk") or 0), number, KINDS.index(kind), start_ns
