"""Memory of programs without modules: what counts as parameters, and what is unknown instead of nothing.

Programs with modules are compared with an independent count: integration/test_phases_capture.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.memory import MemoryObserver
from tracekit.capture.observers.parameters import LiveParameters
from tracekit.capture.observers.phases import PhasesObserver

torch = require_module("torch")


class Program(LiveObjects):
    """Only these objects: those of other tests may still be alive."""

    def __init__(self, *, tensors: Sequence[Any] = (), optimizers: Sequence[Any] = (), modules: Sequence[Any] = ()):
        super().__init__()
        self.by_name = {"Tensor": list(tensors), "Optimizer": list(optimizers), "Module": list(modules)}

    def instances(self, module: str, name: str) -> list[Any]:
        return self.by_name.get(name, [])


def weights(count: int) -> list[Any]:
    return [torch.nn.Parameter(torch.zeros(10)) for _ in range(count)]


def counted(
    program: Program, later: Program | None = None, step: Callable[[], object] = lambda: None
) -> tuple[int | None, int | None, int | None]:
    """Return the bytes of parameters, gradients and optimizer. `later`: what there is as the window closes."""
    observer = MemoryObserver()
    observer.attach(program)
    step()
    observer.detach(later or program)
    draft = MetadataDraft(groups=GroupTable.of_this_rank())
    observer.contribute(draft)
    assert draft.memory is not None
    return draft.memory.parameter_bytes, draft.memory.gradient_bytes, draft.memory.optimizer_bytes


def test_parameters_of_an_optimizer_are_parameters_if_no_module_has_any() -> None:
    ours = weights(3)
    optimizer = torch.optim.SGD(ours, lr=0.1, momentum=0.9)
    sum(weight.sum() for weight in ours).backward()
    optimizer.step()

    assert counted(Program(tensors=[*ours, *weights(1)], optimizers=[optimizer])) == (120, 120, 120)


def test_copies_that_an_optimizer_keeps_beside_a_module_are_its_own() -> None:
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD([parameter.detach().clone() for parameter in model.parameters()], lr=0.1)

    assert counted(Program(optimizers=[optimizer], modules=[model])) == (44, 0, 44)


def test_without_optimizers_the_leaves_that_are_declared_as_parameters_count() -> None:
    program = Program(tensors=[*weights(2), torch.zeros(5, requires_grad=True)])

    assert counted(program) == (80, 0, None)


def test_a_leaf_that_came_in_the_window_is_an_input() -> None:
    """GIVEN plain tensors, one of which was received in the last step."""
    ours = [torch.zeros(10, requires_grad=True) for _ in range(2)]
    received = torch.zeros(99, requires_grad=True)

    assert counted(Program(tensors=ours), later=Program(tensors=[*ours, received])) == (80, 0, None)


def test_the_data_type_of_an_input_is_none_of_the_parameters() -> None:
    """GIVEN plain tensors of 32 bits, and an input of 64 bits that was received in the last step."""
    ours = [torch.zeros(10, requires_grad=True)]
    received = torch.zeros(99, requires_grad=True, dtype=torch.float64)
    observer, draft = PhasesObserver(), MetadataDraft(groups=GroupTable.of_this_rank())

    observer.attach(Program(tensors=ours))
    observer.detach(Program(tensors=[*ours, received]))
    observer.contribute(draft)

    assert draft.precision is not None
    assert draft.precision.parameters == ["float32"]


def test_gradients_that_a_call_returns_are_counted() -> None:
    ours = weights(2)

    def step() -> object:
        return torch.autograd.grad(sum((weight * weight).sum() for weight in ours), ours)

    assert counted(Program(tensors=ours), step=step) == (80, 80, None)


def test_what_is_not_found_is_unknown() -> None:
    assert counted(Program()) == (None, None, None)
    assert LiveParameters.of(Program()).dtypes() == []
