"""MFU, HFU and FLOP/s of steps with known work."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tracekit.explain.step_time.roofline import KnownWork, Roofline, peak_rates, roofline
from tracekit.loading.load import load
from tracekit.model.table import records
from tracekit.render.sections.lines import of_roofline

H100 = "NVIDIA H100 80GB HBM3"
SIZE = 4096
EACH = 2 * SIZE**3  # 0.137 TFLOP: 139 us on an H100 in bfloat16
STEP_US = 1000


def train(
    folder: Path,
    *,
    device: str | None = H100,
    dtypes: tuple[str, ...] = ("c10::BFloat16",),
    again: int = 0,
    kernel: str = "nvjet_tst_128x256",
    shapes: bool = True,
) -> Path:
    """Write two steps of 1 ms on one GPU, with a product of each of `dtypes`, under kernels of 400 us in all.

    `again`: how many more products a backward pass runs in bfloat16 for a checkpointed forward.
    """
    trace = TraceBuilder(rank=0, world_size=1)
    if device is not None:
        trace.header["deviceProperties"] = [{"id": 0, "name": device}]
    for k in range(2):
        at = k * STEP_US
        trace.step(k, at, STEP_US)
        trace.backward("AddmmBackward0", at + 500, 100)
        for number, dtype in enumerate((*dtypes, *["c10::BFloat16"] * again)):
            run_again = number >= len(dtypes)
            arguments: dict[str, Any] = {"Sequence number": number + 1, "Fwd thread id": 0}
            if shapes:
                arguments |= {"Input Dims": [[SIZE, SIZE], [SIZE, SIZE]], "Input type": [dtype, dtype]}
            begin = at + (510 if run_again else 10) + 20 * number
            thread = trace.autograd if run_again else None
            trace.op("aten::mm", begin, 15, thread=thread, **arguments)
            trace.event("cudaLaunchKernel", "cuda_runtime", begin + 5, 1, thread=thread)
        trace.kernel(kernel, at, 400, launched_at=at)
        trace.kernel("fill", at + STEP_US - 1, 1, launched_at=at + 700)
    return trace.write(folder / "rank0.json.gz")


def result_of(path: Path, known: KnownWork | None = None) -> tuple[Roofline, dict[str, Any]]:
    result = roofline(load(path), known)
    assert isinstance(result, Roofline)
    (row,) = records(result.by_rank)
    return result, row


def test_utilisation_by_hand(tmp_path: Path) -> None:
    result, row = result_of(train(tmp_path))
    assert (row["steps"], row["flops"], row["dtypes"]) == (2, 2 * EACH, ["bfloat16"])
    seconds = row["step_ns"] / 1e9
    assert seconds == pytest.approx(2e-3, rel=0.01)
    assert row["flops_per_s"] == pytest.approx(2 * EACH / seconds)
    assert row["computing_flops_per_s"] == pytest.approx(2 * EACH / 802e-6)
    assert row["peak_flops_per_s"] == 989.4e12
    assert row["mfu"] == row["hfu"] == pytest.approx(2 * EACH / seconds / 989.4e12)
    assert (result.source, result.peak_source) == ("shapes", "data sheet")
    assert result.unavailable.keys() == {"memory_traffic"}
    assert result.findings == ()


def test_a_process_with_two_devices_can_do_twice_as_much(tmp_path: Path) -> None:
    _, of_one = result_of(train(tmp_path / "one"))
    path = train(tmp_path / "two")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    for event in trace["traceEvents"]:
        if event["name"] == "fill":
            event["pid"] = 1
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    _, of_two = result_of(path)
    assert of_two["peak_flops_per_s"] == 2 * of_one["peak_flops_per_s"]
    assert of_two["mfu"] == pytest.approx(of_one["mfu"] / 2)


def test_recomputation_counts_in_hfu_and_not_in_mfu(tmp_path: Path) -> None:
    result, row = result_of(train(tmp_path, dtypes=("c10::BFloat16",) * 3, again=1))
    assert (row["flops"], row["recomputed_flops"], row["recompute"]) == (8 * EACH, 2 * EACH, "inferred")
    assert row["mfu"] == pytest.approx(0.75 * row["hfu"])
    assert "with the 25% that are recomputed (inferred)" in of_roofline(result)[0]


def test_steps_that_do_more_than_the_peak_have_no_utilisation(tmp_path: Path) -> None:
    """GIVEN products that take longer at the peak of float32 than the step. THEN they did not run in float32."""
    result, row = result_of(train(tmp_path, dtypes=("float",)))
    assert (row["mfu"], row["hfu"]) == (None, None)
    assert "more than the peak allows" in result.unavailable["mfu"].reason
    assert "MFU n/a" in of_roofline(result)[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device": "Some GPU"}, "no peak is known of Some GPU in bfloat16"),
        ({"device": None}, "no device is named in the trace"),
        ({"device": "Tesla T4"}, "no peak is known of Tesla T4 in bfloat16"),
    ],
)
def test_without_a_peak_there_are_rates_only(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    result, row = result_of(train(tmp_path, **options))
    assert (row["mfu"], row["hfu"], row["peak_flops_per_s"]) == (None, None, None)
    assert row["flops_per_s"] is not None
    assert result.unavailable["peak"].reason == why
    assert f"MFU n/a: {why}" in of_roofline(result)[0]


def test_float32_without_tensor_cores_is_a_finding(tmp_path: Path) -> None:
    """GIVEN a product that takes 4.4 ms in float32 on an A10, and 2.2 in TF32. THEN it is a finding in a step of 10 ms.

    It cannot be in a step of 1 ms.
    """
    trace = TraceBuilder(rank=0, world_size=1)
    trace.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA A10"}]
    trace.step(0, 0, 10_000)
    trace.op("aten::mm", 10, 15, **{"Input Dims": [[SIZE, SIZE]] * 2, "Input type": ["float", "float"]})
    trace.kernel("ampere_sgemm_128x64_nn", 20, 9_980, launched_at=12)
    result, _ = result_of(trace.write(tmp_path / "rank0.json.gz"))
    (finding,) = result.findings
    assert (finding.saving_ns, finding.evidence["float32_flops"]) == (None, EACH)
    assert "tensor cores is not recorded" in str(finding.evidence["no_replay"])
    assert "float32 without tensor cores" in finding.text

    trace.kernel("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n", 9_990, 5, launched_at=14)
    result, row = result_of(trace.write(tmp_path / "rank0.json.gz"))
    assert (row["dtypes"], result.findings) == (["tf32"], ())


def test_work_that_was_not_counted_makes_it_a_lower_bound(tmp_path: Path) -> None:
    trace = TraceBuilder(rank=0, world_size=1).step(0, 0, 100)
    trace.op("aten::mm", 10, 15, **{"Input Dims": [[8, 8]] * 2, "Input type": ["float", "float"]})
    trace.op("aten::_grouped_mm", 30, 15)
    result, row = result_of(trace.write(tmp_path / "rank0.json.gz"))
    assert row["lower_bound"]
    text = of_roofline(result)[0]
    assert text.startswith("at least 1.02 kFLOP a step")
    assert "not counted: aten::_grouped_mm" in text


@pytest.mark.parametrize(
    ("name", "bfloat16"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-PG509-200", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", None),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA L40", None),
        ("Tesla V100-SXM2-32GB", None),
        ("AMD Instinct MI300X", 1307.4),
        ("Intel(R) Xeon(R) Processor", None),
        (None, None),
    ],
)
def test_peaks_by_name(name: str | None, bfloat16: float | None) -> None:
    assert peak_rates(name).get("bfloat16") == bfloat16
