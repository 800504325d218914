"""What a wrapper catches and raises again is as if the wrapper were not there."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable

import pytest

from tracekit.capture.hooks.patching import CaughtError, hide_this_frame


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818
    number: int


def failing() -> None:
    try:
        {}["context"]
    except KeyError:
        raise Frozen(1)  # noqa: B904 - the context is what is looked at


def hidden(call: Callable[[], None]) -> None:
    try:
        call()
    except BaseException:
        hide_this_frame()
        raise


def restored(call: Callable[[], None]) -> None:
    """Catch the error, and give it another context and more frames before it goes on."""
    try:
        try:
            call()
        except BaseException:
            caught = CaughtError()
            try:
                raise ValueError
            except ValueError:
                raise caught.error  # noqa: B904
    except BaseException:
        caught.restore()
        raise


@pytest.mark.parametrize("wrapper", [hidden, restored])
def test_a_wrapper_is_neither_in_the_traceback_nor_in_the_context(
    wrapper: Callable[[Callable[[], None]], None],
) -> None:
    with pytest.raises(Frozen) as raised:
        wrapper(lambda: wrapper(failing))

    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[1:] == ["<lambda>", "failing"]
    assert isinstance(raised.value.__context__, KeyError)


def test_outside_of_a_handler_nothing_is_hidden() -> None:
    hide_this_frame()
