"""Floating-point operations from recorded shapes: by hand, and against PyTorch's counter on the same step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tests.unit.explain.summarized import summary_of
from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.flops import flops_of
from tracekit.explain.step_time.tables import FLOPS, FlopSum, FlopSums
from tracekit.loading.options import SummaryOptions
from tracekit.read.decode.operators import ATTENTIONS
from tracekit.read.decode.portable import decode

MATRICES = {"Input Dims": [[4, 6], [6, 5]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
EACH = 2 * 4 * 6 * 5


def sums_of(trace: TraceBuilder, folder: Path) -> FlopSums:
    return summary_of(trace, folder)[FLOPS]


def profiled(step: Callable[[], object], folder: Path) -> FlopSums:
    """As torch.profiler records it, shapes included, without any capture."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
        step()
    path = folder / "rank0.json"
    profiler.export_chrome_trace(str(path))
    return summarize_trace(decode(path), 0, SummaryOptions())[FLOPS]


def total(sums: FlopSums, *, recomputed: bool | None = None) -> int:
    return sum(row.flops for row in sums.rows if recomputed in (None, row.recomputed))


def counted_by_torch(step: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def mlp(x: Tensor) -> Callable[[], object]:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return lambda: model(x).sum().backward()


def products(x: Tensor) -> Callable[[], object]:
    """mm, bmm, baddbmm and addmm of three-dimensional inputs."""
    weight = torch.randn(64, 48, requires_grad=True)
    batch, other = torch.randn(3, 4, 5, requires_grad=True), torch.randn(3, 5, 6)
    linear = nn.Linear(64, 16)

    def step() -> None:
        (x @ weight).sum().backward()
        torch.bmm(batch, other).sum().backward()
        torch.baddbmm(torch.zeros(3, 4, 6), batch, other).sum().backward()
        linear(x.view(4, 8, 64)).sum().backward()

    return step


def convolutions(x: Tensor) -> Callable[[], object]:
    """Strided, padded, dilated, transposed; in one, two and three dimensions."""
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.Conv2d(8, 6, (3, 5), padding=(2, 1), dilation=(2, 1)),
        nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1),
    )
    line, volume = nn.Conv1d(2, 5, 7, padding="same"), nn.Conv3d(2, 3, (1, 2, 3))

    def step() -> None:
        layers(x[:, :48].view(32, 3, 4, 4).repeat(1, 1, 4, 4)).sum().backward()
        line(x.view(32, 2, 32)).sum().backward()
        volume(x.view(32, 2, 2, 4, 4)).sum().backward()

    return step


@pytest.mark.parametrize("step_of", [mlp, products, convolutions])
def test_the_count_is_that_of_torch(tmp_path: Path, step_of: Callable[[Tensor], Callable[[], object]]) -> None:
    torch.manual_seed(0)
    step = step_of(torch.randn(32, 64))
    sums = profiled(step, tmp_path)
    assert total(sums) == counted_by_torch(step) > 0
    assert {row.dtype for row in sums.rows} == {"float32"}
    assert total(sums, recomputed=True) == 0


