"""Tables of sections whose rows are not shown as they are, in 80 columns."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import WORLD, rank, run_of
from tests.unit.explain.model_parallel.experts import exchange_tokens
from tests.unit.render.sections.drawn import lines_of
from tracekit.explain.communication.mesh_dimensions import MeshDimensions
from tracekit.explain.fsdp.tables import FsdpSum
from tracekit.explain.fsdp.units import fsdp
from tracekit.explain.model_parallel.layers import tensor_parallel
from tracekit.explain.model_parallel.tables import ExpertExchangeSum, TensorSum
from tracekit.model.run import Run

LONG = "model.decoder.layers.11.mlp.up"

# ---- modules -----------------------------------------------------------------------------------------------------


def sharded(*modules: str | None) -> list[str]:
    numbers = {"unit_bytes": 1000, "shards": 2, "count": 1, "size_bytes": 999_000, "exposed_ns": 12_345_678}
    numbers |= {"ahead_count": 1, "ahead_ns": 123_456_789}
    sums = [FsdpSum(module=module, phase="optimizer", kind="reduce_scatter", **numbers) for module in modules]
    result = fsdp(run_of([rank(0, fsdp_units=tuple(sums))]))
    assert result is not None
    return [line for line in lines_of("fsdp", result) if "reduce_scatter" in line]


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
def test_a_sharded_module_is_a_line_however_long_its_names(module: str, shown: str) -> None:
    (row,) = sharded(module)
    assert shown in row.split("reduce_scatter")[0]
    assert len(row) <= 80


def test_equal_layers_are_one_row_with_the_sum_of_their_time() -> None:
    (row,) = sharded(*(f"blocks.{i}" for i in range(64)))
    assert "blocks.* x64" in row
    assert "790.12" in row


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        (["head"], "head"),
        ([""], "<root>"),
        ([None], "n/a"),
        ([LONG], "…yers.11.mlp.up"),
        ([f"model.decoder.layers.{i}.mlp.up" for i in range(128)], "mlp.up x128"),
    ],
)
def test_communication_in_layers_is_a_line(modules: list[str | None], shown: str) -> None:
    numbers = {"count": 1, "size_bytes": 999_000, "exposed_ns": 1_234_567, "layer_ns": 2_000_000}
    where = {"parallelism": "tp", "phase": "optimizer", "kind": "reduce_scatter"}
    sums = tuple(TensorSum(module=module, **where, **numbers) for module in modules)
    lines = lines_of("tensor", tensor_parallel(run_of([rank(0, layers=sums)])))
    (row,) = [line for line in lines if "reduce_scatter" in line]
    assert shown in row
    assert "62%" in row
    assert max(map(len, lines)) <= 80


# ---- experts -----------------------------------------------------------------------------------------------------


def received(*sizes: int) -> Run:
    exchange = {"group": WORLD, "module": "blocks.3.moe", "step": 5, "uncovered_ns": 0}
    return run_of(
        [
            rank(number, expert_exchanges=(ExpertExchangeSum(received_bytes=size, **exchange),))
            for number, size in enumerate(sizes)
        ]
    )


def test_the_most_loaded_rank_comes_first() -> None:
    lines = lines_of("tensor", tensor_parallel(received(1000, 1000, 3000, 1000)))
    first = next(line for line in lines if "moe" in line)
    assert first.split() == ["2", "3", "kB", "3.00", "blocks.3.moe:", "3.00"]


def test_nearly_equal_loads_are_one_line() -> None:
    text = "".join(lines_of("tensor", tensor_parallel(received(1000, 1000, 1050, 1000)), width=120))
    assert "experts are evenly loaded: none gets more than 1.05 times the mean of the others" in text
    assert "Load of experts" not in text


def test_of_an_estimated_load_the_time_of_experts_is_shown() -> None:
    """GIVEN experts of rank 2 that take 12.8 us a step, twice as long as the others'."""
    lines = lines_of("tensor", tensor_parallel(exchange_tokens((0.8, 0.8, 1.6, 0.8)).run()))
    assert [line.split() for line in lines if line.split()[0] == "2"] == [["2", "0.01", "2.00"]]
    assert "the load of experts is estimated" in " ".join(lines)


# ---- dimensions of the mesh --------------------------------------------------------------------------------------

TENSOR = {
    "dimension": "tp", "inferred": False, "ranks": 8, "group_size": 2, "hosts": 1, "total_ns": 4e6, "exposed_ns": 3e6,
    "share": 0.25, "waiting_ratio": 0.4, "waiting_unknown": None, "worst_rank": 5,
    "worst_exposed_ns": 3.75e6,
}  # fmt: skip


def test_what_is_not_known_of_a_dimension_is_said() -> None:
    unknown = TENSOR | {"dimension": None, "group_size": None, "hosts": None, "waiting_ratio": None}
    lines = lines_of("dimensions", MeshDimensions(by_rank=[], by_name=[TENSOR, unknown], findings=()))
    assert lines[-2].split() == ["tp", "2", "1", "4.00", "3.00", "25%", "40%", "5:", "3.75"]
    assert lines[-1].split() == ["n/a", "n/a", "n/a", "4.00", "3.00", "25%", "n/a", "5:", "3.75"]


def test_an_inferred_dimension_is_called_so() -> None:
    rows = [TENSOR | {"inferred": True}, TENSOR]
    lines = lines_of("dimensions", MeshDimensions(by_rank=[], by_name=rows, findings=()))
    assert [line.split()[1] for line in lines[-2:]] == ["yes", "no"]
