"""What a section provides: the parts that it keeps of each rank, its result over all ranks, and its tables.

`explain/sections.py` lists the sections. Their columns say how the tables look. docs/add-an-analysis.md adds a section
step by step.

A `Guard` runs each analysis over ranks. An error of tracekit's own costs that analysis, and no other.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from tracekit.errors import InputError, OutputError, UsageError
from tracekit.findings.finding import Finding
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.summary import Part, RankSummary
from tracekit.model.table import FilledTable, Rows, Table
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.version import __version__

T = TypeVar("T")
U = TypeVar("U")

_PACKAGE = Path(__file__).parents[1]


class Guard:
    """Runs analyses, and notes which of them an error has ended."""

    def __init__(self) -> None:
        self._lost: dict[str, list[str]] = {}  # names of analyses, by the error that ended them

    def run(self, name: str, otherwise: U, function: Callable[..., T], *arguments: object) -> T | U:
        """Return `function(*arguments)`; `otherwise` after an error, which becomes a note.

        Errors of the user pass. With TRACEKIT_DEBUG=1 every error does, so that its traceback can be seen.
        """
        try:
            return function(*arguments)
        except (UsageError, InputError, OutputError):
            raise
        except Exception as error:
            if os.environ.get("TRACEKIT_DEBUG", "0") not in {"", "0"}:
                raise
            self._lost.setdefault(_describe(error), []).append(name)
            return otherwise

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return a note for each error, with what to report."""
        return tuple(
            Note(id="internal-error", severity="error", text=f"{cause}; left out: {', '.join(names)}")
            for cause, names in self._lost.items()
        )


@dataclass(frozen=True, kw_only=True)
class KnownWork:
    """What the user knows of the work and the trace does not show.

    Attributes:
        flops_per_step: floating-point operations of the model, per step and rank.
        peak_flops_per_s: the most that one device can do.
    """

    flops_per_step: float | None = None
    peak_flops_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Why there is no result, or no number.

    Attributes:
        reason: one sentence without a full stop.
        expected: this is normal, such as a run without a pipeline, and no lack of the recording.
    """

    reason: str
    expected: bool = False


@runtime_checkable
class Result(Protocol):
    """What an analysis returns: a frozen dataclass whose tables are `Frame` fields."""

    @property
    def findings(self) -> tuple[Finding, ...]: ...


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, kw_only=True, eq=False)
class AnalysisInput:
    """The input of all analyses of one report.

    Attributes:
        known_work: FLOPs a step and peak FLOP/s, as the user gave them.
        wanted: names of the sections that were asked for.
        guard: keeps an error in one section from costing the others.
    """

    run: Run
    wanted: frozenset[str]
    known_work: KnownWork | None = None
    guard: Guard = field(default_factory=Guard)
    _results: dict[Any, Any] = field(default_factory=dict)

    def once(self, function: Callable[[Run], T]) -> T:
        """Return `function(run)`. It is called only the first time, since several sections may read its result."""
        if function not in self._results:
            self._results[function] = function(self.run)
        result: T = self._results[function]
        return result

    def result(self, section: Section[R]) -> R | Unavailable:
        """Return the result of a section, which may be asked for by another. It is analysed only the first time.

        A section that asks for another one's result also `reads` its parts.
        """
        if section.name not in self._results:
            lost = Unavailable(reason="an error in tracekit, which the notes name")
            self._results[section.name] = self.guard.run(f"section {section.name}", lost, self._analyze, section)
        result: R | Unavailable = self._results[section.name]
        return result

    def _analyze(self, section: Section[R]) -> R | Unavailable:
        result = section.analyze(self)
        if not isinstance(result, Unavailable):
            _ = result.findings  # an error in them is one of the section
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Section(Generic[R]):
    """One question of a report.

    Attributes:
        name: as it is typed after `--section`.
        analyze: returns the result over all ranks, or why there is none.
        reads: the parts of a rank's summary that `analyze` needs; other sections may provide them.
        keeps: the parts that this section provides. Each has the function that makes it in a worker, from one
            recording; `Part.merge` merges the values of several recordings.
        notes: returns what a reader must know of the input, even if the section is not asked for. Its second argument
            says whether all ranks of the run were selected.
        notes_read: the parts that `notes` needs.
        waits: returns, in a worker, the `NamedWait`s that this section reports on; they become one part.
        tables: the tables of the result, whose columns JSON and DataFrames have.
    """

    name: str
    analyze: Callable[[AnalysisInput], R | Unavailable]
    reads: tuple[Part[Any], ...] = ()
    keeps: Mapping[Part[Any], Callable[[RecordedSteps], Any]] = field(default_factory=dict)
    notes: Callable[[Sequence[RankSummary], bool], list[Note]] | None = None
    notes_read: tuple[Part[Any], ...] = ()
    waits: Callable[[RecordedSteps], tuple[Any, ...]] | None = None
    tables: tuple[Table, ...] = ()


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    last = frames[-1]  # there is one: the guard's own
    where = f"{Path(last.filename).relative_to(_PACKAGE).as_posix()}, line {last.lineno}"
    what = f"a bug in tracekit {__version__} ({type(error).__name__}: {error}; {where})"
    return f"{what}: report what TRACEKIT_DEBUG=1 shows"


@dataclass(frozen=True, kw_only=True)
class TableResult:
    """The result of a section that has one table, which has its name."""

    table: FilledTable
    findings: tuple[Finding, ...] = ()


def table_section(table: Table, analyze: Callable[[Run], tuple[Rows, Sequence[Finding]]]) -> Section[TableResult]:
    """Return the section of one table: `analyze` returns its rows, and what is said of them."""

    def result(given: AnalysisInput) -> TableResult:
        rows, findings = analyze(given.run)
        return TableResult(table=table.fill(rows), findings=tuple(findings))

    return Section(name=table.name, analyze=result, tables=(table,))
