"""What the charts of the page show of a run: ranks and steps, communication, and one step of a pipeline or of FSDP.

* The heat map of ranks and steps has a number for each, or the maximum of neighbours if there are many.
* Communication has spreads of skews, bandwidth against size, and pairs of ranks.
* A pipeline has its actions, and its bubbles with their causes. FSDP's all-gathers are in the order in which modules
  are used.
* The map of ranks lays them out by the mesh, with the groups and the numbers of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tracekit.explain.communication.collectives import CollectiveTimesOfSize, TimesOfGroup, collective_distributions
from tracekit.explain.fsdp.tables import FSDP_GATHERS
from tracekit.explain.pipeline.bubble_causes import step_bubbles
from tracekit.explain.pipeline.bubbles import Pipeline
from tracekit.explain.pipeline.sections import PIPELINE_SECTION
from tracekit.explain.step_time.step_lengths import typical_step
from tracekit.job.message_times import rank_pairs
from tracekit.model.events import Float64, Int64
from tracekit.model.run import Run
from tracekit.model.table import rows_of
from tracekit.rank.phases import PHASES
from tracekit.render.page.chart_contract import (
    Bandwidth,
    FsdpLadder,
    MapDimension,
    MapMetric,
    MessagePairs,
    PipelineGaps,
    PipelineView,
    RankMap,
    RankStepMetric,
    RankSteps,
    Skew,
)
from tracekit.report.report import Report

# ---- ranks and steps ---------------------------------------------------------------------------------------------
MOST_ROWS = 1024
"""Ranks that are shown one by one; more are binned."""

METRICS: tuple[tuple[str, str, str], ...] = (
    ("step_ns", "step", "Length of the step on this rank."),
    ("lateness_ns", "lateness", "How long after the first rank it came to a collective of the step: the longest."),
    ("compute_ns", "compute", "Time covered by compute."),
    ("exposed_comm_ns", "exposed communication", "Communication that no compute covers, with waiting for others."),
    ("exposed_copy_ns", "exposed copies", "Copies that neither compute nor communication cover."),
    ("idle_ns", "idle", "Time that no lane covers."),
)

# ---- communication -----------------------------------------------------------------------------------------------
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_BINS = 24
_SMALLEST_NS = 1_000  # the upper bound of the first bin
MOST_DOTS = 32  # instances that are drawn one by one; a histogram has no fewer numbers

# ---- a single step -----------------------------------------------------------------------------------------------
MOST_ACTIONS = 4096

_Worse = Literal["high", "low"] | None
_METRICS: tuple[tuple[str, str, str, str, str, _Worse, str], ...] = (
    ("step_ns", "ranks", "step_ns", "step", "ns", "high", "Mean length of the rank's steps."),
    (
        "lateness_ns",
        "lateness",
        "mean_ns",
        "lateness",
        "ns",
        "high",
        "How long after the first rank it came to a collective: the longest of a step, mean of steps.",
    ),
    ("caused_delay_ns", "stragglers", "caused_delay_ns", "caused delay", "ns", "high", "Delay a step that it causes."),
    ("wait_ns", "stragglers", "wait_ns", "waiting", "ns", None, "Time a step in which it waits for others."),
    ("compute_ns", "ranks", "compute_ns", "compute", "ns", None, "Mean time a step that compute covers."),
    ("exposed_comm_ns", "ranks", "exposed_comm_ns", "exposed communication", "ns", "high", "Not hidden by compute."),
    ("idle_ns", "ranks", "idle_ns", "idle", "ns", "high", "Mean time a step in which nothing runs."),
    ("overlap_ratio", "ranks", "overlap_ratio", "overlap", "ratio", "low", "Share of communication under compute."),
    ("bubble_ratio", "pipeline", "bubble_ratio", "pipeline bubble", "ratio", "high", "Share of its pipeline's time."),
    (
        "slowdown",
        "slowdown",
        "S",
        "slowdown S",
        "",
        "high",
        "The step with only this rank as measured, by the ideal step.",
    ),
    ("mfu", "roofline", "mfu", "MFU", "ratio", "low", "Model FLOPs by what the device can do."),
    ("peak_bytes", "memory", "peak_bytes", "peak memory", "bytes", "high", "The most that its allocator held."),
)
"""Key, table, column, title, unit, which end is worse, and meaning of the numbers of a rank."""

_COLUMNS = ("pp", "pipe", "stage")
_INSIDE = ("tp", "tensor", "ep", "expert", "cp", "context", "sp", "sequence", "model")


def rank_steps(run: Run, latest_ns: Mapping[tuple[int, int], int], hosts: Sequence[str], most_cells: int) -> RankSteps:
    """Return the numbers of every complete step of every measured rank.

    latest_ns: how late each rank came, by rank and step. hosts: names, which the result refers to. most_cells: how many
    cells a matrix may have; with more ranks or steps, neighbours share one.
    """
    ranks = [summary for summary in run.ranks if summary.is_measured]
    numbers = sorted({step.step for summary in ranks for step in summary.steps if step.complete})
    column = {number: i for i, number in enumerate(numbers)}
    values = np.full((len(METRICS), len(ranks), len(numbers)), np.nan)  # float64 holds times of up to 104 days exactly
    for row, summary in enumerate(ranks):
        for step in summary.steps:
            if step.complete:
                late_ns = latest_ns.get((summary.rank, step.step))
                values[:, row, column[step.step]] = (
                    step.step_ns,
                    np.nan if late_ns is None else late_ns,
                    step.compute_ns,
                    step.exposed_comm_ns,
                    step.exposed_copy_ns,
                    step.idle_ns,
                )
    ranks_a_row, steps_a_column = _bin_sizes(len(ranks), len(numbers), most_cells)
    row_first = np.arange(0, len(ranks), ranks_a_row)
    column_first = np.arange(0, len(numbers), steps_a_column)
    binned = _maxima(values, row_first, column_first)
    is_binned = ranks_a_row > 1 or steps_a_column > 1
    return RankSteps(
        binned=is_binned,
        text=_text(ranks_a_row, steps_a_column) if is_binned else None,
        ranks=[summary.rank for summary in ranks],
        steps=numbers,
        hosts=[None if summary.host is None else hosts.index(summary.host) for summary in ranks],
        row_first=row_first.tolist(),
        row_last=_last(row_first, len(ranks)),
        column_first=column_first.tolist(),
        column_last=_last(column_first, len(numbers)),
        metrics=[
            RankStepMetric(key=key, title=title, meaning=meaning, values=_plain(matrix))  # type: ignore[typeddict-item]
            for (key, title, meaning), matrix in zip(METRICS, binned, strict=True)
        ],
    )


def _bin_sizes(ranks: int, steps: int, most_cells: int) -> tuple[int, int]:
    """Return how many ranks share a row and how many steps a column."""
    ranks_a_row = -(-ranks // MOST_ROWS) if ranks else 1
    rows = -(-ranks // ranks_a_row) if ranks else 1
    columns = max(most_cells // max(rows, 1), 1)
    return ranks_a_row, max(-(-steps // columns), 1)


def _maxima(values: Float64, row_first: Int64, column_first: Int64) -> Float64:
    """Return the maximum of each bin that begins at these rows and columns, NaN where nothing is known."""
    if not values.size:
        return values
    low = np.where(np.isnan(values), -np.inf, values)
    low = np.maximum.reduceat(np.maximum.reduceat(low, row_first, axis=1), column_first, axis=2)
    return np.where(np.isneginf(low), np.nan, low)


def _plain(matrix: Float64) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in matrix.ravel().tolist()]


def _last(first: Int64, count: int) -> list[int]:
    return [*(first[1:] - 1).tolist(), count - 1] if count else []


def _text(ranks_a_row: int, steps_a_column: int) -> str:
    amounts = ((ranks_a_row, "ranks a row"), (steps_a_column, "steps a column"))
    shared = " and ".join(f"{amount} {what}" for amount, what in amounts if amount > 1)
    return f"The map of ranks and steps has {shared}: a cell shows the maximum of these."


def skews_and_bandwidths(groups: Iterable[TimesOfGroup], result: dict[str, Any]) -> tuple[list[Skew], list[Bandwidth]]:
    """Return the spreads of the rows of `result["collectives"]`, in their order."""
    row_of = {
        (row["group"], row["kind"], row["size_bytes"]): i for i, row in enumerate(result.get("collectives") or [])
    }
    if not row_of:
        return [], []
    found = {
        row_of[key]: (times, of_group)
        for of_group in groups
        for times in collective_distributions([of_group])
        if (key := _key(times)) in row_of
    }
    skews, bandwidths = [], []
    for row, (times, of_group) in sorted(found.items()):
        skews.append(_skew(row, times, of_group))
        if (point := _bandwidth(row, result["collectives"][row], times.transfer_ns)) is not None:
            bandwidths.append(point)
    return skews, bandwidths


def _key(times: CollectiveTimesOfSize) -> tuple[int, str, int | None]:
    return times.group, times.kind, times.size_bytes


def _skew(row: int, times: CollectiveTimesOfSize, of_group: TimesOfGroup) -> Skew:
    skew_ns, (matched, group) = times.skew_ns, of_group
    dots = times.instances if len(skew_ns) <= MOST_DOTS else times.instances[:0]
    last = matched.ranks[group.late_ns[:, dots].argmax(axis=0)].tolist()
    is_sure = [times.error_ns is not None and late_ns > times.error_ns for late_ns in group.skew_ns[dots].tolist()]
    top = max(int(skew_ns.max()), 2 * _SMALLEST_NS)
    edges_ns = np.unique(np.geomspace(_SMALLEST_NS, top, _BINS).round().astype(np.int64))
    edges_ns[-1] = top
    edges_ns = np.concatenate(([0], edges_ns))
    return Skew(
        row=row,
        skew_ns=group.skew_ns[dots].tolist(),
        last_rank=[rank if sure else None for rank, sure in zip(last, is_sure, strict=True)],
        step=matched.step[group.instance[dots]].tolist(),
        quantiles_ns=[int(value) for value in np.quantile(skew_ns, _QUANTILES, method="inverted_cdf")],
        edges_ns=[] if len(dots) else edges_ns.tolist(),
        counts=[] if len(dots) else np.histogram(skew_ns, bins=edges_ns)[0].tolist(),
        error_ns=times.error_ns,
    )


def _bandwidth(row: int, collective: dict[str, Any], transfer_ns: Int64) -> Bandwidth | None:
    busbw_bps, usual_ns = collective["busbw_bps"], collective["transfer_p50_ns"]
    if not busbw_bps or not collective["size_bytes"]:
        return None
    short_ns, long_ns = (max(int(value), 1) for value in np.quantile(transfer_ns, (0.1, 0.9), method="inverted_cdf"))
    return Bandwidth(
        row=row,
        size_bytes=collective["size_bytes"],
        busbw_bps=busbw_bps,
        low_bps=busbw_bps * usual_ns / long_ns,
        high_bps=busbw_bps * usual_ns / short_ns,
    )


def message_pairs(run: Run, most_pairs: int) -> MessagePairs | None:
    """Return the pairs of ranks that exchange messages.

    Where there are more than `most_pairs`, neighbouring ranks are counted together.
    """
    ranks_per_cell, pairs = 1, rank_pairs(run)
    while len(pairs) > most_pairs:
        ranks_per_cell *= 2
        pairs = rank_pairs(run, ranks_per_cell)
    if not len(pairs):
        return None
    transfers = list(zip(pairs.transfer_bytes.tolist(), pairs.transfer_ns.tolist(), strict=True))
    return MessagePairs(
        ranks_per_cell=ranks_per_cell,
        source=pairs.source.tolist(),
        destination=pairs.destination.tolist(),
        count=pairs.count.tolist(),
        size_bytes=[size or None for size in pairs.size_bytes.tolist()],
        transfer_ns=[time_ns or None for time_ns in pairs.transfer_ns.tolist()],
        mean_bps=[size / time_ns * 1e9 if size and time_ns else None for size, time_ns in transfers],
    )


def pipeline_view(report: Report, most_actions: int = MOST_ACTIONS) -> PipelineView | None:
    """Return the step of median length of one pipeline; None where no rank recorded actions of one.

    most_actions: ranks are left out, those of the last stages first, until there are no more actions than that.
    """
    pipeline = report.result(PIPELINE_SECTION)
    if not isinstance(pipeline, Pipeline) or not (actions := rows_of(pipeline, "typical_step")):
        return None
    first_stage: dict[int, int] = {}
    for action in actions:
        first_stage[action["rank"]] = min(action["stage"], first_stage.get(action["rank"], action["stage"]))
    ranks = sorted(first_stage, key=lambda rank: (first_stage[rank], rank))
    shown = ranks[: max(most_actions * len(ranks) // len(actions), 1)]
    begin_ns = min(action["start_ns"] for action in actions)
    length_ns = max(action["end_ns"] for action in actions) - begin_ns
    step = int(actions[0]["step"])
    actions = [action for action in actions if action["rank"] in shown]
    return PipelineView(
        step=step,
        length_ns=length_ns,
        ranks=shown,
        rank=[action["rank"] for action in actions],
        stage=[action["stage"] for action in actions],
        microbatch=[action["microbatch"] for action in actions],
        kind=[action["kind"] for action in actions],
        start_ns=[action["start_ns"] + action["wait_ns"] - begin_ns for action in actions],
        end_ns=[action["end_ns"] - begin_ns for action in actions],
        gaps=_gaps(pipeline, shown, step, begin_ns),
        text=" ".join(_texts(len(pipeline.measured), len(ranks), len(shown))) or None,
    )


def _texts(pipelines: int, ranks: int, shown: int) -> Iterator[str]:
    if pipelines > 1:
        yield f"This is one of {pipelines} pipelines."
    if shown < ranks:
        yield f"{shown} of its {ranks} ranks are shown."


def _gaps(pipeline: Pipeline, ranks: list[int], step: int, begin_ns: int) -> PipelineGaps | None:
    measured = next((one for one in pipeline.measured if ranks[0] in one.ranks), None)
    if measured is None:
        return None
    bubbles = [bubble for bubble in step_bubbles(measured, step) if bubble.rank in ranks]
    return PipelineGaps(
        rank=[bubble.rank for bubble in bubbles],
        start_ns=[bubble.start_ns - begin_ns for bubble in bubbles],
        end_ns=[bubble.end_ns - begin_ns for bubble in bubbles],
        cause=[bubble.cause for bubble in bubbles],
    )


def fsdp_ladder(report: Report) -> FsdpLadder | None:
    """Return the step of median length on the rank that waits longest for its gathers; None without gathers."""
    step = typical_step(report.run)
    ladders = [
        (s.rank, s[FSDP_GATHERS].rows(s[FSDP_GATHERS].step == step))
        for s in report.run.ranks
        if FSDP_GATHERS.name in s.parts  # not where only other sections were asked for
    ]
    rank, gathers = max(ladders, key=lambda ladder: int(ladder[1].wait_ns.sum()), default=(0, None))
    if step is None or gathers is None or not len(gathers):
        return None
    return FsdpLadder(
        rank=rank,
        step=step,
        module=gathers.module.tolist(),
        phase=[PHASES[phase] if phase >= 0 else None for phase in gathers.phase.tolist()],
        ahead=gathers.ahead.tolist(),
        transfer_ns=gathers.transfer_ns.tolist(),
        wait_ns=gathers.wait_ns.tolist(),
        compute_before_ns=[None, *np.maximum(gathers.compute_ns[:-1], 0).tolist()],
    )


def rank_map(run: Run, result: dict[str, Any], latest_ns: Mapping[tuple[int, int], int]) -> RankMap:
    """Return the map of the n ranks that the run has or should have.

    result: the JSON result. latest_ns: how late each rank came, by rank and step (`lateness_by_step`).
    """
    ranks = sorted({*result["run"]["ranks"], *run.missing_ranks})
    names = sorted({summary.host for summary in run.ranks if summary.host is not None})
    host_of = {s.rank: names.index(s.host) for s in run.ranks if s.host is not None}
    dimensions, source, coordinates = _layout(ranks, result["run"], host_of)
    state: dict[int, Literal["present", "unmeasured", "server"]] = {
        s.rank: "server" if s.serves_only else "present" if s.is_measured else "unmeasured" for s in run.ranks
    }
    groups: dict[int, list[int]] = {rank: [] for rank in ranks}
    for group in result["groups"]:
        for rank in [] if group["ranks"] == "world" else group["ranks"]:
            if rank in groups:
                groups[rank].append(group["id"])
    return RankMap(
        dimensions=dimensions,
        source=source,
        ranks=ranks,
        state=[state.get(rank, "missing") for rank in ranks],
        coordinates=coordinates,
        hosts=names,
        host=[host_of.get(rank) for rank in ranks],
        groups=list(groups.values()),
        metrics=list(_metrics(ranks, result, latest_ns)),
    )


def _layout(
    ranks: list[int], run: dict[str, Any], host_of: Mapping[int, int]
) -> tuple[list[MapDimension], Literal["mesh", "hosts", "ranks"], list[list[int | None]]]:
    """Return the dimensions, where they are from, and the coordinates of each rank along each of them."""
    if (mesh := run["mesh"]) is not None:
        known = {rank: at for rank, at in zip(run["ranks"], mesh["coordinates"], strict=True) if at is not None}
        shape = tuple(mesh["shape"])
        by_number = {rank: _place(rank, shape) for rank in ranks}
        if all(by_number[rank] == at for rank, at in known.items()):  # then missing ranks are where their numbers say
            known = {rank: at for rank, at in by_number.items() if at is not None}
        columns: list[list[int | None]] = [
            [known[rank][d] if rank in known else None for rank in ranks] for d in range(len(shape))
        ]
        return _dimensions(mesh["names"], shape), "mesh", columns
    hosts = sorted(set(host_of.values()))
    members = {host: [rank for rank in ranks if host_of.get(rank) == host] for host in hosts}
    sizes = set(map(len, members.values()))
    if len(hosts) > 1 and len(host_of) == len(ranks) and len(sizes) == 1:
        within = {rank: i for of_host in members.values() for i, rank in enumerate(of_host)}
        dimensions = [
            MapDimension(name="host", size=len(hosts), place="row"),
            MapDimension(name="rank", size=sizes.pop(), place="column"),
        ]
        return dimensions, "hosts", [[host_of[rank] for rank in ranks], [within[rank] for rank in ranks]]
    return [MapDimension(name="rank", size=len(ranks), place="row")], "ranks", [list(range(len(ranks)))]


def _place(rank: int, shape: tuple[int, ...]) -> list[int] | None:
    """Return the coordinates of a rank in a mesh whose last dimension varies fastest; None outside of it."""
    if rank >= int(np.prod(shape)):
        return None
    return [int(i) for i in np.unravel_index(rank, shape)]


def _dimensions(names: Iterable[str], shape: tuple[int, ...]) -> list[MapDimension]:
    """Return the dimensions with their places: data parallelism in rows, stages in columns, all else inside."""

    def place(name: str) -> Literal["row", "column", "inside"]:
        lower = name.lower()
        if lower.startswith(_COLUMNS):
            return "column"
        return "inside" if lower.startswith(_INSIDE) else "row"

    places = [place(name) for name in names]
    if "row" not in places and (len(places) == 1 or "column" not in places):
        places[0] = "row"
    return [MapDimension(name=n, size=s, place=p) for n, s, p in zip(names, shape, places, strict=True)]


def _metrics(ranks: list[int], result: dict[str, Any], latest_ns: Mapping[tuple[int, int], int]) -> Iterable[MapMetric]:
    """Yield the numbers that are known of any rank."""
    late: dict[int, list[int]] = {}
    for (rank, _), value_ns in latest_ns.items():
        late.setdefault(rank, []).append(value_ns)
    slowdowns = (result.get("whatif") or {}).get("S_by_rank") or {}
    tables: dict[str, dict[int, dict[str, Any]]] = {
        "ranks": _by_rank(result.get("ranks")),
        "stragglers": _by_rank((result.get("stragglers") or {}).get("by_rank")),
        "roofline": _by_rank((result.get("roofline") or {}).get("by_rank")),
        "memory": _by_rank(result.get("memory")),
        "pipeline": _by_rank((result.get("pipeline") or {}).get("by_rank")),
        "slowdown": {int(rank): {"S": value} for rank, value in slowdowns.items()},
        "lateness": {rank: {"mean_ns": round(sum(of_rank) / len(of_rank))} for rank, of_rank in late.items()},
    }
    for key, table, column, title, unit, worse, meaning in _METRICS:
        rows = tables[table]
        values: list[float | int | None] = [rows.get(rank, {}).get(column) for rank in ranks]
        if table == "ranks" and unit == "ns":  # sums over the rank's steps
            steps = [rows.get(rank, {}).get("steps") for rank in ranks]
            pairs = zip(values, steps, strict=True)
            values = [None if value is None or not count else round(value / count) for value, count in pairs]
        if any(number is not None for number in values):
            yield MapMetric(key=key, title=title, unit=unit, meaning=meaning, worse=worse, values=values)


def _by_rank(rows: list[dict[str, Any]] | None) -> dict[int, dict[str, Any]]:
    return {row["rank"]: row for row in rows or []}
