"""A report and a run in a notebook: one screen, and inert names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tracekit
from benchmarks.simulated import Cluster
from tests.builders import write_run
from tests.unit.explain.gpu_runs import gpu_rank
from tests.unit.render.files.reports import hostile_report, recorded_report
from tracekit.render.notebook.screen import rank_bars


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}, attrs
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(markup: str) -> _Elements:
    elements = _Elements()
    elements.feed(markup)
    elements.close()
    assert elements.open == []
    return elements


def test_a_report_shows_the_verdict_and_a_bar_a_rank() -> None:
    report = recorded_report()
    shown = parsed(report._repr_html_())
    assert "3 steps of 181.3 ms" in shown.text
    assert "rank 1 computes 13% longer than its peer" in shown.text
    assert "Saves 20.2 ± 0.2 ms a step" in shown.text
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", report._repr_html_())]
    assert sum(widths) == pytest.approx(200, abs=2)  # 100 % for each of two ranks, less parts that are hardly any


@pytest.mark.parametrize("ranks", [2, 40])
def test_one_screen_is_enough_for_any_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    report = tracekit.analyze(write_run(tmp_path, [gpu_rank(rank, ranks) for rank in range(ranks)]))
    for markup in (report._repr_html_(), report.run._repr_html_()):
        shown = parsed(markup)
        assert markup.count("<tr>") <= 9
        assert len(markup) < 12_000
        assert (f"8 of {ranks} ranks" in shown.text or "32 more ranks" in shown.text) == (ranks > 8)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    report = hostile_report(tmp_path / "run")
    for markup in (report._repr_html_(), report.run._repr_html_()):
        shown = parsed(markup)
        assert "HYPERLINK" in shown.text
        assert not shown.tags - {"div", "b", "ol", "li", "br", "table", "caption", "tr", "th", "td", "span", "code"}
        assert not set(markup) & set("\x1b\u202e\r")


def test_the_repr_is_one_short_line(tmp_path: Path) -> None:
    report = hostile_report(tmp_path / "run")
    for text in (repr(report), repr(report.run)):
        assert text.isprintable()
        assert len(text) < 320
    assert "2 ranks, 3 steps of 0.1 ms" in repr(report)
    assert "2 of 2 ranks, gpu, 3 steps>" in repr(report.run)


def test_the_summary_is_the_screen_of_the_command() -> None:
    lines = recorded_report().summary().splitlines()
    assert len(lines) <= 24
    assert any("rank 1 computes 13% longer" in line for line in lines)
    assert lines[-1].startswith("Next: tracekit report ")


def test_the_shares_of_a_bar_are_those_of_the_mean_step() -> None:
    """GIVEN 600 ns of compute, 100 of idle time, 100 of waiting and 200 of transfer."""
    cluster = Cluster(2)
    for _ in cluster.steps(2):
        for rank in range(2):
            cluster.work(rank, compute=600 + 100 * rank, host=100)
        cluster.collective(range(2), transfer=200)
    first, last = rank_bars(cluster.run(), [0, 1])
    assert first.shares == pytest.approx((0.6, 0.3, 0.0, 0.1))
    assert last.shares == pytest.approx((0.7, 0.2, 0.0, 0.1))
