"""Wraps what `@tracekit.probe` decorates: a function, a coroutine function, a generator function, or a method of them.

An exception of the program passes a wrapper as if it were not there: no frame of it is in the traceback.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from tracekit.capture.hooks.patching import hide_this_frame

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCalls:
    """What a wrapper tells the probe.

    Attributes:
        enter: reports that a call begins; returns False if it is inside another call, and then its end is not reported.
        leave: reports that the call has ended, and whether it raised.
        cancel: reports that the call which has begun is no step; `leave` follows.
    """

    enter: Callable[[], bool]
    leave: Callable[[bool], None]
    cancel: Callable[[], None]


def wrap_function(step: Callable[P, R], calls: StepCalls) -> Callable[P, R]:
    """Return `step` as a function each call of which is a step."""
    enter, leave = calls.enter, calls.leave  # looked up once, as a call that is not recorded must cost nearly nothing

    @functools.wraps(step)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        entered = enter()
        try:
            result = step(*args, **kwargs)
        except BaseException:
            hide_this_frame()
            if entered:
                leave(True)
            raise
        if entered:
            leave(False)
        return result

    return recorded


def wrap_coroutine_function(step: Callable[..., Any], calls: StepCalls) -> Callable[..., Any]:
    """Return `step` as a coroutine function each coroutine of which is a step."""

    @functools.wraps(step)
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        entered = calls.enter()
        try:
            result = await step(*args, **kwargs)
        except BaseException:
            hide_this_frame()
            if entered:
                calls.leave(True)
            raise
        if entered:
            calls.leave(False)
        return result

    return recorded


def wrap_generator_function(step: Callable[..., Any], calls: StepCalls) -> Callable[..., Any]:
    """Return `step` as a function that returns a generator each item of which is a step; so for async generators.

    It is no generator function itself: that would refuse wrong arguments only when the first item is asked for.
    """
    wrap_items: Callable[..., Any] = _async_steps if inspect.isasyncgenfunction(step) else _steps

    @functools.wraps(step)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            items = step(*args, **kwargs)
        except BaseException:
            hide_this_frame()
            raise
        wrapped = wrap_items(items, calls)
        wrapped.__name__, wrapped.__qualname__ = items.__name__, items.__qualname__
        return wrapped

    return recorded


def _steps(items: Generator[Any, Any, Any], calls: StepCalls) -> Generator[Any, Any, Any]:
    resume: Callable[[], Any] = functools.partial(next, items)
    while True:
        entered = calls.enter()
        try:
            item = resume()
        except StopIteration as end:
            if entered:
                calls.cancel()
                calls.leave(False)
            return end.value
        except BaseException:
            hide_this_frame()
            if entered:
                calls.leave(True)
            raise
        if entered:
            calls.leave(False)
        try:
            value = yield item
        except GeneratorExit:
            items.close()
            raise
        except BaseException as error:
            hide_this_frame()
            resume = functools.partial(items.throw, error)
        else:
            resume = functools.partial(items.send, value)


async def _async_steps(items: AsyncGenerator[Any, Any], calls: StepCalls) -> AsyncGenerator[Any, Any]:
    resume: Callable[[], Awaitable[Any]] = functools.partial(anext, items)
    while True:
        entered = calls.enter()
        try:
            item = await resume()
        except StopAsyncIteration:
            if entered:
                calls.cancel()
                calls.leave(False)
            return
        except BaseException:
            hide_this_frame()
            if entered:
                calls.leave(True)
            raise
        if entered:
            calls.leave(False)
        try:
            value = yield item
        except GeneratorExit:
            await items.aclose()
            raise
        except BaseException as error:
            hide_this_frame()
            resume = functools.partial(items.athrow, error)
        else:
            resume = functools.partial(items.asend, value)
