"""What Perfetto's UI shows of a merged trace when it opens: which pages, which tracks above them, and which time.

The UI takes this from the address of its page. It runs a list of commands (since v52), each of which applies to the
tracks whose names match a regular expression of JavaScript, and shows the time from `visStart` to `visEnd`.

    https://perfetto.dev/docs/visualization/commands-automation-reference
    https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.render.merged.derived_tracks import DERIVED_GROUP, track_name
from tracekit.render.merged.plan import RankPlan, RunPlan
from tracekit.render.slices import RUN_PAGE
from tracekit.report.report import Report
from tracekit.report.shown_ranks import ranks_to_show, step_to_show
from tracekit.report.step_picture import step_picture

_SHOWN_RANKS = 4
_MOST_ACTION_TRACKS = 16
_MARGIN = 50  # of a step that is shown, such a part of its length is shown before and after it
_SUFFIX = "( .*)?"  # of a name: stage and track row, and in Chrome's format the id of the process or thread
_ALWAYS_PINNED = (f"^findings{_SUFFIX}$", f"^steps{_SUFFIX}$")
# Few numbers alone: a file that somebody else wrote cannot choose which commands the UI runs.
_NOTED_RANKS = r"((?:\d{1,9},){0,31}\d{0,9})"
_NOTE = re.compile(
    f"ranks={_NOTED_RANKS} actions={_NOTED_RANKS} waits={_NOTED_RANKS} "
    r"time_ns=(?:(\d{1,19}),(\d{1,19}))?".encode()
)


@dataclass(frozen=True, kw_only=True)
class OpeningView:
    """How the UI shows a merged trace when it opens.

    Attributes:
        ranks: Ranks whose pages are open, in the order of the pages.
        acting: Ranks whose pipeline actions are pinned above all pages, from the top.
        waiting: Ranks whose waits are pinned below them.
        visible_ns: Start and end of the time to show, in the trace; None: all of it.
    """

    ranks: tuple[int, ...] = ()
    acting: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    visible_ns: tuple[int, int] | None = None

    @property
    def note(self) -> str:
        """The view as text, which a merged trace carries and `view_in` finds."""
        ranks, acting, waiting = (",".join(map(str, each)) for each in (self.ranks, self.acting, self.waiting))
        time_ns = ",".join(map(str, self.visible_ns or ()))
        return f"ranks={ranks} actions={acting} waits={waiting} time_ns={time_ns}"

    def later(self, shift_ns: int) -> OpeningView:
        """Return the view on a trace with the same tracks, of which all times are later by `shift_ns`."""
        if self.visible_ns is None:
            return self
        start_ns, end_ns = self.visible_ns
        return replace(self, visible_ns=(start_ns + shift_ns, end_ns + shift_ns))

    @property
    def pinned(self) -> tuple[str, ...]:
        """Patterns of names of tracks to pin above all pages, from the top."""
        of_ranks = (("actions", self.acting), ("waits", self.waiting))
        return (*_ALWAYS_PINNED, *(_pattern(shown, rank) for shown, ranks in of_ranks for rank in ranks))

    @property
    def expanded(self) -> str:
        """The pattern of names of the pages and groups to expand."""
        ranks = [f"rank {_any_of(self.ranks)}"] if self.ranks else []
        return f"^({'|'.join([RUN_PAGE, DERIVED_GROUP, *ranks])}){_SUFFIX}$"

    @property
    def page_arguments(self) -> dict[str, str]:
        """Arguments for the address of the UI's page, by name."""
        window: dict[str, str] = {}
        if self.visible_ns is not None:
            start_ns, end_ns = self.visible_ns
            window = {"visStart": str(start_ns), "visEnd": str(end_ns)}
        commands = [_command("ExpandTracksByRegex", self.expanded)]
        commands += [_command("PinTracksByRegex", pattern) for pattern in self.pinned]
        return window | {"startupCommands": json.dumps(commands, separators=(",", ":"))}


ANY_RUN = OpeningView()
"""What to show of a merged trace of which no more is known."""


