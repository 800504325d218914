"""Runs the user's communication hook of DDP inside a span that names its bucket.

DDP takes one hook only and never gives it back. So the user's hook is registered in a wrapper, which does nothing while
no window is open. A hook that was registered before the first probe of the process cannot be wrapped; its buckets are
marked when it asks for their gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from tracekit.capture.hooks.patching import Patch, hide_this_frame
from tracekit.capture.hooks.span import span
from tracekit.model.spans import ddp_hook_span

_names_of_reducers: dict[int, str] = {}
"""The names of the open window's DDP modules, by the id of their reducer; empty while no window is open."""
_wrapped_reducers: set[int] = set()
"""Ids of the reducers whose hook is wrapped."""
_registration: Patch | None = None


def wrap_new_hooks() -> None:
    """Wrap all hooks that are registered from now on."""
    global _registration
    distributed = sys.modules.get("torch.distributed")
    if _registration is None and hasattr(distributed, "_register_comm_hook"):
        _registration = Patch(distributed, "_register_comm_hook", _register, lasting=True)
        _registration.apply()


class HookSpans:
    """Spans around the hooks of some DDP modules, between `apply` and `remove`."""

    def __init__(self) -> None:
        self._marks: Patch | None = None

    def apply(self, modules: dict[str, Any]) -> list[str]:
        """Name the spans by `modules`; return the names of modules whose hook cannot be wrapped any more."""
        wrap_new_hooks()
        _names_of_reducers.update({id(module.reducer): name for name, module in modules.items()})
        unwrapped = [
            name
            for name, m in modules.items()
            if getattr(m, "_comm_hooks", ()) and id(m.reducer) not in _wrapped_reducers
        ]
        if unwrapped:
            name = unwrapped[0] if len(unwrapped) == 1 else "unknown"

            def mark(buffer: Callable[..., Any], bucket: Any) -> Any:
                with span(_label(name, bucket, gradients := buffer(bucket))):
                    return gradients

            self._marks = Patch(sys.modules["torch.distributed"].GradBucket, "buffer", mark)
            self._marks.apply()
        return unwrapped

    def remove(self) -> None:
        _names_of_reducers.clear()
        if self._marks is not None:
            self._marks.remove()


def _register(register: Callable[..., None], reducer: Any, state: Any, hook: Callable[[Any, Any], Any]) -> None:
    reducer_id = id(reducer)

    def in_span(state: Any, bucket: Any) -> Any:
        with _hook_span(reducer_id, bucket):
            try:
                return hook(state, bucket)
            except BaseException:
                hide_this_frame()
                raise

    register(reducer, state, in_span)
    _wrapped_reducers.add(reducer_id)


def _hook_span(reducer_id: int, bucket: Any) -> AbstractContextManager[Any]:
    name = _names_of_reducers.get(reducer_id)
    if name is not None:
        with suppress(Exception):  # this runs in the user's backward pass
            return span(_label(name, bucket, bucket.buffer()))
    return nullcontext()


def _label(name: str, bucket: Any, gradients: Any) -> str:
    size_bytes = gradients.numel() * gradients.element_size()
    return ddp_hook_span(name, bucket.index(), size_bytes, is_last=bucket.is_last())
