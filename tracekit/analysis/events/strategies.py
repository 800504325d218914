"""Which kinds of parallelism a trace shows, as slugs of the JSON contract."""

from __future__ import annotations

from tracekit.model.events import DecodedTrace

__all__ = ["strategies_of"]

_LABELS = (
    ("ddp", ("DistributedDataParallel.", "torch.distributed.ddp.reducer::")),
    ("dp", ("DataParallel.",)),
    ("fsdp1", ("FullyShardedDataParallel.",)),
    ("fsdp2", ("FSDP::",)),
    ("tp", ("Redistribute",)),
    ("pp", ("PP:", "tracekit.pp:")),
)


def strategies_of(trace: DecodedTrace) -> tuple[tuple[str, ...], bool]:
    """Return the strategies, and whether they are inferred.

    They come from tracekit's metadata. Without it they are inferred from the labels that torch writes.
    """
    metadata = trace.header.metadata
    if metadata is not None and metadata.strategies:
        return tuple(metadata.strategies), False
    labels_of_any = tuple(label for _, labels in _LABELS for label in labels)
    names = [name for name in trace.events.strings if name.startswith(labels_of_any)]
    return tuple(slug for slug, labels in _LABELS if any(name.startswith(labels) for name in names)), True
