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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracekit.analysis.operation_tables.formats.names import kind_of
from tracekit.analysis.operation_tables.formats.numbers import (
    LONGEST_NS,
    UnreadableNumberError,
    decimal,
    whole_number,
)
from tracekit.analysis.operation_tables.formats.table_limits import HIGHEST_NUMBER, require_limits, require_within
from tracekit.analysis.operation_tables.formats.texts import read_bytes
from tracekit.analysis.operation_tables.operations import COLLECTIVES, COMPUTE, KINDS, Operations, OperationTable
from tracekit.errors import InputError
from tracekit.model.events import ABSENT

__all__ = ["RANK_FILE", "is_megascan", "read_megascan"]

RANK_FILE = re.compile(r"benchmark-data-(\d+)-pipeline-(\d+)-tensor-(\d+)\.json")
_KEPT = (*COMPUTE, *COLLECTIVES, "optimizer")
_PLACE_KEYS = ("pp_rank", "pp_rk")
_Row = tuple[int, int, int, int, int, int, int]
"""Replica, place in the pipeline, step, chunk, microbatch, kind and start; the end follows."""


def is_megascan(head: str) -> bool:
    """Return whether a JSON text that begins like this is such a trace."""
    fields = set(re.findall(r'"(rel_ts|pad_before|model_chunk|pp_rank|pp_rk|iteration begin|iteration)"', head))
    return head.lstrip().startswith("[") and bool({"rel_ts", "pad_before", "model_chunk"} & fields)


def read_megascan(path: Path) -> OperationTable:
    """Return the operations of a folder of files of ranks, of one such file, or of a joined trace.

    Raises InputError when a file cannot be read, is beyond a limit, or has no forward and no backward.
    """
    notes: list[str] = []
    rows: list[tuple[_Row, int]] = []
    for of_file in _rows_of_files(path, notes):
        rows += of_file
        require_within(path, "table_operations", len(rows))
    if not any(KINDS[row[5]] in COMPUTE for row, _ in rows):
        raise InputError(
            f"{path}: no forward and no backward in it", hint="trace with --trace-granularity base or full"
        )
    replica, place, step, chunk, microbatch, kind, start_ns = (
        np.array(column, dtype=np.int64) for column in zip(*(r for r, _ in rows), strict=True)
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
        end_ns=np.array([end_ns for _, end_ns in rows], dtype=np.int64),
    )
    require_limits(operations, str(path))
    return OperationTable(
        path=str(path),
        source="a trace of MegaScan",
        operations=operations.in_order(),
        measured_ns={},
        notes=(*notes, "all ranks count as beginning an iteration at the same time, as MegaScan takes them"),
    )


def _rows_of_files(path: Path, notes: list[str]) -> Iterator[list[tuple[_Row, int]]]:
    """Yield the operations of each file of a folder, or of one file, and add what was left out to `notes`."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    of_ranks = {file: match.groups() for file in files if (match := RANK_FILE.fullmatch(file.name))}
    others = {file for file, (_, _, tensor_rank) in of_ranks.items() if tensor_rank.strip("0")}
    if others:
        notes.append(f"{len(others)} files of tensor-parallel ranks left out: those of a stage run together")
    for file in [file for file in of_ranks if file not in others] if of_ranks else [path]:
        try:
            if file in of_ranks:
                replica, place = (whole_number(text, most=HIGHEST_NUMBER) for text in of_ranks[file][:2])
                yield _rows_of_rank(_records(file), replica, place)
            else:
                yield _rows_of_joined(_records(file))
        except (AttributeError, KeyError, TypeError, UnreadableNumberError) as error:
            what = {KeyError: f"an event lacks {error}", UnreadableNumberError: f"a number of it is wrong: {error}"}
            reason = what.get(type(error), "an event is not as MegaScan writes it")
            raise InputError(f"{file}: {reason}", hint="give traces of MegaScan as it writes them") from None


def _records(file: Path) -> list[dict[str, Any]]:
    content = read_bytes(file)
    # An operation is two records, each of one or two objects. Empty ones take twenty times as much memory as text.
    require_within(file, "table_operations", (content.count(b"{") + content.count(b"[")) // 4)
    try:
        records = json.loads(content)
    except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError, too
        raise InputError(f"{file}: it cannot be read as JSON", hint="give traces of MegaScan") from None
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
            open_ns[name] = _relative_ns(record)
        elif inside and phase == "E" and name in open_ns:
            for key in _PLACE_KEYS:
                _number(record, key)  # the name of the file tells the place, but what is no number is damage
            row = _row(name, record, replica, place, step, open_ns.pop(name))
            rows += [(row, _relative_ns(record))] if row is not None else []
    return rows


def _rows_of_joined(records: Iterable[Mapping[str, Any]]) -> list[tuple[_Row, int]]:
    events = [record for record in records if "ts" in record and record.get("tid", 0) in (0, "0")]
    places = [_number(event["args"], key) for event in events for key in _PLACE_KEYS if key in event.get("args", {})]
    ranks = max(places, default=0) + 1
    open_us: dict[tuple[int, str], float] = {}
    rows: list[tuple[_Row, int]] = []
    timed = [(decimal(event["ts"], least=-LONGEST_NS / 1000, most=LONGEST_NS / 1000), event) for event in events]
    for ts_us, event in sorted(timed, key=lambda pair: (pair[0], pair[1].get("ph") != "E")):
        name, process, phase = str(event.get("name")), _number(event, "pid", least=0), event.get("ph")
        if phase == "B":
            open_us[process, name] = ts_us
        elif phase == "E" and (process, name) in open_us:
            start_ns = round(open_us.pop((process, name)) * 1000)
            details = event.get("args", {})
            step = _number(details, "iteration")
            row = _row(name, details, process // ranks, process % ranks, step, start_ns)
            rows += [(row, round(ts_us * 1000))] if row is not None else []
    return rows


def _row(name: str, details: Mapping[str, Any], replica: int, place: int, step: int, start_ns: int) -> _Row | None:
    kind = kind_of(name)
    if kind not in _KEPT:
        return None
    microbatch = ABSENT
    if kind in COMPUTE:
        if details.get("microbatch") is None:
            return None
        microbatch = _number(details, "microbatch", least=ABSENT)
    return replica, place, step, _number(details, "model_chunk", least=0), microbatch, KINDS.index(kind), start_ns


def _number(fields: Mapping[str, Any], name: str, *, least: int = -HIGHEST_NUMBER) -> int:
    """Return a whole number of an event, 0 where it has none. Raises UnreadableNumberError that names it."""
    try:
        return whole_number(fields.get(name) or 0, least=least, most=HIGHEST_NUMBER)
    except UnreadableNumberError as error:
        raise UnreadableNumberError(f"{name} {error}") from None


def _relative_ns(record: Mapping[str, Any]) -> int:
    """Return when a record was, in ns since the begin of the iteration. Raises UnreadableNumberError."""
    time_ns = record["rel_ts"]
    if isinstance(time_ns, int) and abs(time_ns) <= LONGEST_NS:
        return time_ns
    try:
        return int(decimal(time_ns, least=-LONGEST_NS))
    except UnreadableNumberError as error:
        raise UnreadableNumberError(f"rel_ts {error}") from None
