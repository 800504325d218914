"""The purpose of hand-written collectives, by the tensors they get. All tests have one process and a group of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.communication_purposes import PurposeObserver

torch = require_module("torch")
distributed = require_module("torch.distributed")


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    assert not distributed.is_initialized(), "another test left its process group behind"
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))


def backward(model: Any) -> None:
    model(torch.ones(4, 8)).sum().backward()


def observed(step: Callable[[Any], None], *, strategies: tuple[str, ...] = (), steps: int = 2) -> MetadataDraft:
    """Return what the observer contributes after some steps of a model; other observers found `strategies`."""
    model = network()
    program = _OneModel(model)
    observer = PurposeObserver()
    observer.attach(program)
    for _ in range(steps):
        step(model)
    observer.detach(program)
    draft = MetadataDraft(groups=GroupTable.of_this_rank(), strategies=list(strategies))
    if strategies:
        draft.groups.set_parallelism(distributed.group.WORLD, "dp")
    observer.contribute(draft)
    return draft


class _OneModel(LiveObjects):
    """Models of other tests may still be alive."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def instances(self, module: str, name: str) -> list[Any]:
        return list(self._model.modules())


class _Tensors(LiveObjects):
    """A program without modules. It may have an optimizer; other tests may have left theirs."""

    def __init__(self, tensors: Sequence[Any], optimizers: Sequence[Any] = ()) -> None:
        super().__init__()
        self._by_name = {"Tensor": list(tensors), "Optimizer": list(optimizers)}

    def instances(self, module: str, name: str) -> list[Any]:
        return self._by_name.get(name, [])


def observed_tensors(program: _Tensors, step: Callable[[], None], *, steps: int = 2) -> MetadataDraft:
    """Return what the observer contributes after some steps of a program without modules."""
    observer = PurposeObserver()
    observer.attach(program)
    for _ in range(steps):
        step()
    observer.detach(program)
    draft = MetadataDraft(groups=GroupTable.of_this_rank(), steps=steps)
    observer.contribute(draft)
    return draft


def parallelism_and_strategies(draft: MetadataDraft) -> tuple[str | None, list[str]]:
    return draft.groups.groups[0].parallelism, draft.strategies


def test_an_all_reduce_of_each_gradient_is_data_parallel_by_hand() -> None:
    def step(model: Any) -> None:
        backward(model)
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad.data)
        model.zero_grad()

    draft = observed(step)

    assert parallelism_and_strategies(draft) == ("dp", ["manual_dp"])
    (use,) = draft.uses
    assert (use.purpose, use.calls, use.in_backward, use.parameters) == ("gradients", 12, 0, 6)


def test_a_flat_buffer_of_all_gradients_is_data_parallel_by_hand() -> None:
    def step(model: Any) -> None:
        backward(model)
        distributed.all_reduce(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))

    draft = observed(step)

    assert parallelism_and_strategies(draft) == ("dp", ["manual_dp"])
    assert [(use.purpose, use.calls, use.parameters) for use in draft.uses] == [("gradients", 2, None)]


def test_averaging_in_gradient_hooks_is_data_parallel_by_hand() -> None:
    def average(gradient: Any) -> Any:
        distributed.all_reduce(gradient)
        return gradient

    def step(model: Any) -> None:
        handles = [parameter.register_hook(average) for parameter in model.parameters()]
        backward(model)
        for handle in handles:
            handle.remove()

    draft = observed(step)

    assert parallelism_and_strategies(draft) == ("dp", ["manual_dp"])
    (use,) = draft.uses
    assert (use.calls, use.in_backward, use.parameters) == (12, 12, 6)


class _GatherColumns(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, shard: Any) -> Any:
        parts = [torch.empty_like(shard)]
        distributed.all_gather(parts, shard)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class _Columns(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return _GatherColumns.apply(x)


def test_activations_within_a_module_are_tensor_parallel() -> None:
    draft = observed(lambda model: torch.nn.Sequential(model, _Columns())(torch.ones(4, 8)).sum().backward())

    assert draft.groups.groups[0].parallelism == "tp"
    assert [(use.purpose, use.calls) for use in draft.uses] == [("activations", 2)]


def test_shared_parameters_do_not_make_tensor_parallelism_data_parallel() -> None:
    def step(model: Any) -> None:
        torch.nn.Sequential(model, _Columns())(torch.ones(4, 8)).sum().backward()
        distributed.all_reduce(model[2].bias.grad)

    assert observed(step).groups.groups[0].parallelism == "tp"


def test_tokens_with_split_sizes_go_to_experts() -> None:
    class Dispatch(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            routed = torch.empty_like(x)
            distributed.all_to_all_single(routed, x, [4], [4])
            return routed

    with torch.no_grad():
        assert observed(lambda _: Dispatch()(torch.ones(4, 8))).groups.groups[0].parallelism == "ep"


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(()), torch.ones(1), torch.ones(17), torch.ones(100, dtype=torch.int64)],
    ids=["a loss", "one element", "a table of metrics", "integers"],
)
def test_what_is_reduced_for_a_log_is_ignored(tensor: Any) -> None:
    def step(model: Any) -> None:
        backward(model)
        distributed.all_reduce(tensor.clone())
        distributed.barrier()

    draft = observed(step)

    assert parallelism_and_strategies(draft) == (None, [])
    assert draft.uses == []


