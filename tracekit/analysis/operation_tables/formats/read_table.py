"""Which form the file of another tracer has, and its operations."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracekit.analysis.operation_tables.formats.megascan import RANK_FILE, is_megascan
from tracekit.analysis.operation_tables.formats.megatron_timers import TIMER_HEADS
from tracekit.analysis.operation_tables.formats.names import SHOWN_COLUMNS, known_name
from tracekit.analysis.operation_tables.formats.straggler_analysis import COLUMNS
from tracekit.analysis.operation_tables.formats.table_limits import require_within
from tracekit.analysis.operation_tables.formats.texts import has_any, read_bytes
from tracekit.errors import InputError
from tracekit.limits import limits

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableForm", "form_of", "is_of_straggler_analysis", "read_frame"]

TableForm = Literal["columns", "timers", "megascan"]
"""columns: a CSV or Parquet file. timers: a log of Megatron-LM. megascan: a trace of MegaScan, or a folder of them."""

_COLUMNS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
_LOGS = (".log", ".txt", ".out")
_SEPARATORS = ",;\t|"
_HEAD_BYTES = 1 << 14


def form_of(path: Path) -> TableForm | None:
    """Return the form of a table of operations; None for anything else, such as a recorded run."""
    name = path.name.lower()
    if name.endswith(_COLUMNS):
        return "columns"
    try:
        if path.is_dir():
            return "megascan" if any(RANK_FILE.fullmatch(file.name) for file in path.iterdir()) else None
        if name.endswith(".json") and path.is_file():
            with path.open(errors="replace") as stream:
                return "megascan" if is_megascan(stream.read(_HEAD_BYTES)) else None
        if name.endswith(_LOGS) and path.is_file():
            return "timers" if has_any(path, TIMER_HEADS) else None
    except OSError:
        return None
    return None


def read_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV file, as texts, or of a Parquet file.

    Columns that no operation has are left out. Raises InputError when it cannot be read, or is beyond a limit.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="give a Parquet or CSV file of operations")
    return _frame_of_parquet(path) if path.name.lower().endswith(".parquet") else _frame_of_csv(path)


def _frame_of_csv(path: Path) -> pd.DataFrame:
    content = read_bytes(path)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path}: its text is UTF-16", hint="save it as UTF-8")
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    reader = None
    try:
        first = next((line for line in lines if line.strip()), "")
        separator = max(_SEPARATORS, key=first.count)
        lines.seek(0)
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        return _frame_of_rows(path, reader)
    except UnicodeDecodeError:
        raise InputError(f"{path}: its text is not UTF-8", hint="save it as UTF-8") from None
    except csv.Error as error:
        where = f"line {reader.line_num}" if reader is not None else "line 1"
        what = next(
            (ours for theirs, ours in _CSV_ERRORS.items() if theirs in str(error)), "it is no row of a CSV file"
        )
        raise InputError(f"{path}: {where}: {what}", hint="check the quotes of its fields") from None


_CSV_ERRORS = {
    "unexpected end of data": "a quote is not closed",
    "expected after": "a quote is inside a field",
    "field larger": f"a field is longer than {csv.field_size_limit():,} characters",
}
"""What `csv` says, and what we do."""


def _frame_of_rows(path: Path, reader: Iterator[list[str]]) -> pd.DataFrame:
    import pandas as pd

    rows = (row for row in reader if row not in ([], [""]))
    header = next(rows, None)
    if header is None:
        raise InputError(f"{path}: the file is empty", hint="give a Parquet or CSV file of operations")
    kept, most = _columns_of_operations(path, header), limits().table_operations
    columns: list[list[str]] = [[] for _ in kept]
    for count, row in enumerate(rows, 1):
        if count > most:
            require_within(path, "table_operations", count)
        if len(row) != len(header):
            if any(row[len(header) :]):
                what = f"row {count} has {len(row)} fields, and the header has {len(header)}"
                raise InputError(f"{path}: {what}", hint="quote fields that have a separator in them")
            row += [""] * (len(header) - len(row))
        for values, place in zip(columns, kept, strict=True):
            values.append(row[place])
    frame = pd.DataFrame(dict(enumerate(columns)), dtype=object)
    frame.columns = pd.Index([header[place] for place in kept], dtype=object)
    return frame


def _frame_of_parquet(path: Path) -> pd.DataFrame:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet takes pyarrow", hint="give a CSV file, or: pip install 'torch-tracekit[parquet]'"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        names, metadata = file.schema_arrow.names, file.metadata
        kept = [names[place] for place in _columns_of_operations(path, names)]
        require_within(path, "table_operations", metadata.num_rows)
        chunks = (metadata.row_group(i).column(j) for i in range(metadata.num_row_groups) for j in range(len(names)))
        of_kept = [chunk for chunk in chunks if chunk.path_in_schema in kept]
        require_within(path, "table_bytes", sum(chunk.total_uncompressed_size for chunk in of_kept))
        # One long text that all rows share stays one.
        texts = sorted({chunk.path_in_schema for chunk in of_kept if chunk.physical_type == "BYTE_ARRAY"})
        frame: pd.DataFrame = parquet.ParquetFile(path, read_dictionary=texts).read(columns=kept).to_pandas()
    except (OSError, ValueError, IndexError, ArrowException):
        raise InputError(f"{path}: it cannot be read as Parquet", hint="give a Parquet or CSV file") from None
    return frame.astype(dict.fromkeys(frame.select_dtypes("category").columns, object))


def _columns_of_operations(path: Path, names: Sequence[str]) -> list[int]:
    """Return the places of the columns to read: those that an operation can have, and the first, which errors name."""
    known = [known_name(name) for name in names]
    counts = Counter(name for name in known if name is not None)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(
            f"{path}: it has {counts[twice[0]]} columns {twice[0]}", hint="leave one, or rename the others"
        )
    return [
        place
        for place, (name, simplified) in enumerate(zip(names, known, strict=True))
        if simplified is not None or name in COLUMNS or place < SHOWN_COLUMNS
    ]


def is_of_straggler_analysis(frame: pd.DataFrame) -> bool:
    """Return whether a table has all columns of ByteDance's StragglerAnalysis."""
    return set(COLUMNS) <= set(frame.columns)
