"""A recording adds no graph break to compiled code, and its functions are not compiled."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import tracekit
from tracekit.capture.hooks import torch_compile
from tracekit.capture.hooks.patching import Patch
from tracekit.capture.hooks.torch_compile import _code_objects, hide_from_compiler

pytestmark = pytest.mark.filterwarnings("default")  # torch.compile itself issues warnings


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()
    counters.clear()


def a_training_step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


compiled = functools.partial(torch.compile, backend="eager")


def what_the_compiler_did(step) -> tuple[list[float], int, int]:
    """Return the losses of eight steps, the number of compiled graphs, and the number of graph breaks."""
    torch.compiler.reset()
    counters.clear()
    inputs = torch.Generator().manual_seed(1)
    losses = [step(torch.randn(3, 4, generator=inputs)).item() for _ in range(8)]
    return losses, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


def test_a_step_that_is_compiled_as_a_whole_keeps_its_graphs(tmp_path: Path):
    plain = what_the_compiler_did(compiled(a_training_step()))
    recorder = tracekit.probe(path=tmp_path / "runs", steps=2)
    recorded = what_the_compiler_did(recorder(compiled(a_training_step())))
    recorder.finish()

    assert recorded == plain
    assert list(tmp_path.glob("runs/*/attempt-0/*/rank-000000.json.gz"))


def test_a_recorded_step_may_be_compiled(tmp_path: Path):
    plain = what_the_compiler_did(compiled(a_training_step()))
    recorded = what_the_compiler_did(compiled(tracekit.probe(path=tmp_path / "runs", steps=2)(a_training_step())))

    assert recorded == plain


def test_all_code_objects_of_a_module_are_found():
    module = types.ModuleType("a_module")
    source = """
def f():
    def inner(): pass
class A:
    nothing = None
    @property
    def p(self): pass
"""
    exec(source, vars(module))
    module.A.itself = module.A

    assert {code.co_name for code in _code_objects(module)} == {"f", "inner", "p"}


def test_a_replaced_function_is_traced_like_the_original():
    class Library:
        @staticmethod
        def double(x: Tensor) -> Tensor:
            return x * 2

    def with_a_break(original, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return original(x)

    patch = Patch(Library, "double", with_a_break)
    patch.apply()
    try:
        result = torch.compile(lambda x: Library.double(x) + 1, backend="eager", fullgraph=True)(torch.ones(2))
    finally:
        patch.remove()

    assert result.tolist() == [3.0, 3.0]
    assert counters["stats"]["unique_graphs"] == 1


def test_the_functions_of_all_modules_of_the_capture_are_hidden_from_the_compiler():
    hide_from_compiler()

    assert torch_compile._hidden == {name for name in sys.modules if name.startswith("tracekit.capture")}
