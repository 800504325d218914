"""Every table tracekit returns: its columns with type, unit and meaning, once.

The DataFrames of a result, the JSON contract, exports and the documentation all follow from here. A column whose type
ends in `?` may be null: unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BUCKET_MAP",
    "CLOCK",
    "COMMUNICATION",
    "COMMUNICATION_BY_KIND",
    "RANKS",
    "STEPS",
    "TABLES",
    "Column",
    "Table",
    "records",
]

Type = Literal["int", "int?", "float", "float?", "str", "str?", "list", "bool"]
_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "object", "bool": "bool"}


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]

    def frame(self, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
        """These columns in this order; nullable integers as Int64, text and nullable floats as objects."""
        import pandas as pd  # here: workers do not pay for it

        names = [column.name for column in self.columns]
        data = {
            column.name: pd.Series([row[column.name] for row in rows], dtype=_DTYPES.get(column.type, "object"))
            for column in self.columns
        }
        return pd.DataFrame(data, columns=names)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain Python values, null as None: the inverse of `Table.frame`."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value

    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


_PARTS = (
    Column("step_ns", "int", "ns", "Length of the window: compute + exposed_comm + exposed_copy + idle, exactly."),
    Column("compute_ns", "int", "ns", "Time covered by compute."),
    Column("comm_ns", "int", "ns", "Time covered by communication."),
    Column("overlapped_comm_ns", "int", "ns", "Communication under compute."),
    Column("exposed_comm_ns", "int", "ns", "Communication that no compute covers."),
    Column("exposed_copy_ns", "int", "ns", "Copies that neither compute nor communication cover."),
    Column("idle_ns", "int", "ns", "Time that no lane covers, measured as gaps."),
    Column("overlap_ratio", "float?", "ratio", "overlapped_comm / comm; null without communication."),
)
_RANK = Column("rank", "int", "", "Global rank.")

RANKS = Table(
    "ranks",
    (_RANK, Column("steps", "int", "", "Complete steps that the sums are over."), *_PARTS),
)
STEPS = Table(
    "steps",
    (
        _RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        Column("start_ns", "int", "ns", "Begin of the window, on the rank's wall clock."),
        Column("complete", "bool", "", "Whether the step was closed and its device events recorded."),
        Column("data_ns", "int?", "ns", "Time in the wrapped data iterator; null when none was wrapped."),
        *_PARTS,
    ),
)
COMMUNICATION = Table(
    "communication",
    (
        _RANK,
        Column("group", "int?", "", "Id in `groups`; null when the trace does not tell."),
        Column("kind", "str", "", "all_reduce, all_gather, ...; unclassified: looks like communication."),
        Column("phase", "str?", "", "forward, backward or optimizer, by its launch."),
        Column("count", "int", "", "Events launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time covered by these events. Rows may overlap."),
        Column("exposed_ns", "int", "ns", "The part of it that no compute covers."),
    ),
)
COMMUNICATION_BY_KIND = Table(
    "communication_by_kind",
    (
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("phase", "str?", "", "forward, backward or optimizer."),
        Column("group", "str?", "", "Parallelism of the group, else its description."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("total_ns", "float", "ns", "Mean time a step."),
        Column("exposed_ns", "float", "ns", "Mean time a step that no compute covers."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
)
CLOCK = Table(
    "clock",
    (
        _RANK,
        Column("method", "str", "", "probe: measured while recording; none: taken as it is."),
        Column("offset_ns", "int", "ns", "This rank's clock minus the reference's; t_run = t_rank - offset."),
        Column("drift_ppm", "float?", "ppm", "Change of the offset over time; null when unknown."),
        Column("error_ns", "int?", "ns", "Half-width of the uncertainty; null when unknown."),
    ),
)
BUCKET_MAP = Table(
    "bucket_map",
    (
        Column("module", "str", "", "Name of the DDP module."),
        Column("index", "int", "", "Index of the bucket, in order of launch."),
        Column("size_bytes", "int", "bytes", "Size of the bucket."),
        Column("dtype", "str", "", "Data type of its gradients."),
        Column("parameters", "list", "", "Qualified names of its parameters."),
    ),
)
TABLES: tuple[Table, ...] = (RANKS, STEPS, COMMUNICATION, COMMUNICATION_BY_KIND, CLOCK, BUCKET_MAP)
