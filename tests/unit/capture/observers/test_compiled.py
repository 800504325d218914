"""What torch.compile was told, for modules compiled by wrapping and in place, and for functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.compiled import CompileObserver
from tracekit.model.metadata import Settings

torch = require_module("torch")


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def described(*objects: Any) -> list[Settings]:
    """Return what is contributed where only these objects live."""
    observer, draft = CompileObserver(), MetadataDraft(groups=GroupTable())
    found = [each for model in objects for each in (model.modules() if hasattr(model, "modules") else [model])]
    observer.detach(LiveObjects(search=lambda: found))
    observer.contribute(draft)
    return draft.settings


def test_without_compiled_code_there_is_nothing_to_say() -> None:
    assert described(Layer()) == []


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_wrapped_model_has_the_name_of_its_class(fullgraph: bool) -> None:
    (settings,) = described(torch.compile(Layer(), backend="aot_eager", dynamic=True, fullgraph=fullgraph))
    assert (settings.component, settings.modules) == ("compile", ["Layer"])
    assert settings.values == {"backend": "aot_eager", "dynamic": True, "fullgraph": fullgraph}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as it imports Inductor
@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_inductor_s_mode_is_said(mode: str | None) -> None:
    (settings,) = described(torch.compile(Layer(), mode=mode))
    assert (settings.values["backend"], settings.values["mode"]) == ("inductor", mode)


def test_modules_compiled_in_place_have_their_path_and_alike_ones_are_together() -> None:
    model = torch.nn.Sequential(Layer(), Layer(), Layer())
    model[0].compile(backend="eager")
    model[2].compile(backend="eager")
    (settings,) = described(model)
    assert settings.modules == ["0", "2"]
    assert settings.values["backend"] == "eager"


def test_graphs_and_graph_breaks_are_counted() -> None:
    def with_a_break(x: Any) -> Any:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    compiled = torch.compile(with_a_break, backend="eager")
    compiled(torch.ones(2))
    contexts = [cell.cell_contents for cell in compiled.__closure__]
    (context,) = (each for each in contexts if type(each).__name__ == "OptimizeContext")
    of_function, counts = described(context)
    assert [name.rpartition(".")[2] for name in of_function.modules] == ["with_a_break"]
    assert of_function.values["backend"] == "eager"
    assert counts.values == {"graphs": 2, "graph_breaks": 1}
