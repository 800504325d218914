"""Data of a page with many ranks, without analysing as many: that of a few ranks, again and again."""

from __future__ import annotations

import copy
from typing import Any

from tracekit.render.page.contract import PageData

__all__ = ["repeated"]

TABLES = (
    ("ranks",),
    ("idle_causes",),
    ("communication",),
    ("memory",),
    ("phases", "parts"),
    ("phases", "ranks"),
    ("stragglers", "by_rank"),
    ("roofline", "by_rank"),
    ("clock", "ranks"),
)
"""Tables of the result with rows of each rank."""


def repeated(data: PageData, times: int) -> PageData:
    """Return the data with every rank so many times, each copy further along the first dimension of the mesh."""
    many: Any = copy.deepcopy(data)
    page, result = many["page"], many["result"]
    count = len(page["rank_map"]["ranks"])
    for *path, name in TABLES:
        table = result[path[0]] if path else result
        table[name] = [row | {"rank": row["rank"] + i * count} for i in range(times) for row in table[name]]
    rank_map, steps = page["rank_map"], page["rank_steps"]
    first, size = rank_map["coordinates"][0], rank_map["dimensions"][0]["size"]
    rank_map["dimensions"][0]["size"] = size * times
    rank_map["coordinates"] = [
        [place + i * size for i in range(times) for place in first],
        *(places * times for places in rank_map["coordinates"][1:]),
    ]
    for key in ("state", "host", "groups"):
        rank_map[key] = rank_map[key] * times
    rank_map["ranks"] = steps["ranks"] = list(range(count * times))
    steps["hosts"] = steps["hosts"] * times
    steps["row_first"] = steps["row_last"] = list(range(count * times))
    for metric in (*rank_map["metrics"], *steps["metrics"]):
        metric["values"] = metric["values"] * times
    return many  # type: ignore[no-any-return]
