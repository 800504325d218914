"""Patches that are applied and removed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from tracekit.capture.hooks.patching import Patch, remove_patches


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
