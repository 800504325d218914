"""Logs of Megatron's timers, of which a model of the schedule is made, and traces of MegaScan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit.errors import InputError
from tracekit.optables.diagnosis import diagnose_table
from tracekit.optables.megatron import read_megascan, read_timer_log

ARGUMENTS = """\
[default7]:  context_parallel_size ........................... 1
[default7]:  global_batch_size ............................... 32
[default7]:  micro_batch_size ................................ 2
[default7]:  pipeline_model_parallel_size .................... 4
[default7]:  tensor_model_parallel_size ...................... 1
"""
# Of 8 ranks: 2 replicas x 4 stages, numbered by replica first. Stage 3 takes half as long again.
FORWARD = [80.0, 80.0, 80.0, 80.0, 80.0, 80.0, 120.0, 120.0]


def log(
    iterations: int = 4,
    *,
    arguments: str = ARGUMENTS,
    timers: tuple[str, ...] = ("forward-compute", "backward-compute"),
) -> str:
    lines = [arguments]
    for number in range(10, 10 + iterations):
        lines.append(
            f"[default7]: iteration {number:8d}/     500 | consumed samples: 320 | elapsed time per iteration (ms): "
            "500.0 | learning rate: 1.0E-04 | global batch size:    32 | lm loss: 6.9E+00 |"
        )
        lines.append("[default7]:times across ranks (ms):")
        for name in ("forward-backward", *timers):
            lines.append(f"[default7]:  {name}:")
            for rank, forward in enumerate(FORWARD):
                took = {"forward-compute": forward, "backward-compute": 2 * forward}.get(name, 480.0)
                lines.append(f"[default7]:     rank {rank:2d}: {took:.2f}")
    return "\n".join(lines)


def write(folder: Path, text: str) -> Path:
    (folder / "train.log").write_text(text)
    return folder / "train.log"


def test_sums_of_ranks_are_laid_out_by_the_schedule_that_the_log_names(tmp_path: Path) -> None:
    """GIVEN 8 microbatches (32 samples of 2 on 2 replicas) THEN a step is what 1F1B with a slow last stage takes."""
    path = write(tmp_path, log())
    table = read_timer_log(path)
    found = diagnose_table(table)
    assert (table.modelled, table.operations["rank"].nunique(), table.operations["replica"].nunique()) == (True, 8, 2)
    assert found.pipeline is not None
    assert (found.pipeline.schedule, found.pipeline.microbatches) == ("1f1b", 8)
    # Stages 0 to 2 take 10 + 20 ms a microbatch, stage 3 15 + 30: it runs without a pause once microbatch 0 is there.
    step_ms = 3 * 10 + 8 * 45 + 3 * 20
    assert found.whatif.replayed_ns == step_ms * 1_000_000
    assert found.whatif.measured_ns == 500_000_000
    assert "the order within a step is a model (1F1B, 8 microbatches of equal length" in found.notes[0]
    assert any("stage 3 (ranks 6-7) takes 1.50 times" in finding.text for finding in found.findings)


def test_a_slow_rank_is_told_from_sums(tmp_path: Path) -> None:
    text = log().replace("rank  2: 80.00", "rank  2: 120.00").replace("rank  2: 160.00", "rank  2: 240.00")
    (slow,) = diagnose_table(read_timer_log(write(tmp_path, text))).slow_ranks
    assert slow.rank == 2  # of stage 1: ranks 2 and 3


def test_sizes_that_the_log_does_not_say_are_given(tmp_path: Path) -> None:
    path = write(tmp_path, log(arguments=""))
    with pytest.raises(InputError, match=r"how many ranks a pipeline has .give --pipeline-ranks"):
        read_timer_log(path)
    with pytest.raises(InputError, match=r"how many microbatches a step has .give --microbatches"):
        read_timer_log(path, pipeline_ranks=4)
    table = read_timer_log(path, 4, 8)
    assert table.operations.equals(read_timer_log(write(tmp_path, log())).operations)
    with pytest.raises(InputError, match="8 ranks are no multiple of 3 pipeline"):
        read_timer_log(path, 3, 8)


def test_logs_that_cannot_be_used_say_which_option_is_missing(tmp_path: Path) -> None:
    minmax = "(min, max) time across ranks (ms):\n    forward-compute ......: (80.00, 120.00)\n"
    for text in (minmax, log(timers=("forward-compute",))):
        with pytest.raises(InputError, match=r"log with --timing-log-option all --timing-log-level 2"):
            read_timer_log(write(tmp_path, text))
    with pytest.raises(InputError, match=r"limit table_operations=2000000"):
        read_timer_log(write(tmp_path, log().replace("batch size:    32", "batch size: 500000000")))


def test_a_model_with_too_many_operations_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN 4 iterations of 8 ranks with 8 microbatches each, forward and backward THEN that is 512 operations."""
    path = write(tmp_path, log())
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_operations=512")
    assert len(read_timer_log(path).operations) == 512
    monkeypatch.setenv("TRACEKIT_LIMITS", "table_operations=511")
    with pytest.raises(InputError, match=r"over 511 operations \(limit table_operations=511\)"):
        read_timer_log(path)


US = 1000
# Of each rank: name, microbatch, chunk, start and end in us since the begin of the iteration.
RANKS = {
    0: [
        ("forward", 0, 0, 10, 20),
        ("forward", 0, 1, 50, 60),
        ("backward", 0, 1, 90, 110),
        ("backward", 0, 0, 140, 160),
    ],
    1: [("forward", 0, 0, 25, 45), ("forward", 0, 1, 65, 80), ("backward", 0, 1, 80, 88), ("backward", 0, 0, 115, 135)],
}


def rank_file(place: int) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for _ in range(2):
        records.append({"name": "iteration", "ph": "B", "pad_before": 5})
        for name, microbatch, chunk, start, end in RANKS[place]:
            records.append({"name": name, "ph": "B", "rel_ts": start * US})
            details = {"microbatch": microbatch, "model_chunk": chunk, "pp_rank": place}
            records.append({**details, "name": name, "ph": "E", "rel_ts": end * US})
        records.append({"name": "iteration", "ph": "E", "rel_ts": 170 * US, "duration_wall": 170 * US})
    return records


def test_files_of_megascan(tmp_path: Path) -> None:
    for place in RANKS:
        (tmp_path / f"benchmark-data-0-pipeline-{place}-tensor-0.json").write_text(json.dumps(rank_file(place)))
        (tmp_path / f"benchmark-data-0-pipeline-{place}-tensor-1.json").write_text("[]")
    table = read_megascan(tmp_path)
    assert "of tensor-parallel ranks the first counts" in table.notes[0]
    assert len(table.operations) == 16
    first = table.operations.query("step == 0 and rank == 1")
    assert first["stage"].tolist() == [1, 3, 3, 1]
    assert first["kind"].tolist() == ["F", "F", "B", "B"]
    assert (first["start_ns"].diff()[1:] / US).tolist() == [40, 15, 35]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "no operations in it"),
        ('[{"pad_before": ', "is not as MegaScan writes it"),
        ('[{"name": "forward", "ph": "B"}]', "KeyError 'rel_ts'"),
    ],
)
def test_files_that_are_not_megascan(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "benchmark-data-0-pipeline-0-tensor-0.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_megascan(tmp_path)
