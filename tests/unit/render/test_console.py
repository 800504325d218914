"""The headline of a run: at most three lines of 80 characters, with the median and the range of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.exchanges import rank, run_of
from tracekit.explain.configuration import CONFIGURATION
from tracekit.model.metadata import Settings
from tracekit.model.run import LeftOutStep, OtherRun, Run
from tracekit.render.console import headline

MS = 1_000_000


def run_with(lengths_ms: Sequence[float], ranks: int = 2, **others: Any) -> Run:
    summaries = []
    for number in range(ranks):
        steps, start_ns = [], 0
        summary = rank(number, steps=range(3, 3 + len(lengths_ms)))
        for step, length_ms in zip(summary.steps, lengths_ms, strict=True):
            steps.append(replace(step, start_ns=start_ns, step_ns=round(length_ms * MS)))
            start_ns += steps[-1].step_ns
        summaries.append(replace(summary, steps=tuple(steps)))
    return run_of(summaries, **others)


def lines(run: Run) -> list[str]:
    return headline(run, width=80).plain.splitlines()


@pytest.mark.parametrize(
    ("lengths_ms", "expected"),
    [
        ((204.9, 199.7, 196.2, 199.7), "4 steps of 199.7 ms (median; 196.2 to 204.9)"),
        ((15.1,), "1 step of 15.1 ms"),
        ((0.5, 0.25), "2 steps of 0.375 ms (median; 0.250 to 0.500)"),
        ((12_345.6, 12_300), "2 steps of 12,323 ms (median; 12,300 to 12,346)"),
        ((), "no step that all ranks completed"),
    ],
)
def test_steps_are_shown_by_median_and_range(lengths_ms: tuple[float, ...], expected: str) -> None:
    assert lines(run_with(lengths_ms))[2] == expected


def test_other_runs_of_the_folder_are_one_line_with_their_number() -> None:
    """GIVEN two other runs, one of them with two attempts, and another attempt of this run."""
    others = [OtherRun(run_id=run_id, attempt=i, ranks=2, start_ns=None) for i, run_id in enumerate("aabc")]
    assert "1 of 3 runs" in lines(run_with((15.1,), run_id="c", other_runs=tuple(others)))[3]
    assert len(lines(run_with((15.1,), run_id="c", other_runs=tuple(others[3:])))) == 3


def test_the_headline_has_three_lines_of_the_terminal_for_any_run() -> None:
    """GIVEN 1024 ranks, three kinds of devices, six kinds of parallelism, and a path of 150 characters."""
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X")
    run = run_with((1199.7, 1182.5, 1204.9, 1190), ranks=1024, paths=("runs/" + "folder/" * 20 + "last",))
    strategies = ("cp", "ddp", "ep", "fsdp2", "pp", "tp")
    ranks = tuple(
        replace(summary, device_name=names[i % 3], strategies=strategies) for i, summary in enumerate(run.ranks)
    )
    left_out = (LeftOutStep(step=2, step_ns=12_100_000_000),)

    actual = lines(replace(run, ranks=ranks, left_out=left_out))

    assert len(actual) == 3
    assert max(map(len, actual)) <= 80
    assert actual[0].startswith("runs/folder/")
    assert actual[0].endswith("last, run run-1")
    assert actual[1] == "1024 of 1024 ranks · CPU · cp + ddp + ep + fsdp2 + pp + tp"


COMPILED = Settings(component="compile", values={})


def of_precision(name: str, dtype: str | None, component: str = "precision") -> Settings:
    return Settings(component=component, values={name: dtype})


def test_number_formats_stand_alone_where_nothing_is_parallel() -> None:
    run = run_with((1,))
    ranks = tuple(s.with_part(CONFIGURATION, (of_precision("autocast", "bfloat16"), COMPILED)) for s in run.ranks)
    assert lines(replace(run, ranks=ranks))[1].endswith(" · bf16, compiled")


def test_a_run_folder_that_has_the_name_of_its_run_is_named_once() -> None:
    assert lines(run_with((60, 61), paths=("runs/run-1",)))[0] == "runs/run-1"


def test_a_selection_and_an_attempt_are_named() -> None:
    run = run_with((60, 61), paths=("runs",), selected_ranks=(0, 1, 5), attempt=2)

    assert lines(run)[:2] == ["runs, run run-1, attempt 2", "2 of 3 selected ranks · CPU"]
