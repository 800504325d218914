"""Which form the file of another tracer has, and its operations."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from tracekit.analysis.operation_tables.formats.megascan import RANK_FILE, is_megascan
from tracekit.analysis.operation_tables.formats.megatron_timers import is_timer_log
from tracekit.analysis.operation_tables.formats.straggler_analysis import COLUMNS
from tracekit.errors import InputError

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
            return "timers" if is_timer_log(path.read_text(errors="replace")) else None
    except OSError:
        return None
    return None


def read_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV file, as texts, or of a Parquet file. Raises InputError when it cannot be read."""
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: no such file", hint="give a Parquet or CSV file of operations")
    try:
        if path.name.lower().endswith(".parquet"):
            return pd.read_parquet(path, engine="pyarrow")
        separator = max(_SEPARATORS, key=_header(path).count)
        return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, skipinitialspace=True)
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet takes pyarrow", hint="give a CSV file, or: pip install 'torch-tracekit[parquet]'"
        ) from None
    except (OSError, ValueError, EOFError) as error:  # pyarrow's errors and pandas' are one of the first two
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason})", hint="give a Parquet or CSV file") from None


def _header(path: Path) -> str:
    stream: IO[str]
    with (
        gzip.open(path, "rt", errors="replace") if path.name.endswith(".gz") else path.open(errors="replace") as stream
    ):
        return stream.readline()


def is_of_straggler_analysis(frame: pd.DataFrame) -> bool:
    """Return whether a table has all columns of ByteDance's StragglerAnalysis."""
    return set(COLUMNS) <= set(frame.columns)
