"""Communication by dimension of the mesh, and which bounds the step: planted, healthy, renamed, shifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.gpu_jobs import Clocks, JobSpec, simulate
from benchmarks.gpu_jobs.groups import Group
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.strategies.model import Loop, steps
from tests.builders import TraceBuilder
from tracekit.explain.communication.mesh_dimensions import MeshDimensions, mesh_dimensions
from tracekit.findings.finding import Finding, held
from tracekit.loading.load import load
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run

LAYERS = 4
TENSOR, DATA = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 2, 4, 6), (1, 3, 5, 7)]
ACROSS_HOSTS, WITHIN_HOSTS = [(0, 4), (1, 5), (2, 6), (3, 7)], [(0, 1, 2, 3), (4, 5, 6, 7)]
NAMES = ("mesh_tp", "mesh_dp")


def train(
    folder: Path,
    *,
    tp_us: float = 10,
    dp_us: float = 20,
    late_us: float = 0,
    tensor: Sequence[tuple[int, ...]] = TENSOR,
    data: Sequence[tuple[int, ...]] = DATA,
    names: tuple[str | None, str | None] = NAMES,
    labels: Sequence[int] = range(8),
    clock_us: Sequence[int] = (),
) -> Run:
    """Eight GPUs on two hosts: five steps of four layers, each of 400 us and a collective of tp; then the gradients.
    Of each pair the first comes `late_us` late to tp. `labels` are the ranks to write them with. `clock_us`: how far
    the clocks are ahead; then each is a host of its own.
    """

    def loop(rank: Rank) -> Loop:
        groups = [_group_of(rank.rank, dimension, name) for dimension, name in zip((tensor, data), names, strict=True)]
        rank.groups.update({group.uid: group for group in groups if group is not None})
        for _ in steps(rank):
            for _layer in range(LAYERS):
                rank.compute("gemm", 400 + (late_us if rank.rank in {pair[0] for pair in tensor} else 0))
                if groups[0] is not None:
                    rank.collective(groups[0], "all_reduce", tp_us, blocking=True)
            if groups[1] is not None:
                rank.collective(groups[1], "all_reduce", dp_us, blocking=True)
            rank.compute("adam", 100)
            yield rank.synchronize()

    spec = JobSpec(
        family="ddp",
        dp=8,
        launch_us=2,
        ranks_per_host=1 if clock_us else 4,
        clocks=Clocks(offset_us=tuple(clock_us)),
    )
    return load(simulate(spec, loop).write(folder, numbers=labels))


def _group_of(rank: int, dimension: Sequence[tuple[int, ...]], described: str | None) -> Group | None:
    for ranks in dimension:
        if rank in ranks:
            return Group("", f"{described} {ranks}", ranks, described or "")
    return None


def by_name(result: MeshDimensions) -> pd.DataFrame:
    return result.by_name.set_index("dimension")


def finding_of(result: MeshDimensions) -> Finding:
    (finding,) = result.findings
    return finding


def test_slow_tensor_parallelism_is_named(tmp_path: Path) -> None:
    """GIVEN four times 120 us of tp in a step of 4 x 520 + 20 + 100 us."""
    result = mesh_dimensions(train(tmp_path, tp_us=120))
    finding = finding_of(result)
    assert (finding.severity, finding.cause, finding.action) == ("info", "communication", None)
    assert finding.evidence["dimension"] == "tp"
    assert finding.evidence["share"] == pytest.approx(480 / 2200, rel=0.05)
    assert finding.time_ns == pytest.approx(480_000, rel=0.05)
    assert "in groups of 2 ranks within a host. Next is dp" in finding.text
    assert (finding.evidence["group_size"], finding.evidence["hosts"], finding.evidence["next_dimension"]) == (
        2,
        1,
        "dp",
    )
    assert finding.evidence["waiting_ratio"] == pytest.approx(0, abs=0.05)  # all of it is transfer
    assert by_name(result).loc["tp", "waiting_ratio"] < 0.05
    assert by_name(result).loc["dp", "hosts"] == 2


def test_a_healthy_run_has_numbers_and_no_finding(tmp_path: Path) -> None:
    result = mesh_dimensions(train(tmp_path))
    assert held(result.findings) == ()
    assert result.by_name["dimension"].tolist() == ["tp", "dp"]


def test_waiting_for_late_ranks_differs_from_transfer(tmp_path: Path) -> None:
    """GIVEN pairs in which one rank comes 100 us later, and transfers of 10 us. THEN half of the ranks wait 100 us, and
    another finding names who is late.
    """
    dimensions = mesh_dimensions(train(tmp_path, late_us=100))
    row = dimensions.by_name.iloc[0]
    assert row["dimension"] == "tp"
    assert row["waiting_ratio"] == pytest.approx(50 / 60.5, abs=0.02)
    assert held(dimensions.findings) == ()


def test_tensor_parallelism_across_hosts_is_named(tmp_path: Path) -> None:
    finding = finding_of(mesh_dimensions(train(tmp_path, tp_us=120, tensor=ACROSS_HOSTS, data=WITHIN_HOSTS)))
    assert finding.evidence["hosts"] == 2
    assert "Its groups span hosts, those of dp do not" in finding.text
    assert (finding.severity, finding.action) == (
        "warning",
        "swap the two dimensions in init_device_mesh, so that tp stays within a host",
    )


def test_waiting_is_unknown_without_a_complete_group(tmp_path: Path) -> None:
    train(tmp_path, tp_us=120)
    for rank in (1, 3, 5, 7):
        (tmp_path / f"rank{rank}.json.gz").unlink()
    row = by_name(mesh_dimensions(load(tmp_path))).loc["tp"]
    assert row["waiting_ratio"] is pd.NA
    assert row["waiting_unknown"] == "ranks are missing in its groups"
    assert row["hosts"] is None or pd.isna(row["hosts"])


@pytest.mark.parametrize("names", [(None, None), ("undefined", "undefined"), ("", "")])
def test_groups_without_names_are_distinguished_by_shape(tmp_path: Path, names: tuple[str | None, str | None]) -> None:
    result = mesh_dimensions(train(tmp_path, tp_us=120, names=names))
    assert result.by_name["dimension"].tolist() == ["2 ranks, stride 1", "4 ranks, stride 2"]
    assert result.by_name["inferred"].all()
    assert "(inferred)" in finding_of(result).text


def test_purposes_from_names_are_marked_as_inferred(tmp_path: Path) -> None:
    names = ("TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP")
    result = mesh_dimensions(train(tmp_path, names=names))
    assert result.by_name["dimension"].tolist() == ["tp", "dp"]
    assert result.by_name["inferred"].all()


def test_sharding_and_replication_are_two_dimensions(tmp_path: Path) -> None:
    result = mesh_dimensions(train(tmp_path, names=("mesh_dp_shard", "mesh_dp_replicate")))
    assert result.by_name["dimension"].tolist() == ["dp_shard", "dp_replicate"]
    assert not result.by_name["inferred"].any()


def test_one_dimension_is_no_mesh(tmp_path: Path) -> None:
    result = mesh_dimensions(train(tmp_path, tp_us=120, dp_us=0, names=("mesh_tp", "mesh_dp"), data=()))
    assert len(result.by_rank) == len(result.by_name) == len(result.findings) == 0


def test_messages_between_stages_are_pp_in_any_group(tmp_path: Path) -> None:
    """GIVEN one group for gradients and for activations: 10 us of all-reduce and 30 us of messages."""
    for rank in range(2):
        trace = TraceBuilder(rank=rank).step(0, 0, 100).op("aten::mm", 0, 20)
        trace.gloo("send" if rank == 0 else "recv", 20, 30)
        trace.gloo("all_reduce", 60, 10).op("aten::add_", 80, 10)
        trace.capture()
        assert trace.metadata is not None
        layout = PipelineLayout(schedule="gpipe", stages=2, virtual_stages=1, microbatches=1, stage_ids=[rank])
        trace.metadata = replace(trace.metadata, pipeline=layout)
        trace.write_capture(tmp_path)
    result = mesh_dimensions(load(tmp_path))
    assert by_name(result)["exposed_ns"].to_dict() == {"pp": 30_000, "dp": 10_000}
    assert not result.by_name["inferred"].any()
    assert list(result.findings) == []  # what a stage waits for is the pipeline's bubble
