"""Recordings of the field whose files do not name their ranks, or have arguments that no JSON has."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit

COORDINATOR = "gpu-host_99.async_llm.1762000009000000000.pt.trace.json.gz"


@pytest.mark.parametrize(
    ("case", "ranks", "slow", "longer", "saving_ms", "left_out"),
    [
        ("names-of-ranks/brackets", 12, 10, 0.25, 1.5, ()),
        ("names-of-ranks/local_ranks", 4, 2, 0.23, 3.7, ()),
        ("names-of-ranks/k8s", 4, 2, 0.23, 3.7, ()),
        ("names-of-ranks/worker_rank", 4, 3, 0.25, 1.5, ()),
        ("processes-without-gpu/launchers", 2, 1, 0.28, None, ("libkineto.pt_6.json",)),  # and two more
        ("processes-without-gpu/coordinator", 4, 2, 0.22, 2.2, (COORDINATOR,)),
        ("inf-in-arguments/run", 4, 2, 0.23, 3.7, ()),
    ],
)
def test_all_ranks_are_there_and_the_slow_one_is_named(
    cases: Path, case: str, ranks: int, slow: int, longer: float, saving_ms: float | None, left_out: tuple[str, ...]
) -> None:
    report = tracekit.analyze(cases / case)
    run = report.run
    assert [summary.rank for summary in run.ranks] == list(range(ranks))
    assert (run.world_size, run.device, run.other_runs, run.missing_ranks) == (ranks, "gpu", (), ())
    assert tuple(note.file for note in run.notes if note.id == "no-rank" and note.text.endswith("left out")) == left_out
    assert sum(note.events_dropped for note in run.notes) == 0
    (finding,) = (finding for finding in report.findings if finding.id == "straggler")
    assert finding.evidence["ranks"] == [slow]
    assert finding.evidence["share_of_compute"] == pytest.approx(longer, abs=0.01)
    if saving_ms is not None:
        assert finding.certainty == "sure"
        assert (finding.saving_ns or 0) / 1e6 == pytest.approx(saving_ms, abs=0.1)


def test_ranks_are_named_otherwise(cases: Path) -> None:
    report = tracekit.analyze(cases / "names-of-ranks" / "k8s", ranks_from=r"_10(\d)\.")
    assert [summary.rank for summary in report.run.ranks] == [1, 2, 3, 4]
    assert [finding.evidence["ranks"] for finding in report.findings if finding.id == "straggler"] == [[3]]
    assert report.run.arguments[1:] == ["--ranks-from", r"_10(\d)\."]
    assert not [note for note in report.run.notes if note.id == "no-rank"]
