"""Logs of Megatron's timers: what a model of the schedule shows, and what a log has to have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.analysis.operation_tables.diagnosis import diagnose_table
from tracekit.analysis.operation_tables.formats.megatron_timers import PipelineSizes, read_timer_log
from tracekit.analysis.operation_tables.formats.read_table import form_of
from tracekit.errors import InputError

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
    assert form_of(path) == "timers"
    table = read_timer_log(path)
    found = diagnose_table(table)
    assert (table.modelled, found.ranks, found.replicas) == (True, 8, 2)
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
        read_timer_log(path, PipelineSizes(pipeline_ranks=4))
    table = read_timer_log(path, PipelineSizes(pipeline_ranks=4, microbatches=8))
    assert table.operations == read_timer_log(write(tmp_path, log())).operations
    with pytest.raises(InputError, match="8 ranks are no multiple of 3 pipeline"):
        read_timer_log(path, PipelineSizes(pipeline_ranks=3, microbatches=8))


def test_logs_that_cannot_be_used_say_which_option_is_missing(tmp_path: Path) -> None:
    minmax = "(min, max) time across ranks (ms):\n    forward-compute ......: (80.00, 120.00)\n"
    with pytest.raises(InputError, match=r"its timers name no rank .log with --timing-log-option all"):
        read_timer_log(write(tmp_path, minmax))
    with pytest.raises(InputError, match=r"no timer backward-compute .log with --timing-log-level 2"):
        read_timer_log(write(tmp_path, log(timers=("forward-compute",))))
    assert form_of(write(tmp_path, "nothing of timers")) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rank  0: 80.00", "rank  0: 8.0.0"), r"line 19: '8\.0\.0' is not a number"),
        (("rank  0: 80.00", f"rank  0: {'9' * 400}"), r"line 19: 9+\.\.\. is out of range"),
        (("rank  0: 80.00", f"rank {'9' * 5000}: 80.00"), r"line 19: 9+\.\.\. is out of range"),
        (("iteration       10", f"iteration {'9' * 5000}"), r"line 7: 9+\.\.\. is out of range"),
        (("batch size:    32", f"batch size: {'9' * 5000}"), r"line 7: 9+\.\.\. is out of range"),
        (
            ("size .................... 4", "size .................... 0"),
            r"line 4: pipeline_model_parallel_size 0 is",
        ),
        (
            ("size ................................ 2", "size ................................ nan"),
            "line 3: micro_batch_size 'nan' is not",
        ),
        (("batch size:    32", "batch size: 500000000"), r"limit rank_operations=50000"),
    ],
)
def test_a_number_that_cannot_be_is_named_by_its_line(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    text = log()
    assert change[0] in text
    with pytest.raises(InputError, match=rf"train\.log: .*{message}"):
        read_timer_log(write(tmp_path, text.replace(*change)))


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
