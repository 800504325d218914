"""The search for objects of the program."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects


class Base:
    def __init__(self) -> None:
        self._modules: dict[str, Any] = {}


class Derived(Base):
    pass


class Unrelated:
    """Has a `__class__` property that must not be read, as proxies have."""

    @property
    def __class__(self) -> Any:
        raise AssertionError("asked for its class")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AssertionError


@pytest.fixture
def torch_like(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """`torch.nn.modules.module` as if its `Module` were `Base`, and a class of it `Derived`."""
    module = types.ModuleType("torch.nn.modules.module")
    module.Module, module.Derived = Base, Derived  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.nn.modules.module", module)
    return module


def test_instances_of_subclasses_are_found_once_and_others_are_not_asked_for_their_class(
    torch_like: types.ModuleType,
) -> None:
    """GIVEN objects from before and after a garbage collection, and one whose `__class__` must not be read."""
    old = [Derived(), Base(), Unrelated()]
    gc.collect()
    new = [Derived()]
    program = LiveObjects()
    found = {name: program.instances(torch_like.__name__, name) for name in ("Module", "Derived")}
    assert sorted(map(id, found["Module"])) == sorted([id(old[0]), id(old[1]), id(new[0])])
    assert sorted(map(id, found["Derived"])) == sorted([id(old[0]), id(new[0])])


def test_an_object_hidden_from_the_garbage_collector_is_found_if_it_is_watched(torch_like: types.ModuleType) -> None:
    gc.collect()
    hidden, seen = Base(), None
    try:
        gc.freeze()
        seen = Base()
        assert LiveObjects().instances(torch_like.__name__, "Module") == [seen]
        assert LiveObjects(watch=[hidden, seen]).instances(torch_like.__name__, "Module") == [seen, hidden]
    finally:
        gc.unfreeze()


def test_the_modules_of_a_watched_model_are_found(torch_like: types.ModuleType) -> None:
    class Model(Base):
        def modules(self) -> list[Base]:
            return [self, self.inner]

        def __init__(self) -> None:
            super().__init__()
            self.inner = Derived()

    model = Model()
    found = LiveObjects(watch=[model]).instances(torch_like.__name__, "Module")
    assert len(found) == 2
    assert {id(each) for each in found} == {id(model), id(model.inner)}


def test_types_that_cannot_be_compared_or_hashed_are_skipped(torch_like: types.ModuleType) -> None:
    class Odd(type):
        def __eq__(cls, other: object) -> bool:
            raise AssertionError("asked whether it is another")

        __hash__ = None  # type: ignore[assignment]

    class Foreign(metaclass=Odd):
        def __init__(self) -> None:
            self.items: list[int] = []  # so that the collector tracks it

    foreign, wanted = Foreign(), Base()
    assert any(found is wanted for found in LiveObjects().instances(torch_like.__name__, "Module"))
    assert foreign.items == []


def test_a_module_whose_constructor_failed_is_not_found(torch_like: types.ModuleType) -> None:
    class Failed(Base):
        def __init__(self) -> None:
            self.kept = [self]

    failed = Failed()
    found = LiveObjects().instances("torch.nn.modules.module", "Module")
    assert not any(candidate is failed for candidate in found)
    failed.kept.clear()


def test_objects_for_a_later_call_are_not_kept_alive_and_not_searched_again(
    torch_like: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, dropped = Base(), Base()
    program = LiveObjects()
    assert len(program.instances(torch_like.__name__, "Module")) == 2
    later = program.later()
    del program, dropped
    gc.collect()
    monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("searched again"))
    assert later.instances(torch_like.__name__, "Module") == [kept]


def test_of_tensors_the_leaves_that_get_gradients_are_found_and_no_mode_is_asked() -> None:
    """GIVEN a parameter, a tensor that gets a gradient, and tensors that get none or are no leaves."""
    torch = require_module("torch")

    class Logged(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("asked")

    declared, raw = torch.nn.Parameter(torch.ones(2)), torch.ones(3, requires_grad=True)
    others = [torch.ones(4), raw * 2, torch.nn.Parameter(torch.ones(5), requires_grad=False)]
    with Logged():
        found = LiveObjects().instances("torch", "Tensor")
    found_ids = set(map(id, found))

    assert {id(declared), id(raw)} <= found_ids
    assert not found_ids & set(map(id, others))


def test_a_tensor_for_a_later_call_outlives_the_graph_that_held_it() -> None:
    """GIVEN a leaf that only a graph holds WHEN it is found again and the graph is freed THEN the tensor is whole."""
    torch = require_module("torch")
    leaf = torch.ones(3, requires_grad=True)
    leaf_id = id(leaf)
    result = leaf * 2
    program = LiveObjects()
    program.instances("torch", "Tensor")
    later = program.later()
    del program, leaf
    (found,) = [tensor for tensor in later.instances("torch", "Tensor") if id(tensor) == leaf_id]
    del later, result
    gc.collect()

    assert found.sum().item() == 3.0
