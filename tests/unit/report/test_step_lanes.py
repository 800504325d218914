"""What ranks did within single steps. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.errors import InputError
from tracekit.loading.load import load
from tracekit.model.run import Run
from tracekit.report.step_lanes import LANES, StepLanes, StepTime, read_step_lanes


def gpu_rank() -> TraceBuilder:
    """Two steps of 100 us. In each the device computes from 20 to 60, and reduces from 50 to 80."""
    trace = TraceBuilder(world_size=1)
    for step in (1, 2):
        begin = 100 * step
        trace.step(step, begin, 100).op("aten::mm", begin + 1, 3).backward("MmBackward0", begin + 40, 30)
        trace.kernel("void gemm<128>(float*)", begin + 20, 40, launched_at=begin + 2)
        trace.nccl("all_reduce", begin + 50, 30, launched_at=begin + 3)
        trace.memcpy(begin + 90, 5, launched_at=begin + 4)
    return trace


def time_of(run: Run, step: int, bins: int = 10) -> StepTime:
    parts = next(parts for parts in run.ranks[0].steps if parts.step == step)
    return StepTime(
        rank=0,
        step=step,
        start_ns=parts.start_ns,
        end_ns=parts.start_ns + parts.step_ns,
        origin_ns=parts.start_ns,
        length_ns=parts.step_ns,
        bins=bins,
    )


def lanes_of(folder: Path, trace: TraceBuilder, step: int = 1, *, most: int = 10) -> StepLanes:
    run = load(write_run(folder, [trace]))
    (lanes,) = read_step_lanes(run, [time_of(run, step)], most_operations=most)
    return lanes


def test_the_share_of_each_bin_that_a_lane_covers(tmp_path: Path) -> None:
    """GIVEN a step of 100 us from 100 us on WHEN it is divided into ten bins THEN each lane covers known bins."""
    lanes = lanes_of(tmp_path, gpu_rank())

    covered = {lane: lanes.covered[i].round(3).tolist() for i, lane in enumerate(LANES)}
    assert covered == {
        "compute": [0, 0, 1, 1, 1, 1, 0, 0, 0, 0],
        "communication": [0, 0, 0, 0, 0, 1, 1, 1, 0, 0],
        "copy": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5],
    }


def test_bins_add_up_to_what_the_summary_says(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, [gpu_rank()]))
    for step in run.ranks[0].steps:
        (lanes,) = read_step_lanes(run, [time_of(run, step.step, bins=37)], most_operations=1)
        width_ns = step.step_ns / 37

        assert lanes.covered[0].sum() * width_ns == pytest.approx(step.compute_ns, rel=0.01)
        assert lanes.covered[1].sum() * width_ns == pytest.approx(step.comm_ns, rel=0.01)


def test_of_many_operations_the_longest_are_taken(tmp_path: Path) -> None:
    assert [o.name for o in lanes_of(tmp_path, gpu_rank(), most=2).operations] == ["gemm", "all_reduce (default_pg)"]


def test_phases_cover_the_window(tmp_path: Path) -> None:
    phases = lanes_of(tmp_path, gpu_rank()).phases

    assert phases[0][0] == 0
    assert phases[-1][1] == 100_000
    assert [start for start, _, _ in phases[1:]] == [end for _, end, _ in phases[:-1]]
    assert [name for _, _, name in phases][:2] == ["forward", "backward"]


def test_on_a_cpu_the_outermost_operators_compute(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(1, 0, 100).op("aten::linear", 10, 50).op("aten::addmm", 20, 30)

    lanes = lanes_of(tmp_path, trace)

    assert [(o.name, o.start_ns, o.end_ns) for o in lanes.operations] == [("aten::linear", 10_000, 60_000)]


def test_a_step_that_is_in_no_file_has_no_result(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, [gpu_rank()]))
    other = time_of(run, 1)
    missing = StepTime(**{**vars(other), "start_ns": other.start_ns + 7})

    assert read_step_lanes(run, [missing], most_operations=3) == []


def test_a_file_that_is_gone_is_an_error_of_the_input(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, [gpu_rank()]))
    Path(run.ranks[0].files[0]).unlink()

    with pytest.raises(InputError):
        read_step_lanes(run, [time_of(run, 1)], most_operations=3)