def test_a_small_network_by_hand(tmp_path: Path) -> None:
    """Forward has 2 * batch * in * out for each layer.

    Backward has twice that, without the gradient of the first layer's input.
    """
    sums = profiled(mlp(torch.randn(32, 64)), tmp_path)
    first, second = 2 * 32 * 64 * 128, 2 * 32 * 128 * 10
    assert total(sums) == 2 * first + 3 * second
    assert sum(row.count for row in sums.rows) == 5


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_forwards_are_counted_apart(tmp_path: Path, reentrant: bool) -> None:
    """GIVEN no capture. THEN the autograd numbers of operators show which forwards are run again.

    Without reentrance the second of two layers is not finished, as its result is not needed.
    """
    block, head = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), nn.Linear(16, 16)
    x = torch.randn(8, 16, requires_grad=True)

    def step() -> None:
        head(checkpoint(block, x, use_reentrant=reentrant)).sum().backward()

    sums = profiled(step, tmp_path)
    forward = 2 * (2 * 8 * 16 * 32)
    assert total(sums, recomputed=False) == 3 * forward + 3 * (2 * 8 * 16 * 16)
    assert total(sums, recomputed=True) == (forward if reentrant else forward // 2)
    assert total(sums) == counted_by_torch(step)
    assert sums.recompute == "inferred"


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_with_fewer_heads_of_keys_counts_as_in_torch(name: str) -> None:
    query, key, value = [2, 8, 16, 32], [2, 2, 48, 32], [2, 2, 48, 64]
    result = [2, 8, 16, 64]
    assert flops_of(name, [query, key, value, []], []) == sdpa_flop_count(query, key, value)
    backward = flops_of(f"{name}_backward", [result, query, key, value, []], [])
    assert backward == sdpa_backward_flop_count(result, query, key, value)


@pytest.mark.parametrize(
    ("name", "shapes", "concrete"),
    [
        ("aten::mm", [[4, 6], [7, 5]], ["", ""]),
        ("aten::mm", [[4, 6]], ["", ""]),
        ("aten::mm", [[], []], ["", ""]),
        ("aten::bmm", [[4, 6], [6, 5]], ["", ""]),
        ("aten::mm", [[1 << 40, 1 << 40], [1 << 40, 1]], []),
        ("aten::convolution", [[1, 1, 5, 5], [1, 1, 3, 3], []], []),
        ("aten::convolution", [[1, 1, 5, 5], [1, 1, 3, 3], []], ["", "", "", "[0, 0]", "[0]", "[1]", "False"]),
        ("aten::convolution", [[1, 1, 5, 5], [1, 1, 3, 3], []], ["", "", "", "[x]", "[0]", "[1]", "False"]),
        ("aten::convolution_backward", [[1, 1, 5, 5], [1, 1, 3, 3], []], ["", "", "", "[1]"]),
    ],
)
def test_impossible_shapes_are_not_counted(name: str, shapes: list[list[int]], concrete: list[object]) -> None:
    assert flops_of(name, shapes, concrete) is None


def test_a_tensor_subclass_counts_as_the_operator_that_it_dispatches_to(tmp_path: Path) -> None:
    """A DTensor's product is a product of its local parts: on two ranks, of half the size."""
    trace = TraceBuilder().step(0, 0, 100)
    trace.op("aten::mm", 10, 20, **MATRICES | {"Input Dims": [[4, 6], [6, 10]]})
    trace.op("aten::mm", 15, 10, **MATRICES)
    assert sums_of(trace, tmp_path).rows == (FlopSum(dtype="float32", recomputed=False, count=1, flops=EACH),)


def test_an_event_out_of_range_does_not_change_the_sums(tmp_path: Path) -> None:
    """An annotation in front of the operator is a week later."""
    trace = TraceBuilder().step(0, 0, 100)
    trace.label("annotation", 7 * 24 * 3600 * 1_000_000, 1)
    trace.op("aten::mm", 10, 20, **MATRICES)
    assert total(sums_of(trace, tmp_path)) == EACH


def test_types_and_tensor_cores(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    for at_us, dtype in ((10, "float"), (20, "c10::BFloat16"), (30, "c10::Float8_e4m3fn"), (40, "c10::Half")):
        trace.op("aten::mm", at_us, 5, **MATRICES | {"Input type": [dtype, dtype]})
    assert [row.dtype for row in sums_of(trace, tmp_path).rows] == ["bfloat16", "float16", "float32", "float8"]
    trace.kernel("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n", 10, 5, launched_at=11)
    sums = sums_of(trace, tmp_path)
    assert "tf32" in [row.dtype for row in sums.rows]
    assert not sums.scalar_float32


@pytest.mark.parametrize(
    "shapes",
    [[[-4, 6], [6, -5]], [[4, "6"], [6, 5]], [[2] * 1000] * 2, 7, {}, [4, 6], [[[4, 6]], [[6, 5]]], [[4.0, 6], [6, 5]]],
)
def test_malformed_shapes_are_not_counted(tmp_path: Path, shapes: object) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20, **MATRICES)
    trace.op("aten::mm", 40, 20, **MATRICES | {"Input Dims": shapes})
    sums = sums_of(trace, tmp_path)
    assert (total(sums), sums.uncounted) == (EACH, ("aten::mm without shapes",))


@pytest.mark.parametrize("name", ["flash_attn::_flash_attn_varlen_forward", "aten::_grouped_mm", "aten::_cudnn_rnn"])
def test_what_cannot_be_counted_is_named(tmp_path: Path, name: str) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20, **MATRICES).op(name, 50, 20)
    sums = sums_of(trace.kernel("kernel", 60, 5, launched_at=55), tmp_path)
    assert (total(sums), sums.uncounted) == (EACH, (name,))


def test_windows_of_a_rank_add_up() -> None:
    row = FlopSum(dtype="float32", recomputed=False, count=2, flops=10)
    again = FlopSum(dtype="float32", recomputed=True, count=1, flops=5)
    one, other = FlopSums(rows=(row,), uncounted=("a",)), FlopSums(rows=(row, again), uncounted=("b",))
    without = FlopSums(unavailable=Unavailable(reason="no shapes"))
    merged = FLOPS.merge([one, other])
    assert merged.rows == (FlopSum(dtype="float32", recomputed=False, count=4, flops=20), again)
    assert merged.uncounted == ("a", "b")
    assert FLOPS.merge([one, without]) == without
