"""Which parameters DDP puts into one bucket, for any limit of the bucket size.

DDP fills one bucket for each data type, in the order in which gradients came in its first iteration. It closes a bucket
as soon as its size reaches the limit. Incomplete buckets follow at the end. With `find_unused_parameters` it does not
rebuild its buckets: it fills them in the order of the parameters, and reduces the last one first.
(torch/csrc/distributed/c10d/reducer.cpp, `compute_bucket_assignment_by_size` and `rebuild_buckets`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.events.communication_rules import bytes_per_element
from tracekit.model.metadata import DdpModule

__all__ = ["Parameters", "assigned_buckets", "default_buckets", "parameters_of"]

_DEFAULT_FIRST_BYTES, _DEFAULT_CAP_BYTES = 1 << 20, 25 << 20


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of one module, one bucket after the other.

    Attributes:
        buckets: the present ones, each as places in the list of parameters.
    """

    size_bytes: tuple[int, ...]
    dtypes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    rebuilt: bool


def parameters_of(module: DdpModule, elements: Sequence[int] = ()) -> Parameters | None:
    """Return the parameters of a module; None where their sizes are not known.

    `elements`: of the gradients in order, for a bucket map without sizes.
    """
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
        sizes += [count * width for count in counts]
        dtypes += [bucket.dtype] * len(counts)
    return Parameters(
        size_bytes=tuple(sizes),
        dtypes=tuple(dtypes),
        buckets=tuple(buckets),
        rebuilt=module.rebuilt or not module.find_unused,
    )


def assigned_buckets(parameters: Parameters, cap_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return the buckets, in order of launch, that an explicit `bucket_cap_mb` of `cap_bytes` makes."""
    if parameters.rebuilt:
        return _filled(parameters, range(len(parameters.size_bytes)), cap_bytes, cap_bytes)
    in_order = [place for bucket in reversed(parameters.buckets) for place in bucket]
    return tuple(reversed(_filled(parameters, in_order, cap_bytes, cap_bytes)))


def default_buckets(parameters: Parameters) -> tuple[tuple[int, ...], ...]:
    """Return the buckets that DDP makes by default: a small one first, so that reducing begins early."""
    return _filled(parameters, range(len(parameters.size_bytes)), _DEFAULT_FIRST_BYTES, _DEFAULT_CAP_BYTES)


def _filled(
    parameters: Parameters, order: Sequence[int], first_bytes: int, cap_bytes: int
) -> tuple[tuple[int, ...], ...]:
    """Return buckets that are closed at a size: the first of each data type at another one."""
    limits: dict[str, int] = {}
    closed: list[tuple[int, ...]] = []
    members: dict[str, list[int]] = {}
    filled_bytes: dict[str, int] = {}
    for place in order:
        dtype = parameters.dtypes[place]
        members.setdefault(dtype, []).append(place)
        filled_bytes[dtype] = filled_bytes.get(dtype, 0) + parameters.size_bytes[place]
        if filled_bytes[dtype] >= limits.get(dtype, first_bytes):
            closed.append(tuple(members.pop(dtype)))
            filled_bytes[dtype] = 0
            limits[dtype] = cap_bytes
    return (*closed, *(tuple(rest) for rest in members.values()))
