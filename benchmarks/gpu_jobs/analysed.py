"""Hand a simulated job to tracekit without writing files: the only module here that imports tracekit."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from tracekit.loading.load import assemble
from tracekit.loading.options import SummaryOptions
from tracekit.loading.summarize import summarize
from tracekit.model.run import Run
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.files.discover import Discovery
from tracekit.read.files.grouping import RunFiles
from tracekit.report.report import Report, analyze, wanted_sections


@dataclass(frozen=True)
class InMemory:
    """A file's content in place of its path."""

    name: str
    content: bytes

    def open(self, mode: str = "rb") -> BinaryIO:
        return io.BytesIO(self.content)

    def absolute(self) -> InMemory:
        return self

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def __str__(self) -> str:
        return self.name


def run_of(traces: Mapping[int, bytes], only: str | Iterable[str] | None = None) -> Run:
    """Return what `tracekit.load` returns for files with this content, given by rank."""
    options = SummaryOptions(sections=wanted_sections(only))
    outcomes: list[RankSummary | RankFailure] = []
    for rank, content in traces.items():
        path = cast(Any, InMemory(f"rank{rank}.json", content))
        outcomes.append(summarize(rank, [path], options))
    files = RunFiles(run_id=None, attempt=0, world_size=None, ranks={}, start_ns=None)
    run = assemble(["simulated"], Discovery(chosen=files), outcomes, None)
    return replace(run, sections=options.sections)


def report_of(traces: Mapping[int, bytes], only: str | Iterable[str] | None = None) -> Report:
    """Return what `tracekit.analyze` returns for files with this content, given by rank."""
    return analyze(run_of(traces, only), only=only)
