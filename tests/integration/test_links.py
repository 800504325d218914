"""`tracekit links` on two ranks over Gloo: every collective at every size, and figures that agree."""

from __future__ import annotations

import msgspec
import pytest

from tests.integration.recorded import Launch
from tracekit.model.links import LinkMeasurements, bus_factor

KINDS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "scatter", "gather"]
KINDS += ["send_recv"]


@pytest.fixture(scope="module")
def measured(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> tuple[LinkMeasurements, str]:
    file = tmp_path_factory.mktemp("links") / "links.json"
    sizes = ("--min-bytes", "1024", "--max-bytes", "16384", "--repeats", "3")
    done = torchrun("-m", "tracekit", "links", "-o", file, *sizes)
    return msgspec.json.decode(file.read_bytes(), type=LinkMeasurements), done.stdout


def test_every_collective_is_measured_at_every_size(measured: tuple[LinkMeasurements, str]) -> None:
    found, _ = measured
    assert [(row.kind, row.size_bytes) for row in found.rows] == [
        (kind, size) for kind in KINDS for size in (1024, 4096, 16384)
    ]
    assert found.left_out == []
    assert (found.version, found.world_size, found.backend, found.device.type) == (1, 2, "gloo", "cpu")
    assert [(group.link, group.ranks) for group in found.groups] == [("host", [0, 1])]
    assert [host.ranks for host in found.hosts] == [[0, 1]]


def test_bandwidths_follow_from_sizes_and_times(measured: tuple[LinkMeasurements, str]) -> None:
    found, _ = measured
    for row in found.rows:
        assert 0 < row.min_ns <= row.time_ns
        assert row.algbw_bps == pytest.approx(row.size_bytes / row.time_ns * 1e9)
        assert row.busbw_bps == pytest.approx(row.algbw_bps * bus_factor(row.kind, 2))


def test_rank_0_prints_one_table(measured: tuple[LinkMeasurements, str]) -> None:
    found, printed = measured
    lines = [line for line in printed.splitlines() if line.startswith("all_to_all") and "algbw" not in line]
    assert sum(line.split()[1] in {"1,024", "4,096", "16,384"} for line in lines) == 3
    assert printed.count("busbw") == 1
    assert max(map(len, printed.splitlines())) <= 80
    assert len(found.rows) == 27
