"""What is known of messages over NVLink, by the names of GPUs and by size."""

from __future__ import annotations

import pytest

from tracekit.explain.communication.slow_messages import has_nvlink, longest_over_nvlink_ns, usual_over_nvlink_ns


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GB200"],
)
def test_boards_whose_gpus_nvlink_joins(name: str) -> None:
    assert has_nvlink(name)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA L40S",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "Tesla V100-SXM2-32GB",  # joined with some GPUs of their host only
        "AMD Instinct MI300X",
    ],
)
def test_of_other_gpus_nothing_is_known(name: str | None) -> None:
    assert not has_nvlink(name)


@pytest.mark.parametrize(
    ("size_bytes", "usual_ns", "longest_ns"),
    [(0, 20_000, 20_000), (720_000, 30_000, 56_000), (72_000_000, 1_020_000, 3_620_000)],
)
def test_a_message_takes_a_latency_and_its_size_by_the_bandwidth(
    size_bytes: int, usual_ns: float, longest_ns: float
) -> None:
    """GIVEN 20 us, 72 GB/s as usual and 20 GB/s over a single NVLink."""
    assert usual_over_nvlink_ns(size_bytes) == pytest.approx(usual_ns)
    assert longest_over_nvlink_ns(size_bytes) == pytest.approx(longest_ns)
