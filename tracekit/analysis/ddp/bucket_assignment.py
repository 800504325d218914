"""Which parameters DDP puts into one bucket, for any limit of the size.

Comes in: the parameters of a module as its buckets list them. Goes out: buckets as tuples of places among them.

DDP fills a bucket for each data type in the order in which gradients came in its first iteration (that of the rebuilt
buckets), and closes it as soon as its size reaches the limit; what is left over follows at the end. Looking for unused
parameters, it does not rebuild: it fills them in the order of the parameters, and reduces the last one first.
(torch/csrc/distributed/c10d/reducer.cpp, `compute_bucket_assignment_by_size` and `rebuild_buckets`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.events.communication_rules import bytes_per_element
from tracekit.model.metadata import DdpModule

__all__ = ["Parameters", "assigned_buckets", "parameters_of"]


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Of one module, one bucket after the other. `buckets`: the present ones, as places."""

    names: tuple[str, ...]
    size_bytes: tuple[int, ...]
    dtypes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    rebuilt: bool


def parameters_of(module: DdpModule, elements: Sequence[int] = ()) -> Parameters | None:
    """None without sizes: `elements` are those of the gradients in order, where the map does not have them."""
    names: list[str] = []
    sizes: list[int] = []
    dtypes: list[str] = []
    buckets: list[tuple[int, ...]] = []
    rest = list(elements)
    for bucket in module.buckets:
        width = bytes_per_element(bucket.dtype) or 1
        counts = list(bucket.elements)
        while not counts or sum(counts) * width < bucket.size_bytes:
            if bucket.elements or not rest:
                return None
            counts.append(rest.pop(0))
        buckets.append(tuple(range(len(sizes), len(sizes) + len(counts))))
        names += bucket.parameters if len(bucket.parameters) == len(counts) else [""] * len(counts)
        sizes += [count * width for count in counts]
        dtypes += [bucket.dtype] * len(counts)
    return Parameters(
        names=tuple(names),
        size_bytes=tuple(sizes),
        dtypes=tuple(dtypes),
        buckets=tuple(buckets),
        rebuilt=module.rebuilt or not module.find_unused,
    )


def assigned_buckets(parameters: Parameters, cap_bytes: int) -> tuple[tuple[int, ...], ...]:
    """With an explicit `bucket_cap_mb`, in order of launch."""
    if parameters.rebuilt:
        return _filled(parameters, range(len(parameters.size_bytes)), cap_bytes)
    in_order = [place for bucket in reversed(parameters.buckets) for place in bucket]
    return tuple(reversed(_filled(parameters, in_order, cap_bytes)))


def _filled(parameters: Parameters, order: Sequence[int], cap_bytes: int) -> tuple[tuple[int, ...], ...]:
    closed: list[tuple[int, ...]] = []
    members: dict[str, list[int]] = {}
    filled_bytes: dict[str, int] = {}
    for place in order:
        dtype = parameters.dtypes[place]
        members.setdefault(dtype, []).append(place)
        filled_bytes[dtype] = filled_bytes.get(dtype, 0) + parameters.size_bytes[place]
        if filled_bytes[dtype] >= cap_bytes:
            closed.append(tuple(members.pop(dtype)))
            filled_bytes[dtype] = 0
    return (*closed, *(tuple(rest) for rest in members.values()))
