"""Finds the tensors that a served call returns, and keeps their shapes, each set of shapes once."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from tracekit.model.metadata import RpcResult

_MAX_TENSORS = 10_000  # in a result
_MAX_RESULTS = 64  # different ones; of further ones nothing is known

_results: dict[str, RpcResult] = {}

__all__ = ["note_result", "results"]


def note_result(value: Any) -> str | None:
    """Return a key for the shapes of the tensors in `value`; None without any, or if there are too many."""
    shapes: list[list[int]] = []
    for tensor in _tensors(value):
        if len(shapes) == _MAX_TENSORS:
            return None
        shapes.append(list(tensor.shape))
    if not shapes:
        return None
    key = f"{zlib.crc32(repr(shapes).encode()):08x}"
    if key not in _results:
        if len(_results) >= _MAX_RESULTS:
            return None
        _results[key] = RpcResult(key=key, shapes=shapes)
    return key


def results(keys: Iterable[str | None]) -> list[RpcResult]:
    """Return what these keys stand for, each once."""
    return [_results[key] for key in dict.fromkeys(keys) if key is not None and key in _results]


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in lists, tuples, dicts and modules; of a module parameters and buffers."""
    torch = sys.modules["torch"]
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, torch.nn.Module):
            pending += [*item.parameters(), *item.buffers()]
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
