"""HTA's `TraceAnalysis` on the columns that our decoder reads. This module imports HTA: see `package.import_bridge`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hta.configs.env_options as options_of_hta
import msgspec
from hta.common.trace import Trace
from hta.configs.parser_config import ParserConfig
from hta.trace_analysis import TraceAnalysis

from tracekit.errors import InputError, UsageError
from tracekit.hta.analyses import ArgumentColumn
from tracekit.hta.frame import RankColumns, rank_columns
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.model.run import Run, format_ranges
from tracekit.process_tuning import no_garbage_collection
from tracekit.read.decode.decoder import decode_written
from tracekit.read.files.discover import discover
from tracekit.read.files.storage import parse_path


class DecodedTraces(Trace):
    """HTA's container of traces, filled by our decoder."""

    pseudonyms: Pseudonyms | None = None

    def load_traces(self, include_last_profiler_step: bool | None = False, *_: Any, **__: Any) -> None:
        """Read all ranks, set their times to the first event of any, and keep the events of whole steps as HTA does.

        HTA keeps all events if there are less than two steps. Raises InputError when nothing in a file can be used.
        """
        if self.traces:
            return
        ranks = {rank: self._read(rank) for rank in sorted(self.trace_files)}
        self.min_ts = min(rank.columns["ts"].min() for rank in ranks.values())
        has_steps = sum("ProfilerStep" in text for text in self.symbol_table.get_sym_table()) > 1
        for number, rank in ranks.items():
            last = bool(include_last_profiler_step)
            rows = rank.rows_of_steps(self.min_ts, include_last_step=last) if has_steps else None
            self.traces[number] = rank.loaded_table(self.min_ts, rows)
        self.is_parsed = True

    def parse_multiple_ranks(self, ranks: list[int], *_: Any, **__: Any) -> None:
        """Read the traces of these ranks, in this process."""
        for rank in ranks:
            self.parse_single_rank(rank)

    def parse_single_rank(self, rank: int) -> None:
        """Read the trace of one rank into `traces`, `meta_data` and `symbol_table`.

        Raises InputError when nothing in its file can be used.
        """
        self.traces[rank] = self._read(rank).parsed_table()

    def _read(self, rank: int) -> RankColumns:
        written = decode_written(parse_path(self.trace_files[rank]), namer=self.pseudonyms)
        config = self.parser_config or ParserConfig.get_default_cfg()
        wanted = [ArgumentColumn(spec.name, spec.raw_name, spec.default_value) for spec in config.get_args()]
        rounded = not options_of_hta.disable_ns_rounding()
        self.meta_data[rank] = _top_level(written.keys)
        columns = rank_columns(written, wanted, self._symbol_ids, rounded=rounded)
        if not len(columns):
            raise InputError(f"{self.trace_files[rank]}: no event in it that HTA counts", hint="leave out its rank")
        return columns

    def _symbol_ids(self, texts: Iterable[str]) -> list[int]:
        texts = list(texts)
        self.symbol_table.add_symbols(texts)
        numbers = self.symbol_table.get_sym_index()
        return [numbers[text] for text in texts]

    def _normalize_trace_filenames(self) -> None:
        """Leave the names as they are: HTA would put its own folder before a URL."""

    def _validate_trace_files(self) -> bool:
        """Leave it to our decoder which files can be read."""
        return True


class DecodedAnalysis(TraceAnalysis):
    """HTA's `TraceAnalysis` of traces that are loaded."""

    def __init__(self, traces: DecodedTraces) -> None:
        self.t = traces


def analysis_of(
    source: Run | Sequence[str],
    *,
    run: str | None,
    attempt: int | None,
    ranks: Iterable[int] | None,
    include_last_step: bool,
    window: int,
) -> DecodedAnalysis:
    """Return HTA's analysis of a run, or of the run below some paths; see `tracekit.to_hta`."""
    if isinstance(source, Run):
        windows = {summary.rank: list(summary.files) for summary in source.ranks}
    else:
        chosen = discover(source, run=run, attempt=attempt).chosen
        windows = {rank: [str(file.path) for file in files] for rank, files in chosen.ranks.items()}
    files = _files_of(windows, ranks=ranks, window=window)
    pseudonyms = source.pseudonyms if isinstance(source, Run) else None
    return analysis_of_files(files, include_last_step=include_last_step, pseudonyms=pseudonyms)


def _files_of(chosen: Mapping[int, Sequence[str]], *, ranks: Iterable[int] | None, window: int) -> dict[int, str]:
    """Return the file of each rank. Raises UsageError when a rank or window is not there."""
    if ranks is not None:
        wanted = set(ranks)
        if missing := wanted - chosen.keys():
            raise UsageError(f"no rank {format_ranges(missing)} in the run", hint=f"there are {format_ranges(chosen)}")
        chosen = {rank: files for rank, files in chosen.items() if rank in wanted}
    files = {}
    for rank, windows in chosen.items():
        if not -len(windows) <= window < len(windows):
            raise UsageError(f"rank {rank} has no window {window}", hint=f"it has {len(windows)}, counted from 0")
        files[rank] = windows[window]
    return files


def analysis_of_files(
    files: Mapping[int, str], *, include_last_step: bool = False, pseudonyms: Pseudonyms | None = None
) -> DecodedAnalysis:
    """Return HTA's analysis of trace files by rank. Raises InputError when nothing in one of them can be used."""
    with no_garbage_collection():
        traces = DecodedTraces({rank: os.fspath(file) for rank, file in files.items()})
        traces.pseudonyms = pseudonyms
        traces.load_traces(include_last_profiler_step=include_last_step)
    return DecodedAnalysis(traces)


def _top_level(keys: Mapping[str, bytes]) -> dict[str, Any]:
    values = {}
    for key, text in keys.items():
        try:
            values[key] = msgspec.json.decode(text)
        except (ValueError, RecursionError):  # a key that cannot be read is as good as none
            continue
    return values
