"""Public traces whose results are known from independent tools, exact arithmetic, or their publishers."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.step_time.roofline import roofline
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.findings.finding import held
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.table import records
from tracekit.render.terminal import terminal_text
from tracekit.report.report import Report, analyze


def overlap_percent(run: Run) -> dict[int, float]:
    return {int(row["rank"]): 100 * row["overlap_ratio"] for row in _rank_rows(analyze(run))}


def _rank_rows(report: Report) -> list[dict[str, float]]:
    assert report.breakdown is not None
    return report.breakdown.ranks.to_dict("records")


def note(run: Run, kind: str) -> Note:
    (found,) = [note for note in run.notes if note.id == kind]
    return found


def test_dlrm_overlap_of_all_eight_ranks(real_traces: Path) -> None:
    """HTA and independent interval arithmetic agree on these figures, to a hundredth of a percentage point."""
    run = load(real_traces / "dlrm_8xV100")
    assert run.missing_ranks == ()
    expected = dict(enumerate([4.50, 2.47, 7.88, 3.31, 0.56, 0.64, 7.56, 9.51]))
    assert overlap_percent(run) == pytest.approx(expected, abs=0.01)
    for row in _rank_rows(analyze(run)):
        assert row["step_ns"] == row["compute_ns"] + row["exposed_comm_ns"] + row["exposed_copy_ns"] + row["idle_ns"]


def test_dlrm_collectives(real_traces: Path) -> None:
    """Every rank runs 5 all-to-all and 3 all-reduce kernels in its one step."""
    run = load(real_traces / "dlrm_8xV100")
    assert [(summary.device, [step.step for step in summary.steps]) for summary in run.ranks] == [("gpu", [10])] * 8
    for summary in run.ranks:
        counts: dict[str, int] = {}
        for row in summary[COMMUNICATION_SUMS]:
            counts[row.kind] = counts.get(row.kind, 0) + row.count
        assert counts == {"all_to_all": 5, "all_reduce": 3}


@pytest.mark.parametrize("missing", [None, 2, 6])
def test_dlrm_last_arrivals(real_traces: Path, missing: int | None) -> None:
    """Rank 7 is the last to arrive at 5 of the 8 collectives, rank 2 at none, whichever other rank is missing."""
    run = load(real_traces / "dlrm_8xV100", ranks=set(range(8)) - {missing})
    found = analyze(run, only="stragglers").stragglers
    assert found is not None
    last = {int(row["rank"]): int(row["last_arrivals"]) for row in found.by_rank.to_dict("records")}
    assert (last[7], last.get(2, 0)) == (5, 0)
    assert found.verdict.rank in {7, None}  # of one step
    assert found.verdict.certainty in {"likely", None}


def test_dlrm_is_likely_held_up_by_rank_7(real_traces: Path) -> None:
    """GIVEN one step, of which rank 7 comes last to 5 of 8 collectives THEN it is likely slow, with its reason.

    Ranks wait for it up to 7.6 ms in the first all-to-all.
    """
    found = analyze(load(real_traces / "dlrm_8xV100"), only="stragglers").stragglers
    assert found is not None
    verdict = found.verdict
    assert (verdict.rank, verdict.certainty, verdict.cause) == (7, "likely", "host")
    (finding,) = held(found.findings)
    assert (finding.certainty, finding.cause) == ("likely", "host")
    assert finding.evidence["others_wait_ns"] == pytest.approx(5.1e6, abs=5e4)
    assert finding.evidence["longest_wait"]["wait_ns"] == pytest.approx(7.6e6, abs=5e4)
    assert (finding.tag, "steps=10" in str(finding.action)) == ("STRAGGLER", True)


def test_a100_overlap_over_its_three_steps(real_traces: Path) -> None:
    run = load(real_traces / "single_rank" / "a100_ddp_rank0_of_2.json.gz")
    assert overlap_percent(run) == pytest.approx({0: 15.61}, abs=0.005)
    (summary,) = run.ranks
    assert [step.complete for step in summary.steps] == [True] * 3
    assert sum(row.count for row in summary[COMMUNICATION_SUMS]) == 21
    assert {row.kind for row in summary[COMMUNICATION_SUMS]} >= {"all_reduce"}
    assert all(row.size_bytes for row in summary[COMMUNICATION_SUMS])
    assert (run.world_size, run.missing_ranks) == (2, (1,))


def test_mi300x_steps_of_a_host_that_runs_ahead(real_traces: Path) -> None:
    """The host runs ahead of the device: windows by the host's clock would be 16.8, 16.0 and 53.8 ms long."""
    run = load(real_traces / "single_rank" / "mi300x_resnet_rank0_of_8.json.gz")
    (summary,) = run.ranks
    assert [step.step_ns / 1e6 for step in summary.steps] == pytest.approx([18.98, 18.98, 18.55], abs=0.005)
    assert overlap_percent(run) == pytest.approx({0: 25.25}, abs=0.005)
    text = note(run, "before-recording").text
    assert "757 kernels (5 of them communication) were launched before the recording" in text


