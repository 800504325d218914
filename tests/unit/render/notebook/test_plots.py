"""Pictures of sections: which there are, and that their lengths are the numbers of the tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tracekit
from tests.components import require_module
from tests.unit.render.files.reports import hostile_report, recorded_report
from tracekit.api import Report
from tracekit.errors import UsageError
from tracekit.explain.sections import SECTIONS
from tracekit.render.notebook.plots import draw_bars, label
from tracekit.render.palette import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

matplotlib, pyplot = require_module("matplotlib"), require_module("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _no_window() -> None:
    matplotlib.use("agg")


@pytest.fixture(scope="module")
def report() -> Report:
    return recorded_report()


def bar_ends(ax: Axes) -> dict[str, float]:
    """Return where the last bar of each row ends, by the label of the row."""
    rows = [text.get_text() for text in ax.get_yticklabels()]
    ends = dict.fromkeys(rows, 0.0)
    for bar in ax.patches:
        row = rows[round(bar.get_y() + bar.get_height() / 2)]
        ends[row] = max(ends[row], bar.get_x() + bar.get_width())
    return ends


def drawn(ax: Axes) -> Axes:
    ax.figure.canvas.draw()  # fails where a label cannot be drawn
    pyplot.close(ax.figure)
    return ax


WITHOUT_PICTURE = {"configuration", "servers"}


def test_every_section_but_a_few_has_a_picture(report: Report) -> None:
    assert set(dir(report.plot)) == set(SECTIONS) - WITHOUT_PICTURE
    with pytest.raises(AttributeError, match="no picture of 'configuration'; there are breakdown"):
        report.plot.configuration()


def test_the_bars_of_the_breakdown_are_as_long_as_the_steps(report: Report) -> None:
    ranks = report.breakdown.ranks
    expected = {f"rank {row.rank}": row.step_ns / row.steps / 1e6 for row in ranks.itertuples()}
    assert bar_ends(drawn(report.plot.breakdown())) == pytest.approx(expected)
    phases = report.phases.parts.groupby("rank")["total_ns"].sum()
    expected = {f"rank {rank}": phases[rank] / 3 / 1e6 for rank in (0, 1)}
    assert bar_ends(drawn(report.plot.phases())) == pytest.approx(expected)


def test_bars_have_the_colours_of_the_palette_and_waiting_is_an_outline(report: Report) -> None:
    labels = {box.get_label(): box for box in drawn(report.plot.breakdown()).containers}
    assert matplotlib.colors.to_hex(labels["compute"][0].get_facecolor()) == LOOKS["compute"].colour
    waited = {box.get_label(): box for box in drawn(report.plot.stragglers()).containers}["waited"][0]
    assert waited.get_facecolor()[3] == 0
    assert matplotlib.colors.to_hex(waited.get_edgecolor()) == LOOKS["waiting"].colour


def test_the_bars_of_what_if_are_the_savings(report: Report) -> None:
    expected = {change.what: change.saves_ns_per_step / 1e6 for change in report.whatif.changes}
    assert bar_ends(drawn(report.plot.whatif())) == pytest.approx(expected)


def test_buckets_are_drawn_from_ready_to_end(report: Report) -> None:
    times = report.buckets.times.groupby("index")["end_ns"].mean() / 1e6
    expected = {f"bucket {index}": end for index, end in times.items()}
    assert bar_ends(drawn(report.plot.buckets())) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["overlap", "kernels", "collectives", "stragglers", "critical_path", "diagnosis"])
def test_other_pictures_of_a_ddp_run_can_be_drawn(report: Report, name: str) -> None:
    ax = drawn(getattr(report.plot, name)())
    assert ax.patches or ax.collections


def test_hostile_names_can_be_drawn(tmp_path: Path) -> None:
    report = hostile_report(tmp_path / "run")
    for name in ("breakdown", "overlap", "diagnosis", "critical_path"):
        drawn(getattr(report.plot, name)())
    drawn(draw_bars(None, ["$\\frac{", "a\nb", "\x1b\u202e"], {"": [1.0, 2.0, 3.0]}, title="$x", unit="ms"))
    assert label("$\\frac{\n") == "\\$\\frac{"
    assert len(label("x" * 1000)) == 60


def test_where_there_is_nothing_to_draw_a_sentence_says_why(report: Report) -> None:
    with pytest.raises(UsageError, match="no picture of pipeline: no rank recorded actions of a pipeline"):
        report.plot.pipeline()
    with pytest.raises(UsageError, match="there is nothing to draw"):
        report.plot.fsdp()
    only = tracekit.analyze(report.run, only="breakdown")
    with pytest.raises(UsageError, match="the section was not asked for"):
        only.plot.overlap()


def test_without_matplotlib_a_picture_is_a_usage_error(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="need matplotlib") as error:
        report.plot.breakdown()
    assert "torch-tracekit[plot]" in error.value.hint
