"""Patches that are applied and removed."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tracekit.capture.hooks.patching import Patch, remove_patches, wrap_call


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def doubled(original: Callable[[int], int], value: int) -> int:
    return 2 * original(value)


def test_a_patch_can_be_removed() -> None:
    owner = SimpleNamespace(f=abs)
    patch = Patch(owner, "f", doubled)

    patch.apply()
    assert owner.f(-3) == 6
    patch.remove()

    assert owner.f is abs


def test_another_patch_on_top_stays_and_reaches_the_original() -> None:
    owner = SimpleNamespace(f=abs)
    patch = Patch(owner, "f", doubled)
    patch.apply()
    ours = owner.f
    owner.f = lambda value: ours(value) + 1

    patch.remove()

    assert owner.f(-3) == 4


def test_several_patches_of_one_name_are_removed_together() -> None:
    owner = SimpleNamespace(f=abs)
    for _ in range(10):
        Patch(owner, "f", doubled).apply()
    assert owner.f(-1) == 2**10

    remove_patches()

    assert owner.f is abs


@pytest.mark.parametrize("how", ["patch", "wrapped"])
@pytest.mark.usefixtures("no_collector")
def test_what_a_function_raises_is_let_go_with_all_that_its_frames_hold(how: str) -> None:
    """GIVEN an exception as each recomputation of a checkpoint raises one THEN no activations outlive it."""

    class Activations:
        pass

    def recompute() -> None:
        activations = Activations()
        held.append(weakref.ref(activations))
        raise ValueError

    def around(original: Callable[[], None]) -> None:
        original()

    held: list[weakref.ref[Activations]] = []
    owner = SimpleNamespace(f=recompute)
    if how == "patch":
        Patch(owner, "f", around).apply()
    else:
        owner.f = wrap_call(recompute, around)

    with contextlib.suppress(ValueError):
        owner.f()

    assert held[0]() is None
    remove_patches()
