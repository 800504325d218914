"""What a worker keeps of one rank: compact, picklable, without the events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from pathlib import PurePosixPath
from types import GenericAlias
from typing import Any, Generic, Literal, TypeVar

from tracekit.model.columnar import Columnar
from tracekit.model.communication import Collectives, GroupKey, Messages
from tracekit.model.metadata import ClockMeasurement, Mesh, PipelineLayout
from tracekit.model.names.pseudonyms import NAMES_OF_ANY_MACHINE
from tracekit.model.notes import Note

MARKED = ("steps", "spans")
"""How steps are known that need not be found: `RankSummary.steps_from`."""

T = TypeVar("T")
C = TypeVar("C", bound=Columnar)
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part(Generic[T]):
    """A named part of a rank's summary, which the sections of a report read.

    Attributes:
        name: unique among the parts.
        type: of its values, as the cache writes and reads them.
        empty: returns the value of a rank that shows nothing of it.
        merge: returns the values of one rank's recordings as one value. They are in order of time, at least one.
    """

    name: str
    type: Any
    empty: Callable[[], T]
    merge: Callable[[Sequence[T]], T]


def table_part(name: str, table: type[C]) -> Part[C]:
    """Return a part that is a table. That of a rank has the rows of all its recordings."""
    return Part(name=name, type=table, empty=table.empty, merge=table.concatenate)


def sums_part(name: str, row: type[S], *, key: Sequence[str], amounts: Sequence[str]) -> Part[tuple[S, ...]]:
    """Return a part that is rows of sums. Rows of a rank's recordings become one as `merge_sums` says."""
    return Part(
        name=name,
        type=GenericAlias(tuple, (row, ...)),
        empty=tuple,
        merge=lambda windows: merge_sums(chain.from_iterable(windows), key=key, amounts=amounts),
    )


def merge_sums(rows: Iterable[S], *, key: Sequence[str], amounts: Sequence[str]) -> tuple[S, ...]:
    """Return one row for those whose fields `key` are equal: the first, with the sums of the fields `amounts`.

    A sum with an unknown value is not known.
    """
    merged: dict[object, Any] = {}
    key_of = attrgetter(*key)
    for row in rows:
        row_key = key_of(row)
        seen = merged.get(row_key)
        if seen is None:
            merged[row_key] = row
        else:
            values = {name: (getattr(seen, name), getattr(row, name)) for name in amounts}
            added = {name: None if None in pair else sum(pair) for name, pair in values.items()}
            merged[row_key] = replace(seen, **added)
    return tuple(merged.values())


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """One step of one rank, in integer nanoseconds.

    `step_ns = compute_ns + exposed_comm_ns + exposed_copy_ns + idle_ns`, exactly.

    Attributes:
        data_ns: time in the wrapped data iterator; None if the loop does not use one.
        blocking_comm_ns: of the exposed communication that for which compute was seen to wait; None if it is not
            recorded what waits for what.
    """

    step: int
    start_ns: int
    complete: bool
    data_ns: int | None
    step_ns: int
    compute_ns: int
    comm_ns: int = 0
    overlapped_comm_ns: int = 0
    exposed_comm_ns: int = 0
    blocking_comm_ns: int | None = None
    exposed_copy_ns: int = 0
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class PipelineMembership:
    """The pipeline that a rank belongs to.

    Attributes:
        layout: its schedule and stages.
        ranks: of this pipeline, ascending; empty if they are not known.
        inferred: the layout comes from the order of actions, not from the capture.
    """

    layout: PipelineLayout
    ranks: tuple[int, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """What is kept of one rank, of all its recordings.

    Attributes:
        rank: global rank.
        host_id: processes with the same one share a clock.
        process_id: on its host, of the process that ran the steps; None if it is not known.
        serves_only: it trains nothing: an RPC worker without steps, or a rank that serves others by messages. Of its
            recording only the calls or messages are kept.
        unmeasured: why nothing is known of the rank's time, or nothing that can be compared: device records are lost,
            or its recording contradicts itself or those of the other ranks. None if it is known. Such a rank has no
            `steps`, collectives or messages, and parts only from metadata.
        has_backward: its recording shows a backward pass.
        steps_from: how its steps were found: "steps" (the probe's metadata), "spans" (ProfilerStep), "optimizer",
            "labels", "collectives" (their sequence repeats itself), "anchor" (named by the user), or "recording": there
            are none, and its window counts as one.
        first_step: the number that its first step was given, where no marks number them.
        recorded_steps: all of them, selected or not.
        steps: the selected ones.
        left_out: first steps that would be selected, and are left out as they are longer than the others.
        first_event_ns: on the rank's wall clock.
        profiler_options: those of `PROFILER_OPTIONS` with which it was recorded.
        parts: what the wanted sections of a report read, by name; see `Part`.
    """

    rank: int
    world_size: int | None = None
    files: tuple[str, ...]
    run_id: str | None = None
    attempt: int = 0
    host: str | None = None
    host_id: str | None = None
    process_id: int | None = None
    device: Literal["gpu", "cpu"]
    device_name: str | None = None
    serves_only: bool = False
    unmeasured: str | None = None
    strategies: tuple[str, ...] = ()
    strategies_inferred: bool = True
    groups: tuple[GroupKey, ...] = ()
    mesh: Mesh | None = None
    pipeline: PipelineMembership | None = None
    clock: ClockMeasurement | None = None
    has_backward: bool = False
    steps_from: str = "steps"
    first_step: int = 0
    recorded_steps: tuple[int, ...]
    steps: tuple[StepParts, ...]
    left_out: tuple[StepParts, ...] = ()
    collectives: Collectives = field(default_factory=Collectives.empty)
    messages: Messages = field(default_factory=Messages.empty)
    event_count: int
    first_event_ns: int | None
    profiler_options: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    parts: Mapping[str, Any]

    @property
    def machine(self) -> str | None:
        """Return what identifies the rank's machine; None if it is not known. Processes of one machine share a clock.

        A host's name identifies it, unless any machine may have that name.
        """
        return self.host_id or (None if self.host in NAMES_OF_ANY_MACHINE else self.host)

    @property
    def file_name(self) -> str | None:
        """Return the name of its first file, for notes; None if it has none."""
        return PurePosixPath(self.files[0]).name if self.files else None

    @property
    def is_measured(self) -> bool:
        """Return whether the rank has steps whose time is known, complete or not: ranks are compared on these."""
        return not self.serves_only and self.unmeasured is None

    def __getitem__(self, part: Part[T]) -> T:
        """Return the rank's value of `part`. Raises KeyError if it was not kept for the wanted sections."""
        value: T = self.parts[part.name]
        return value

    def with_part(self, part: Part[T], value: T) -> RankSummary:
        """Return the summary with another value of `part`."""
        return replace(self, parts={**self.parts, part.name: value})


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """A rank of whose files none could be used.

    Attributes:
        internal_error: an error in tracekit caused it, not the files.
    """

    rank: int
    notes: tuple[Note, ...]
    internal_error: bool = False
