"""Timers of Megatron-LM, as `--timing-log-option all --timing-log-level 2` prints them.

    iteration        3/     500 | ... | elapsed time per iteration (ms): 812.4 | ... | global batch size:    64 | ...
    times across ranks (ms):
      forward-compute:
         rank  0: 201.34
         rank  1: 198.80

Timers are sums: how long a rank was in its forwards, and in its backwards, in an iteration. They do not say when, nor
how long each microbatch took. So the order of a step is that of a **model**: Megatron's schedule for the sizes that the
log prints with its arguments, or that are given, with microbatches of a rank that take equally long, and transfers that
take no time. The report says so. What a model cannot show is what differs within an iteration.

With the options `max` and `minmax` a log names no rank, and nothing can be said of ranks.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tracekit.analysis.operation_tables.formats.numbers import (
    LONGEST_NS,
    UnreadableNumberError,
    decimal,
    whole_number,
)
from tracekit.analysis.operation_tables.formats.table_limits import HIGHEST_NUMBER, require_limits, require_within
from tracekit.analysis.operation_tables.formats.texts import read_bytes
from tracekit.analysis.operation_tables.operations import KINDS, Operations, OperationTable
from tracekit.analysis.pipeline.bubble_causes import build_pipeline_replay
from tracekit.analysis.pipeline.layout.schedules import Order, order_of_schedule
from tracekit.analysis.pipeline.transfers import edges_between_ranks
from tracekit.errors import InputError
from tracekit.model.events import ABSENT, Float64
from tracekit.model.spans import ACTION_KINDS

__all__ = ["TIMER_HEADS", "PipelineSizes", "read_timer_log"]

_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
_ELAPSED = re.compile(r"elapsed time per iteration \(ms\):\s*([\d.]+)")
_BATCH = re.compile(r"global batch size:\s*(\d+)")
_ARGUMENT = re.compile(r"\b(\w+) \.{3,} (\S+)\s*$")
_TIMER = re.compile(r"(?:^|[\s\]:])([a-z][a-z0-9]*(?:-[a-z0-9]+)+|optimizer):\s*$")
_OF_RANK = re.compile(r"\brank\s+(\d+):\s*([\d.]+)\s*$")
_MIN_MAX = re.compile(rb"\(min, max\) time across ranks|max time across ranks")
_FORWARD, _BACKWARD = "forward-compute", "backward-compute"
TIMER_HEADS = ("times across ranks (ms):", "time across ranks (ms):")
"""Texts that a log with timers has."""
_SIZES = (
    *("pipeline_model_parallel_size", "tensor_model_parallel_size", "context_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "global_batch_size", "micro_batch_size"),
)
"""Arguments that the order of a step follows from."""
_LONGEST_MS = LONGEST_NS / 1e6


@dataclass(frozen=True, kw_only=True)
class PipelineSizes:
    """What the order of a step follows from; None: as the log says.

    Attributes:
        pipeline_ranks: ranks of a pipeline.
        microbatches: microbatches a step.
        chunks: stages of a rank.
        tensor_ranks: ranks that share the work of a stage.
    """

    pipeline_ranks: int | None = None
    microbatches: int | None = None
    chunks: int | None = None
    tensor_ranks: int | None = None


@dataclass(kw_only=True)
class _Iteration:
    number: int
    elapsed_ms: float | None
    batch: int | None
    timers: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))


def read_timer_log(path: Path, given: PipelineSizes = PipelineSizes()) -> OperationTable:
    """Return the operations of a log, in the order of Megatron's schedule.

    Raises InputError when the log names no ranks, lacks the timers of forwards and backwards, or does not say the sizes
    that the order follows from.
    """
    content = read_bytes(path)
    iterations, arguments = _parse(path, io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace"))
    if not iterations:
        if _MIN_MAX.search(content):
            raise InputError(f"{path}: its timers name no rank", hint="log with --timing-log-option all")
        raise InputError(
            f"{path}: no timers of ranks in it", hint="log with --timing-log-option all --timing-log-level 2"
        )
    lacking = [name for name in (_FORWARD, _BACKWARD) if not all(name in one.timers for one in iterations)]
    if lacking:
        raise InputError(f"{path}: no timer {lacking[0]}", hint="log with --timing-log-level 2")
    ranks = 1 + max(rank for one in iterations for rank in one.timers[_FORWARD])
    sizes = _sizes(path, given, arguments, iterations, ranks)
    pipelines = sizes.replicas * sizes.pipeline_ranks
    require_within(path, "table_operations", len(iterations) * pipelines * sizes.operations_of_rank)
    rows: list[tuple[int, int, int, int, int, int, float, float]] = []
    measured_ns: dict[int, int] = {}
    begin_ns = 0.0
    for one in iterations:
        added, length_ns = _rows(one, sizes, begin_ns)
        rows += added
        if one.elapsed_ms is not None:
            measured_ns[one.number] = round(one.elapsed_ms * 1e6)
        begin_ns += max(length_ns, measured_ns.get(one.number, 0))
    if begin_ns > LONGEST_NS:
        what = f"its iterations take longer than {LONGEST_NS / 1e9:.0e} s together"
        raise InputError(f"{path}: {what}", hint="are its timers in ms?")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    operations = Operations(
        rank=columns[0],
        replica=columns[1],
        stage=columns[2],
        step=columns[3],
        microbatch=columns[4],
        kind=columns[5].astype(np.int32),
        start_ns=np.rint(columns[6]).astype(np.int64),
        end_ns=np.rint(columns[7]).astype(np.int64),
    )
    schedule = "1F1B" if sizes.chunks == 1 else f"interleaved 1F1B, {sizes.chunks} stages a rank"
    note = (
        f"timers are sums a rank and iteration: the order within a step is a model ({schedule}, {sizes.microbatches} "
        "microbatches of equal length, transfers take no time)"
    )
    notes = [note]
    if sizes.tensor_ranks > 1:
        notes.append(f"of each {sizes.tensor_ranks} tensor-parallel ranks the slowest counts: they run together")
    require_limits(operations, str(path))
    return OperationTable(
        path=str(path),
        source="timers of Megatron-LM",
        operations=operations.in_order(),
        measured_ns=measured_ns,
        modelled=True,
        notes=tuple(notes),
    )


def _parse(path: Path, lines: Iterable[str]) -> tuple[list[_Iteration], dict[str, int]]:
    """Return the iterations whose timers name ranks, and the sizes among the arguments that Megatron printed.

    Raises InputError that names the line of a number that cannot be.
    """
    sizes: dict[str, int] = {}
    iterations: list[_Iteration] = []
    timer: str | None = None
    inside = False
    for number, line in enumerate(lines, 1):
        try:
            if match := _ITERATION.search(line):
                iterations.append(_iteration(line, match[1]))
                inside = False
            elif any(head in line for head in TIMER_HEADS):
                inside, timer = True, None
            elif inside and (match := _OF_RANK.search(line)) and timer is not None and iterations:
                rank = whole_number(match[1], most=HIGHEST_NUMBER)
                iterations[-1].timers[timer][rank] = decimal(match[2], most=_LONGEST_MS)
            elif inside and (match := _TIMER.search(line)):
                timer = match[1]
            elif (match := _ARGUMENT.search(line)) and match[1] in _SIZES and match[2] != "None":
                sizes.setdefault(match[1], _size(match[1], match[2]))
        except UnreadableNumberError as error:
            raise InputError(f"{path}: line {number}: {error}", hint="correct that line, or leave it out") from None
    return [one for one in iterations if any(one.timers.values())], sizes


def _size(name: str, text: str) -> int:
    try:
        return whole_number(text, least=1, most=HIGHEST_NUMBER)
    except UnreadableNumberError as error:
        raise UnreadableNumberError(f"{name} {error}") from None


def _iteration(line: str, number: str) -> _Iteration:
    elapsed, batch = _ELAPSED.search(line), _BATCH.search(line)
    return _Iteration(
        number=whole_number(number),
        elapsed_ms=decimal(elapsed[1], most=_LONGEST_MS) if elapsed else None,
        batch=whole_number(batch[1], most=HIGHEST_NUMBER) if batch else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    pipeline_ranks: int
    microbatches: int
    chunks: int
    tensor_ranks: int
    replicas: int

    @property
    def operations_of_rank(self) -> int:
        """How many operations a rank has in a step."""
        return 2 * self.microbatches * self.chunks


def _sizes(
    path: Path, given: PipelineSizes, printed: Mapping[str, int], iterations: list[_Iteration], ranks: int
) -> _Sizes:
    """Return the sizes that are given, else those that the log printed. Raises InputError where neither says one."""
    pipeline_ranks = given.pipeline_ranks or printed.get("pipeline_model_parallel_size")
    if pipeline_ranks is None:
        raise InputError(f"{path}: it does not say how many ranks a pipeline has", hint="give --pipeline-ranks")
    tensor_ranks = given.tensor_ranks or printed.get("tensor_model_parallel_size", 1)
    together = tensor_ranks * printed.get("context_parallel_size", 1)
    if ranks % (pipeline_ranks * together):
        raise InputError(
            f"{path}: {ranks} ranks are no multiple of {pipeline_ranks} pipeline and {together} tensor-parallel ranks",
            hint="give --pipeline-ranks",
        )
    replicas = ranks // (pipeline_ranks * together)
    chunks = given.chunks or printed.get("virtual_pipeline_model_parallel_size", 1)
    microbatches = given.microbatches
    if microbatches is None:
        batch = next((one.batch for one in iterations if one.batch), printed.get("global_batch_size"))
        micro = printed.get("micro_batch_size")
        if batch is None or micro is None:
            raise InputError(f"{path}: it does not say how many microbatches a step has", hint="give --microbatches")
        microbatches = batch // (micro * replicas)
    sizes = _Sizes(
        pipeline_ranks=pipeline_ranks,
        microbatches=microbatches,
        chunks=chunks,
        tensor_ranks=together,
        replicas=replicas,
    )
    require_within(path, "rank_operations", sizes.operations_of_rank)
    require_within(path, "table_ranks", sizes.replicas * sizes.pipeline_ranks)
    require_within(path, "table_stages", sizes.pipeline_ranks * sizes.chunks)
    if _orders(sizes) is None:
        raise InputError(
            f"{path}: no schedule has {microbatches} microbatches on {pipeline_ranks} ranks of {chunks} stages",
            hint="give --microbatches",
        )
    return sizes


def _orders(sizes: _Sizes) -> list[Order] | None:
    schedule = "1f1b" if sizes.chunks == 1 else "interleaved1f1b"
    return order_of_schedule(schedule, sizes.pipeline_ranks, sizes.chunks, sizes.microbatches)


def _rows(
    one: _Iteration, sizes: _Sizes, begin_ns: float
) -> tuple[list[tuple[int, int, int, int, int, int, float, float]], float]:
    """Return the operations of an iteration, and how long it is in the model.

    Megatron numbers ranks by tensor, then data, then pipeline.
    """
    orders = _orders(sizes)
    assert orders is not None
    place = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    kind, stage, number = (np.array(column) for column in zip(*(row for order in orders for row in order), strict=True))
    codes = np.array([ACTION_KINDS.index(letter) for letter in kind.tolist()], dtype=np.int32)
    edges = edges_between_ranks(place, codes, stage.astype(np.int32), number.astype(np.int32))
    replay = build_pipeline_replay(place, edges, np.full(len(edges), ABSENT, dtype=np.int64))
    each = sizes.microbatches * sizes.chunks
    rows, length_ns = [], 0.0
    for replica in range(sizes.replicas):
        work_ns = np.empty(len(place))
        numbers = []
        for of_rank in range(sizes.pipeline_ranks):
            first = sizes.tensor_ranks * (replica + sizes.replicas * of_rank)
            numbers.append(first)
            for name, letter in ((_FORWARD, "F"), (_BACKWARD, "B")):
                together = [one.timers[name].get(first + i, 0.0) for i in range(sizes.tensor_ranks)]
                work_ns[(place == of_rank) & (kind == letter)] = max(together) * 1e6 / each
        start_ns, span_ns = replay(work_ns[:, None], np.zeros((len(edges), 1)))
        length_ns = max(length_ns, float(span_ns[0]))
        start: Float64 = begin_ns + start_ns[:, 0]
        for row in range(len(place)):
            rank = numbers[int(place[row])]
            code = KINDS.index(str(kind[row]))
            identity = (rank, replica, int(stage[row]), one.number, int(number[row]), code)
            rows.append((*identity, float(start[row]), float(start[row] + work_ns[row])))
    return rows, length_ns
