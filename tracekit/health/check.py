"""What a check is, what it looks at, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tracekit.model.events import Bool, DecodedTrace
from tracekit.model.notes import Severity
from tracekit.rank.lanes import Lanes
from tracekit.rank.steps import StepWindows

Scope = Literal["rank", "steps", "note"]
"""What a check may exclude: the rank, some of its steps, or nothing."""

NO_TIMES = "its times are n/a and join no comparison"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """What a check found.

    Attributes:
        text: the note, without the name of the file; empty: there is none if steps that count are left.
        reason: why the rank has no times if it is excluded, or if none of its steps is left.
        steps: the step windows that do not count, bool [s]; None: the check's scope tells.
        detail: follows either text, in brackets.
        rank: which it is about, where ranks are compared.
    """

    text: str = ""
    reason: str = ""
    steps: Bool | None = None
    detail: str = ""
    severity: Severity = "warning"
    rank: int | None = None


@dataclass(frozen=True)
class Check(Generic[T]):
    """One reason for doubt.

    Attributes:
        id: the kind of its notes.
        find: returns what it finds in a `T`.
        text: what it looks for, for the documentation.
        remedy: what a person can do; it ends the note of a rank that is excluded.
    """

    id: str
    scope: Scope
    find: Callable[[T], Iterable[Doubt]]
    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What checks of one recording look at: a decoded trace and its lanes.

    Attributes:
        masked: the step windows that earlier checks excluded, bool [s].
    """

    trace: DecodedTrace
    lanes: Lanes
    masked: Bool

    @property
    def windows(self) -> StepWindows:
        return self.lanes.windows

    @property
    def serves_only(self) -> bool:
        """Return whether the process served remote calls and has no steps of its own."""
        metadata = self.trace.header.metadata
        return metadata is not None and metadata.rpc is not None and not metadata.steps
