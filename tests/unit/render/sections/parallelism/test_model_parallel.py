"""The table of communication within layers in 80 columns, and the load of experts."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import WORLD, rank, run_of
from tests.unit.analysis.model_parallel.experts import exchange_tokens
from tracekit.analysis.model_parallel.expert_load import expert_load
from tracekit.analysis.model_parallel.layers import tensor_parallel
from tracekit.analysis.model_parallel.parts import ExpertExchangeSum, TensorSum
from tracekit.model.run import Run
from tracekit.render.console import write
from tracekit.render.sections.parallelism.model_parallel import expert_table, tensor_table


def run_with(*modules: str | None) -> Run:
    sums = tuple(
        TensorSum(
            module=module,
            parallelism="tp",
            phase="optimizer",
            kind="reduce_scatter",
            count=1,
            size_bytes=999_000,
            exposed_ns=1_234_567,
            layer_ns=2_000_000,
        )
        for module in modules
    )
    return run_of([rank(0, layers=sums)])


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        (["head"], "head"),
        ([""], "<root>"),
        ([None], "n/a"),
        (["model.decoder.layers.11.mlp.up"], "…yers.11.mlp.up"),
        ([f"model.decoder.layers.{i}.mlp.up" for i in range(128)], "mlp.up x128"),
    ],
)
def test_a_row_is_a_line_however_long_the_names_and_many_the_layers(modules: list[str | None], shown: str) -> None:
    lines = write(tensor_table(tensor_parallel(run_with(*modules))), width=80, color=False).splitlines()
    (row,) = [line for line in lines if "reduce_scatter" in line]
    assert shown in row
    assert "62%" in row
    assert max(map(len, lines)) <= 80


def load(*received: int) -> list[str]:
    ranks = [
        rank(
            number,
            expert_exchanges=(
                ExpertExchangeSum(group=WORLD, module="blocks.3.moe", step=5, received_bytes=size, uncovered_ns=0),
            ),
        )
        for number, size in enumerate(received)
    ]
    return write(expert_table(expert_load(run_of(ranks))), width=80, color=False).splitlines()


def test_the_most_loaded_rank_comes_first() -> None:
    first = next(line for line in load(1000, 1000, 3000, 1000) if "moe" in line)
    assert first.split() == ["2", "3", "kB", "3.00", "blocks.3.moe", "3.00"]


def test_of_an_estimated_load_the_time_of_experts_is_shown() -> None:
    """GIVEN experts of rank 2 that take 12.8 us a step, twice as long as the others'."""
    lines = write(expert_table(expert_load(exchange_tokens((0.8, 0.8, 1.6, 0.8)).run())), width=80, color=False)

    (row,) = [line.split() for line in lines.splitlines() if line.split()[:1] == ["2"]]
    assert row == ["2", "0.01", "2.00"]
