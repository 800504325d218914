"""Tables of operations, written as a timeline with one operation a line."""

from __future__ import annotations

import pandas as pd

from tracekit.optables.straggler_analysis import COLUMNS


def operations(text: str, *, step: int = 0) -> pd.DataFrame:
    """Return the table of lines `replica stage optype start end [chunk global_chunk [microbatch]]`, in milliseconds.

    The operations of a rank and type are numbered in the order of their starts.
    """
    rows = []
    for line in text.strip().splitlines():
        replica, stage, optype, start, end, *chunks = line.split("#")[0].split()
        chunk, global_chunk, microbatch = [*map(int, chunks), *(-1,) * 3][:3]
        rows.append(
            {
                "dp_rank": int(replica),
                "stage": int(stage),
                "rank": 10 * int(replica) + int(stage),
                "step": step,
                "optype": optype,
                "start_ts": float(start) / 1000,
                "duration": (float(end) - float(start)) / 1000,
                "mc": chunk,
                "gmc": global_chunk,
                "mb_id": microbatch,
            }
        )
    table = pd.DataFrame(rows).sort_values("start_ts", kind="stable")
    table["seq_id"] = table.groupby(["dp_rank", "stage", "optype"]).cumcount()
    return table[list(COLUMNS)].reset_index(drop=True)


TWO_STAGES = """
0 0 forward-compute             0   10   0 0 0
0 0 forward-send               10   12               # stage 1 has waited since 0
0 0 backward-recv              10   45
0 0 backward-compute           45   65   0 0 0
0 0 embedding-grads-all-reduce 65   68
0 0 optimizer-clip-main-grad   68   70
0 0 optimizer                  70   80
0 1 forward-recv                0   12
0 1 forward-compute            12   23   0 1 0
0 1 backward-compute           23   43   0 1 0
0 1 backward-send              43   45
0 1 embedding-grads-all-reduce 43   68               # after the last compute, with stage 0
0 1 optimizer-clip-main-grad   68   70
0 1 optimizer                  70   77
"""
"""One microbatch through two stages, without data parallelism and without unexplained gaps: 80 ms."""