def test_mi300x_operations_of_a_resnet_18(real_traces: Path) -> None:
    """GIVEN 10 images, and 1.81e9 multiply-adds an image by torchvision THEN the operations are as many.

    The backward pass does twice as many, except for the gradient of the image. It recomputes all but the first and the
    last layer.
    """
    run = load(real_traces / "single_rank" / "mi300x_resnet_rank0_of_8.json.gz")
    result = roofline(run)
    assert result is not None
    (row,) = records(result.by_rank)
    first, last = 2 * 10 * (64 * 112 * 112) * (3 * 7 * 7), 2 * 10 * 512 * 1000
    forward = ((row["flops"] - row["recomputed_flops"]) / 3 + first) / 3
    assert forward / 10 / 2 == pytest.approx(1.81e9, rel=0.005)
    assert row["recomputed_flops"] / 3 == pytest.approx(forward - first - last, rel=1e-9)
    assert (row["dtypes"], row["recompute"]) == (["bfloat16"], "inferred")
    assert row["mfu"] == pytest.approx((3 * forward - first) / (row["step_ns"] / 3e9 * 1307.4e12))


def test_a100_without_shapes_has_no_operations(real_traces: Path) -> None:
    result = roofline(load(real_traces / "single_rank" / "a100_ddp_rank0_of_2.json.gz"))
    assert result is not None
    assert result.unavailable["flops"].reason == "operators recorded no shapes (record_shapes)"


def test_mi300x_over_the_whole_recording(real_traces: Path) -> None:
    options = SummaryOptions(steps=StepSelection(whole=True))
    run = load(real_traces / "single_rank" / "mi300x_resnet_rank0_of_8.json.gz", options=options)
    assert overlap_percent(run) == pytest.approx({0: 22.22}, abs=0.005)


def test_gloo_rank_34_of_300(real_traces: Path) -> None:
    run = load(real_traces / "gloo_rank34_of_300")
    (summary,) = run.ranks
    assert (summary.rank, summary.device, run.world_size, len(run.missing_ranks)) == (34, "cpu", 300, 299)
    assert [row.kind for row in summary[COMMUNICATION_SUMS] if row.count] == ["all_reduce"]
    assert sum(row.count for row in summary[COMMUNICATION_SUMS]) == 10
    assert len(summary.steps) == 5
    assert "1 of 300 ranks" in terminal_text(analyze(run), width=120)


def test_two_of_128(real_traces: Path) -> None:
    run = load(real_traces / "two_of_128")
    assert [summary.rank for summary in run.ranks] == [0, 1]
    assert "2 of 128 ranks" in terminal_text(analyze(run), width=120).splitlines()[1]
    assert re.match(r"2 of 128 ranks; missing: 2-127", note(run, "missing-rank").text)
    assert sum(row.count for summary in run.ranks for row in summary[COMMUNICATION_SUMS]) == 20


def test_two_of_128_are_not_said_to_wait_for_each_other(real_traces: Path) -> None:
    """Their clocks may be off each other by most of a step. So what is found is found on each rank by itself."""
    report = analyze(real_traces / "two_of_128")
    assert [finding.cause for finding in report.findings] == ["communication", "host_bound", None]
    assert sum(finding.time_ns or 0 for finding in report.findings) < mean_step_ns(report.run)


def test_b200_custom_all_reduce_is_found(real_traces: Path) -> None:
    """Only one kernel, an annotated all-gather, has an NCCL name."""
    run = load(real_traces / "single_rank" / "b200_tp8_custom_allreduce.json.gz")
    (summary,) = run.ranks
    total_ns: dict[str, int] = {}
    for row in summary[COMMUNICATION_SUMS]:
        total_ns[row.kind] = total_ns.get(row.kind, 0) + row.total_ns
    assert total_ns["all_reduce"] > 10 * total_ns.get("unclassified", 0)
    assert total_ns["all_gather"] > 0


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_an_offset_in_one_clock_changes_no_number_of_a_rank(real_traces: Path, tmp_path: Path, rank: int) -> None:
    """GIVEN a rank whose clock is 1.5 s ahead WHEN analysed THEN only the starts of its steps differ."""
    plain = analyze(load(real_traces / "dlrm_8xV100"))
    for path in (real_traces / "dlrm_8xV100").glob("*.json.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        if document["distributedInfo"]["rank"] == rank:
            for event in document["traceEvents"]:
                if "ts" in event:
                    event["ts"] += 1_500_000
        (tmp_path / path.name.removesuffix(".gz")).write_text(json.dumps(document))
    shifted = analyze(load(tmp_path))
    assert plain.breakdown is not None
    assert shifted.breakdown is not None
    assert plain.overlap is not None
    assert shifted.overlap is not None
    assert shifted.breakdown.ranks.equals(plain.breakdown.ranks)
    assert shifted.overlap.communication.equals(plain.overlap.communication)
    moved = shifted.breakdown.steps.start_ns - plain.breakdown.steps.start_ns
    assert moved.tolist() == [1_500_000_000 * (r == rank) for r in range(8)]
