"""The table of sharded modules: its title, names that fit, 80 columns."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import rank, run_of
from tracekit.analysis.fsdp.parts import FsdpSum
from tracekit.analysis.fsdp.units import fsdp
from tracekit.render.console import write
from tracekit.render.sections.parallelism.fsdp import fsdp_table

LONG = "model.decoder.layers.11.mlp.up"


def table_lines(strategies: list[str], *modules: str | None) -> list[str]:
    sums = tuple(
        FsdpSum(
            module=module,
            unit_bytes=1000,
            shards=2,
            phase="optimizer",
            kind="reduce_scatter",
            count=1,
            size_bytes=999_000,
            exposed_ns=12_345_678,
            ahead_count=1,
            ahead_ns=123_456_789,
        )
        for module in modules
    )
    result = fsdp(run_of([rank(0, fsdp_units=sums)]))
    assert result is not None
    return write(fsdp_table(result, strategies), width=80, color=False).splitlines()


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        ("", "<root>"),
        ("head", "head"),
        (LONG, "….layers.11.mlp.up "),
        (f"{LONG}, {LONG}2", "1.mlp.up +1"),
        ("a, b, c", "a +2"),
        ("a, b, c and 3 more", "a +5"),
    ],
)
def test_a_row_is_a_line_however_long_its_names(module: str, shown: str) -> None:
    (row,) = [line for line in table_lines(["zero3"], module) if "reduce_scatter" in line]
    assert shown in row.split("reduce_scatter")[0]
    assert len(row) <= 80


def test_equal_layers_are_one_row_with_the_sum_of_their_time() -> None:
    (row,) = [line for line in table_lines(["fsdp2"], *(f"blocks.{i}" for i in range(64))) if "reduce_scatter" in line]
    assert "blocks.* x64" in row
    assert "790.12" in row
    assert len(row) <= 80
