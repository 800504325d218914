"""All ranks of a run laid out by the mesh, with the groups and the numbers of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from tracekit.model.run import Run
from tracekit.render.page.chart_contract import MapDimension, MapMetric, RankMap

__all__ = ["rank_map"]

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
        places = [
            MapDimension(name="host", size=len(hosts), place="row"),
            MapDimension(name="rank", size=sizes.pop(), place="column"),
        ]
        return places, "hosts", [[host_of[rank] for rank in ranks], [within[rank] for rank in ranks]]
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
