"""Patches that are applied and removed."""

from __future__ import annotations

import contextlib
import gc
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tracekit.capture.hooks.patching import Patch, remove_patches, take_failures, wrap_call


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


class Unwanted(Exception):  # noqa: N818
    """What a hook raises besides the program's error."""


def raising(original: Callable[[int], int], value: int) -> int:
    """A hook that fails after what it is around has failed."""
    try:
        return original(value)
    finally:
        raise Unwanted


def failing(value: int) -> int:
    try:
        return [0][value]
    except IndexError:
        raise ValueError(value)  # noqa: B904 - the context is what is looked at


@pytest.mark.parametrize("around", [doubled, raising])
@pytest.mark.parametrize("removed", [False, True])
def test_the_program_s_error_has_neither_frames_nor_context_of_a_patch(
    around: Callable[..., int], removed: bool
) -> None:
    owner = SimpleNamespace(f=failing)
    patch = Patch(owner, "f", around)
    patch.apply()
    call = owner.f  # a program may keep the replacement
    if removed:
        patch.remove()

    with pytest.raises(ValueError, match="-3") as raised:
        call(-3)

    remove_patches()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames][1:] == ["failing"]
    assert isinstance(raised.value.__context__, IndexError)
    assert not raised.value.__suppress_context__
    assert [note.partition(" ")[0] for note in take_failures()] == ([] if removed or around is doubled else ["raising"])


def test_an_error_of_a_call_that_torch_makes_has_no_frames_of_the_hook() -> None:
    with pytest.raises(ValueError, match="-3") as raised:
        wrap_call(failing, doubled)(-3)

    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][1:] == ["failing"]