def view_in(beginning: bytes) -> OpeningView:
    """Return the view that the first bytes of a merged trace carry; `ANY_RUN` if they carry none."""
    note = _NOTE.search(beginning)
    if note is None:
        return ANY_RUN
    ranks, acting, waiting = (tuple(map(int, filter(None, note[group].split(b",")))) for group in (1, 2, 3))
    visible_ns = None if note[4] is None else (int(note[4]), int(note[5]))
    return OpeningView(ranks=ranks, acting=acting, waiting=waiting, visible_ns=visible_ns)


def opening_view(plan: RunPlan, report: Report) -> OpeningView:
    """Return the view on what the first finding is about.

    The pages of at most four ranks are open, those of `ranks_to_show`. Pinned are the findings, the steps, all pipeline
    actions, and the waits of the open ranks. If more than 16 ranks have actions, those of at most 16 ranks are pinned,
    from the pipelines of the open ranks. The time shown is the longest wait for whom the first finding blames, with
    as much before and after it; else its step.
    """
    pages = sorted(plan.ranks, key=lambda rank: rank.order)
    chosen = set(ranks_to_show(report, _SHOWN_RANKS))
    shown = [page for page in pages if page.summary.rank in chosen]
    return OpeningView(
        ranks=tuple(page.summary.rank for page in shown),
        acting=_acting(pages, chosen),
        waiting=tuple(page.summary.rank for page in shown if page.waits is not None and len(page.waits)),
        visible_ns=_visible_ns(plan, report),
    )


def _acting(pages: Iterable[RankPlan], shown: set[int]) -> tuple[int, ...]:
    """Return the ranks whose pipeline actions are pinned, in the order of their pages."""
    acting = [page.summary for page in pages if len(page.summary[ACTIONS])]
    if len(acting) > _MOST_ACTION_TRACKS:
        pipelines = [each.pipeline.ranks for each in acting if each.rank in shown and each.pipeline is not None]
        acting = [each for each in acting if any(each.rank in ranks for ranks in pipelines)] or acting
    return tuple(each.rank for each in acting[:_MOST_ACTION_TRACKS])


def _visible_ns(plan: RunPlan, report: Report) -> tuple[int, int] | None:
    """Return the time of the step to show, on all ranks, with a margin.

    It stays within the steps and so within the trace: the UI ignores a time that does not.
    """
    step, wait_ns = step_to_show(report), _wait_ns(report)
    every_ns: list[int] = []
    shown_ns: list[int] = []
    for page in plan.ranks:
        steps = page.summary.steps
        bounds_ns = np.array([(each.start_ns, each.start_ns + each.step_ns) for each in steps], dtype=np.int64)
        bounds_ns = page.clock.to_run(bounds_ns.reshape(-1)).reshape(-1, 2)
        every_ns += bounds_ns.reshape(-1).tolist()
        shown_ns += bounds_ns[[each.step == step for each in steps]].reshape(-1).tolist() if steps else []
    if not shown_ns:
        return None
    start_ns, end_ns = (min(shown_ns), max(shown_ns)) if wait_ns is None else wait_ns
    margin_ns = (end_ns - start_ns) // _MARGIN if wait_ns is None else end_ns - start_ns
    return max(start_ns - margin_ns, min(every_ns)), min(end_ns + margin_ns, max(every_ns))


def _wait_ns(report: Report) -> tuple[int, int] | None:
    """Return start and end, on the run's clock, of the wait for whom the first finding blames; None without one."""
    picture = step_picture(report, _SHOWN_RANKS)
    arrow = None if picture is None else picture.arrow
    if picture is None or arrow is None or not report.findings or arrow.late_rank not in report.findings[0].concerned:
        return None
    return picture.begin_ns + arrow.start_ns, picture.begin_ns + arrow.end_ns


def _pattern(shown: str, rank: int) -> str:
    """Return the pattern of the tracks of a rank that show `shown`, of any stage and track row."""
    return f"^{track_name(shown, rank)}{_SUFFIX}$"


def _any_of(ranks: Iterable[int]) -> str:
    return f"({'|'.join(map(str, ranks))})"


def _command(name: str, pattern: str) -> dict[str, object]:
    return {"id": f"dev.perfetto.{name}", "args": [pattern, "name"]}  # a pattern of names, not of paths