def test_the_parallelism_of_a_wrapper_s_group_stays() -> None:
    """GIVEN a communication hook of DDP that is written in Python."""

    def step(model: Any) -> None:
        backward(model)
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)

    draft = observed(step, strategies=("ddp",))

    assert parallelism_and_strategies(draft) == ("dp", ["ddp"])
    assert draft.uses == []


def test_no_patch_is_left() -> None:
    before = dict(vars(distributed.ProcessGroup))
    observed(backward)

    assert dict(vars(distributed.ProcessGroup)) == before


@pytest.mark.parametrize("has_optimizer", [True, False])
@pytest.mark.parametrize("declared", [True, False])
def test_gradients_of_a_list_of_tensors_are_gradients(has_optimizer: bool, declared: bool) -> None:
    weights = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    if declared:
        weights = [torch.nn.Parameter(weight) for weight in weights]
    optimizers = [torch.optim.SGD(weights, lr=0.1)] if has_optimizer else []

    def step() -> None:
        x = torch.ones(4, 8)
        for weight in weights:
            x = torch.relu(x @ weight)
        x.sum().backward()
        for weight in weights:
            distributed.all_reduce(weight.grad)
            weight.grad = None

    draft = observed_tensors(_Tensors(weights, optimizers), step)

    assert parallelism_and_strategies(draft) == ("dp", ["manual_dp"])
    assert [(use.purpose, use.calls, use.parameters) for use in draft.uses] == [("gradients", 6, 3)]


def test_gradients_that_a_call_returns_are_gradients() -> None:
    weights = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]

    def step() -> None:
        x = torch.ones(4, 8)
        for weight in weights:
            x = torch.relu(x @ weight)
        for gradient in torch.autograd.grad(x.sum(), weights):
            distributed.all_reduce(gradient)

    draft = observed_tensors(_Tensors(weights), step)

    assert parallelism_and_strategies(draft) == ("dp", ["manual_dp"])
    assert [(use.purpose, use.calls, use.parameters) for use in draft.uses] == [("gradients", 6, 3)]


class _SumOverRanks(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = x.clone()
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def test_what_an_autograd_function_communicates_is_an_activation() -> None:
    """GIVEN no module around it, and no graph inside of it."""
    weight = torch.randn(8, 8, requires_grad=True)
    draft = observed_tensors(
        _Tensors([weight]), lambda: _SumOverRanks.apply(torch.ones(4, 8) @ weight).sum().backward()
    )

    assert draft.groups.groups[0].parallelism == "tp"
    assert [(use.purpose, use.calls) for use in draft.uses] == [("activations", 2)]


@pytest.mark.parametrize(("layers", "grad", "parallelism"), [(2, False, "tp"), (1, False, None), (2, True, None)])
def test_matrices_of_several_layers_are_activations_of_inference(
    layers: int, grad: bool, parallelism: str | None
) -> None:
    """GIVEN gathers of matrices without a graph: one a step may collect results, and so may any while training."""
    weight = torch.nn.Parameter(torch.randn(8, 8))

    def step() -> None:
        x = torch.ones(4, 8)
        for _ in range(layers):
            x = (x @ weight).detach()
            distributed.all_gather([torch.empty_like(x)], x)

    with torch.set_grad_enabled(grad):
        draft = observed_tensors(_Tensors([weight]), step, steps=3)

    assert draft.groups.groups[0].parallelism == parallelism


# ---- what data-parallel ranks share ---------------------------------------------------------------------------------


def _parts(parameter: Any) -> None:
    distributed.all_gather([torch.empty_like(parameter)], parameter.data)


@pytest.mark.parametrize(
    ("before", "reduce", "after", "strategy"),
    [
        (None, distributed.all_reduce, None, "manual_dp"),
        (None, lambda gradient: distributed.reduce(gradient, 0), _parts, "zero1"),
        (_parts, distributed.all_reduce, None, "manual_fsdp"),
        (None, None, lambda parameter: distributed.all_reduce(parameter.data), "local_sgd"),
        (None, distributed.all_reduce, lambda parameter: distributed.broadcast(parameter.data, 0), "manual_dp"),
    ],
)
def test_when_parameters_are_shared_tells_who_updates_them(
    before: Callable[[Any], None] | None,
    reduce: Callable[[Any], None] | None,
    after: Callable[[Any], None] | None,
    strategy: str,
) -> None:
    def step(model: Any) -> None:
        for parameter in model.parameters() if before else ():
            before(parameter)
        backward(model)
        for parameter in model.parameters() if reduce else ():
            reduce(parameter.grad)
        for parameter in model.parameters() if after else ():
            after(parameter)

    assert parallelism_and_strategies(observed(step)) == ("dp", [strategy])


def test_parameters_that_one_rank_sends_to_all_say_nothing() -> None:
    def step(model: Any) -> None:
        for parameter in model.parameters():
            distributed.broadcast(parameter.data, 0)

    assert parallelism_and_strategies(observed(step)) == (None, [])


class _ScatterRows(torch.autograd.Function):  # type: ignore[misc, name-defined]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        rows = torch.empty_like(x)
        distributed.reduce_scatter(rows, [x.contiguous()])
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def test_tensor_parallelism_that_scatters_is_by_sequence() -> None:
    """GIVEN gradients of most parameters that are reduced, but of few elements, as those of norms."""

    def step(model: Any) -> None:
        _ScatterRows.apply(model(torch.ones(4, 8))).sum().backward()
        for parameter in (layer.bias for layer in model):
            distributed.all_reduce(parameter.grad)

    assert parallelism_and_strategies(observed(step)) == ("tp", ["sp"])
