"""The factors between algorithm and bus bandwidth."""

from __future__ import annotations

from tracekit.model.communication import bus_factor


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 4) == 1.5
    for kind in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        assert bus_factor(kind, 4) == 0.75
    for kind in ("broadcast", "reduce", "send_recv"):
        assert bus_factor(kind, 4) == 1.0
