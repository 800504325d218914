"""No two statements of a result contradict each other, on runs whose cause is known and on all others at hand.

Statements are compared through ids and numbers of the JSON result, of which every sentence is made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.components import REAL_TRACES
from tests.places import DATA, ROOT
from tracekit.api import analyze
from tracekit.findings.thresholds import REPLAY_ERROR
from tracekit.render.json_result import result_json
from tracekit.render.terminal import terminal_text

Result = dict[str, Any]

RECORDED = ("ddp_slow_rank", "h100_context", "seed/pipes/two_replicas", "seed/server/plain", "seed/server/srv30")
REAL = ("dlrm_8xV100", "two_of_128", "gloo_rank34_of_300", "h200_shared/ep2_torch")
REPORTS = sorted(path.parent.name for path in (ROOT / "reports").glob("*/summary.json"))
SLOW = {"straggler", "late-in-some-steps", "slow-peer"}
NAMES = [
    *(f"reports/{name}" for name in REPORTS),
    *(f"data/{name}" for name in RECORDED),
    *(pytest.param(f"traces/{name}", marks=pytest.mark.long) for name in REAL),
]


@cache
def analysed(folder: Path) -> tuple[Result, str]:
    """Return the JSON result of a run, and its first screen."""
    report = analyze(str(folder), cache=False)
    return json.loads(result_json(report)), terminal_text(report, extent="answer")


@pytest.fixture(params=NAMES)
def stated(request: pytest.FixtureRequest) -> tuple[Result, str]:
    kind, _, name = request.param.partition("/")
    if kind == "reports":
        folder = ROOT / "reports" / name
        return json.loads((folder / "summary.json").read_text()), (folder / "terminal.txt").read_text()
    if kind == "traces" and "TRACEKIT_REAL_TRACES" not in os.environ:
        pytest.skip(f"needs {REAL_TRACES}: set TRACEKIT_REAL_TRACES to the folder that holds them")
    return analysed(DATA / name if kind == "data" else Path(os.environ["TRACEKIT_REAL_TRACES"], name))


def findings_come_in_the_order_of_their_savings(result: Result, screen: str) -> None:
    """What saves more than its error comes first, the largest first, and upper bounds behind."""
    ranked = [finding for finding in result["findings"] if finding["severity"] != "error"]
    sure_ns = [(f["saving_ns"] or 0) - (f["saving_error_ns"] or 0) for f in ranked if f["saving_ns"]]
    assert [saving for saving in sure_ns if saving > 0] == sorted((s for s in sure_ns if s > 0), reverse=True)
    is_bound = ["bound_ns" in finding["evidence"] for finding in ranked]
    saves = [bool(finding["saving_ns"]) and not bound for finding, bound in zip(ranked, is_bound, strict=True)]
    assert True not in is_bound or True not in saves[is_bound.index(True) :]
    assert not any(bound and finding["saving_ns"] for bound, finding in zip(is_bound, ranked, strict=True))


def a_saving_is_that_of_the_table_of_changes(result: Result, screen: str) -> None:
    """The first finding saves what the table says of its change. Later ones save what is left, so all fit in a step."""
    whatif = result["whatif"] or {"fix": [], "measured_step_ns": 0}
    changes = {row["what"]: row for row in whatif["fix"]}
    changed = [finding for finding in result["findings"] if finding["saving_ns"] and "change" in finding["evidence"]]
    rows = [changes[finding["evidence"]["change"]] for finding in changed]
    assert [f["saving_ns"] for f in changed[:1]] == [row["saves_ns_per_step"] for row in rows[:1]]
    assert sum(finding["saving_ns"] for finding in changed) <= 1.01 * whatif["measured_step_ns"]
    assert all(row["ranks"] in ([], finding["ranks"]) for row, finding in zip(rows, changed, strict=True))


def buckets_are_advised_as_their_replay_says(result: Result, screen: str) -> None:
    """Neither a smaller bucket nor another size is advised that the table of sizes says costs time."""
    rows = result["bucket_whatif"]
    saves_ns = {row["bucket_cap_mb"]: row["saving_ns"] for row in rows}
    present_mb = next((row["bucket_cap_mb"] for row in rows if row["present"]), 0.0)
    smaller = [saving_ns for cap_mb, saving_ns in saves_ns.items() if cap_mb < present_mb]
    for finding in result["findings"]:
        if finding["id"] == "ddp-last-reductions":
            assert finding["evidence"]["smaller_saves_ns"] == max(smaller, default=None)
        if finding["id"] == "ddp-bucket-size":
            assert saves_ns[finding["evidence"]["bucket_cap_mb"]] == max(saves_ns.values()) > 0


def ranks_are_missing_in_all_statements_or_in_none(result: Result, screen: str) -> None:
    run, notes = result["run"], {note["id"] for note in result["notes"]}
    assert ("missing-rank" in notes) == bool(run["missing_ranks"])
    assert not set(run["missing_ranks"]) & set(run["ranks"])
    if match := re.search(r"^(\d+) of (\d+) ranks", screen, re.MULTILINE):
        there, of = map(int, match.groups())
        assert there == len(run["ranks"])
        assert (there < of) == bool(run["missing_ranks"]) or run["selected_ranks"]
    for finding in result["findings"]:
        evidence = finding["evidence"]
        assert evidence.get("recorded", 0) <= evidence.get("members", 0) if "recorded" in evidence else True
        if evidence.get("recorded", 0) < evidence.get("members", 0):
            assert run["missing_ranks"] or run["unmeasured_ranks"]


def a_replay_that_is_off_makes_nothing_sure_and_is_said(result: Result, screen: str) -> None:
    error = (result["whatif"] or {"replay_error": 0.0})["replay_error"]
    replayed = [f for f in result["findings"] if "change" in f["evidence"] or "bound_ns" in f["evidence"]]
    if abs(error) <= REPLAY_ERROR:
        return
    assert [finding["id"] for finding in replayed if finding["certainty"] == "sure"] == []
    assert {finding["evidence"]["replay_error"] for finding in replayed} <= {error}
    assert not replayed or f"{abs(error):.0%}" in screen


def whoever_is_slow_is_so_in_all_statements(result: Result, screen: str) -> None:
    """The finding, the verdict, the causes of the step and the changes name the same ranks."""
    verdict = result["stragglers"] or {"certainty": None}
    named = [finding for finding in result["findings"] if finding["id"] in SLOW]
    if verdict["certainty"] is not None and named:
        of_verdict = verdict["ranks"] or [verdict["rank"]]
        assert of_verdict in [finding["ranks"] for finding in named]
        assert {f["certainty"] for f in named if f["ranks"] == of_verdict} <= {verdict["certainty"], "likely"}
    causes = (result["diagnosis"] or {"causes": []})["causes"]
    late = [row for row in causes if row["cause"].startswith("slow_") and row["ranks"]]
    if named and late:
        assert max(late, key=lambda row: row["time_ns"])["ranks"] in [finding["ranks"] for finding in named]


def causes_and_findings_share_out_one_step(result: Result, screen: str) -> None:
    diagnosis = result["diagnosis"]
    if diagnosis is None:
        return
    assert sum(row["time_ns"] for row in diagnosis["causes"]) == diagnosis["step_ns"]
    claimed = [(f["time_ns"] or 0) + f["evidence"].get("behind_ns", 0) for f in result["findings"]]
    assert sum(claimed) <= 1.01 * diagnosis["step_ns"]


def phases_of_ranks_are_those_of_their_steps(result: Result, screen: str) -> None:
    """On a GPU rank, phases are by device: their idle time, which a host has none of, is that of the rank's steps."""
    steps = {row["rank"]: row for row in result["ranks"]}
    parts = (result["phases"] or {"parts": []})["parts"]
    for rank in {row["rank"] for row in parts}:
        for name in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"):
            assert sum(row[name] for row in parts if row["rank"] == rank) == steps[rank][name]


STATEMENTS = [
    findings_come_in_the_order_of_their_savings,
    a_saving_is_that_of_the_table_of_changes,
    buckets_are_advised_as_their_replay_says,
    ranks_are_missing_in_all_statements_or_in_none,
    a_replay_that_is_off_makes_nothing_sure_and_is_said,
    whoever_is_slow_is_so_in_all_statements,
    causes_and_findings_share_out_one_step,
    phases_of_ranks_are_those_of_their_steps,
]


@pytest.mark.parametrize("agree", STATEMENTS, ids=lambda agree: agree.__name__)
def test_no_two_statements_contradict_each_other(
    stated: tuple[Result, str], agree: Callable[[Result, str], None]
) -> None:
    agree(*stated)
