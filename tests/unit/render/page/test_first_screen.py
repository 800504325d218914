"""The first screen of the HTML report: what ran, what to do about it, and what its step consists of."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from tests.places import ROOT
from tests.unit.render.page.jobs import SLOW_RANK, job, report_of
from tracekit.api import Report, analyze
from tracekit.explain.step_time.step_lengths import mean_step_ns, step_lengths
from tracekit.findings.finding import Finding
from tracekit.model.run import Run
from tracekit.render.json_result import result_dict
from tracekit.render.page.contract import FindingView, Header, StepView
from tracekit.render.page.first_screen import finding_views, header, step_view


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(job())


@pytest.fixture(scope="module")
def recorded() -> Report:
    """A run of two processes, whose second rank computes longer."""
    return analyze(ROOT / "tests" / "data" / "ddp_slow_rank")


def header_of(run: Run) -> Header:
    report = report_of(run)
    return header(report, result_dict(report))


def step_of(report: Report) -> StepView:
    return step_view(report, result_dict(report))


def view_of(report: Report, finding: Finding) -> FindingView:
    (view,) = finding_views(replace(report, findings=(finding,)))
    return view


def options_of(view: FindingView) -> dict[str, str]:
    command, verb, run, *options = shlex.split(view["open_command"])
    assert (command, verb, run) == ("tracekit", "open", "run")
    return dict(zip(options[::2], options[1::2], strict=True))


def test_the_header_says_what_ran_and_how_much_of_it_is_there() -> None:
    run = job(8, steps=4)
    run = replace(run, ranks=run.ranks[:6], clocks=run.clocks[:6], missing_ranks=(6, 7), collectives=())

    shown = header_of(run)

    assert shown["title"] == "run"
    assert shown["facts"][0].startswith("6 of 8 ranks")
    assert shown["facts"][1].startswith("4 steps of ")
    assert (shown["rank_count"], shown["missing"], shown["unmeasured"]) == (6, "6-7", None)
    assert (shown["step_count"], shown["steps"]) == (4, "0-3")
    assert shown["step_ns"] == step_lengths(run).median_ns  # type: ignore[union-attr]
    assert shown["overhead_text"] == "what recording cost was not measured"


def test_a_finding_filters_by_its_ranks_and_the_step_of_its_evidence(report: Report) -> None:
    (view, *_) = finding_views(report)
    (finding, *_) = result_dict(report)["findings"]

    waiting = finding["evidence"]["longest_wait"]["rank"]
    assert finding["ranks"] == [SLOW_RANK]
    assert view["ranks"][:2] == [SLOW_RANK, waiting]
    assert len(view["ranks"]) == 3  # and a typical one
    assert view["steps"] == [finding["evidence"]["longest_wait"]["step"]]
    assert view["section"] == "stragglers"
    assert view["text"].startswith(finding["text"])


def test_the_saving_of_a_finding_is_a_share_of_the_mean_step(recorded: Report) -> None:
    (view, *_), (finding, *_) = finding_views(recorded), recorded.findings

    assert finding.saving_ns is not None
    assert view["saving_share"] == finding.saving_ns / mean_step_ns(recorded.run)


def test_the_command_opens_the_step_of_the_finding(report: Report) -> None:
    (view, *_) = finding_views(report)

    assert options_of(view) == {"--steps": str(view["steps"][0])}


def test_of_many_ranks_the_command_opens_those_of_the_finding_and_others() -> None:
    options = options_of(finding_views(report_of(job(32)))[0])

    assert options["--ranks"] == "0-6,16"  # rank 5, the lowest, and the median
    assert set(options) == {"--ranks", "--steps"}


def test_the_command_is_one_for_a_shell() -> None:
    """GIVEN a path with blanks and a quote THEN a shell reads it as one argument."""
    run = replace(job(2), paths=("my runs/it's",))

    (view, *_) = finding_views(report_of(run))

    assert shlex.split(view["open_command"])[:3] == ["tracekit", "open", "my runs/it's"]


def test_a_finding_without_ranks_and_step_opens_the_typical_step(report: Report) -> None:
    view = view_of(report, Finding(id="straggler", severity="info", text="nothing stands out"))

    assert (view["ranks"], view["steps"], view["section"], view["saving_share"]) == ([], [], None, None)
    assert options_of(view) == {"--steps": "1"}


def test_a_finding_about_a_transfer_names_its_groups(report: Report) -> None:
    """GIVEN evidence with the name of a group, or its place THEN the groups of that name, or that one, are meant."""
    groups = tuple(replace(group, parallelism="tp") if len(group.ranks) == 2 else group for group in report.run.groups)
    named = replace(report, run=replace(report.run, groups=groups))
    evidence = {"group": "tp", "kind": "all_reduce", "phase": "backward", "section": "diagnosis"}

    view = view_of(named, Finding(id="straggler", severity="info", text="transfers", evidence=evidence))
    other = view_of(named, Finding(id="straggler", severity="info", text="transfers", evidence={"group": 3}))

    assert view["groups"] == [i for i, group in enumerate(groups) if len(group.ranks) == 2]
    assert (view["kind"], view["phase"], view["section"]) == ("all_reduce", "backward", "diagnosis")
    assert (other["groups"], other["kind"]) == ([3], None)


def test_markdown_shows_names_as_they_are(report: Report) -> None:
    """GIVEN a finding about a name full of marks THEN Markdown shows it literally and links to nobody."""
    view = view_of(report, Finding(id="straggler", severity="warning", text="<img> *a*_b_`c` [d](e) @team |f|"))

    line, _, *rest = view["markdown"].splitlines()
    assert line.startswith("**Finding** (step ")
    assert line.endswith("&lt;img\\> \\*a\\*\\_b\\_\\`c\\` \\[d\\](e) &#64;team \\|f\\|")
    assert rest == ["```sh", view["open_command"], "```"]


def test_each_change_of_the_waterfall_stands_alone(recorded: Report) -> None:
    whatif = result_dict(recorded)["whatif"]
    measured, replayed, *changes, ideal = step_of(recorded)["waterfall"]

    assert (measured["kind"], measured["to_ns"]) == ("measured", round(whatif["measured_step_ns"]))
    assert (replayed["kind"], replayed["to_ns"]) == ("replayed", round(whatif["replayed_step_ns"]))
    assert (ideal["kind"], ideal["to_ns"]) == ("ideal", round(whatif["ideal_step_ns"]))
    assert len(changes) == len(whatif["fix"]) > 0
    for row, change in zip(changes, whatif["fix"], strict=True):
        assert row["from_ns"] == replayed["to_ns"]
        assert row["from_ns"] - row["to_ns"] == row["saving_ns"] == change["saves_ns_per_step"]
        assert row["error_ns"] == change["error_ns"]


def test_a_delay_that_ranks_cause_is_shown_apart_from_work(report: Report) -> None:
    parts = {cause["label"]: (cause["part"], cause["ranks"]) for cause in step_of(report)["causes"]}

    assert parts["slow compute"] == ("delay", [SLOW_RANK])
    assert parts["compute"] == ("compute", [])
    assert parts["transfer"] == ("communication", [])
