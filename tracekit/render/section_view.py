"""How a section of a report is shown: its JSON and its text, one file for each section in `render/sections/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tracekit.analysis.section import Result, Section
from tracekit.model.run import Run

__all__ = ["SectionView"]

R = TypeVar("R", bound=Result)


@dataclass(frozen=True, kw_only=True, eq=False)
class SectionView(Generic[R]):
    """What shows the results of one section.

    Attributes:
        json: returns plain values by their keys at the top of the JSON result.
        text: returns renderables for a terminal of that many columns; nothing where there is nothing to show.
        title: what a sentence calls the section; None for its name.
        null_keys: keys that are null in the JSON result where the section was asked for and there is no result.
    """

    section: Section[R]
    json: Callable[[R], Mapping[str, Any]]
    text: Callable[[R, Run, int], list[object]]
    title: str | None = None
    null_keys: tuple[str, ...] = ()
