"""Logs of Megatron's timers, of which a model of the schedule is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.errors import InputError
from tracekit.optables.diagnosis import diagnose_table
from tracekit.optables.megatron import read_timer_log

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
