"""A damaged file beside eight good ranks, with the known answer, and ways to write one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.builders import TraceBuilder
from tests.damaged_runs.events import in_order_of_time
from tests.damaged_runs.good_run import BAD, rank_trace
from tests.damaged_runs.text import with_event
from tests.trace_text import Layout

Outcome = Literal["as undamaged", "excluded", "missing"]


@dataclass(frozen=True, kw_only=True)
class DamagedRun:
    """A damaged file and the known answer.

    Attributes:
        write: writes the file beside the good ranks; the path is `rank8.json` in their folder.
        bad_rank: what becomes of the rank; a tuple: its steps that count, which are as undamaged.
        says: a part of a note about the file; empty if nothing needs to be said.
        kind: of that note; empty if it depends on how much is read.
        file: the name of the file; empty if no note names one.
        is_defect: whether `--strict` ends with exit code 3.
    """

    write: Callable[[Path], object]
    bad_rank: Outcome | tuple[int, ...]
    says: str = ""
    kind: str = ""
    file: str = f"rank{BAD}.json"
    is_defect: bool = True


def of_trace(
    damage: Callable[[TraceBuilder], TraceBuilder], layout: Layout = "kineto", *, tail: bool = False
) -> Callable[[Path], object]:
    """A file of what `damage` makes of a good trace."""
    return lambda path: damage(rank_trace()).write(path, layout, tail=tail)


def of_text(damage: Callable[[bytes], bytes], *, suffix: str = "", ordered: bool = False) -> Callable[[Path], object]:
    """A file of what `damage` makes of a good trace's text; `ordered`: with its events in order of time."""

    def write(path: Path) -> None:
        trace = in_order_of_time(rank_trace()) if ordered else rank_trace()
        path.with_name(path.name + suffix).write_bytes(damage(trace.text()))

    return write


def with_one_event(text: str) -> Callable[[Path], object]:
    """One more event, on the stream of kernels in the first step."""
    place = '"cat": "kernel", "pid": 0, "tid": 7, '
    return of_text(lambda whole: with_event(whole, "{" + place + text + "}"))
