"""Dimensions of a device mesh: what kind of parallelism a dimension's name stands for."""

from __future__ import annotations

__all__ = ["parallelism_of_group"]

_PARALLELISM_OF_DIMENSION = {
    "data": "dp",
    "ddp": "dp",
    "dp": "dp",
    "dp_replicate": "dp",
    "dp_shard": "dp",
    "fsdp": "dp",
    "replicate": "dp",
    "shard": "dp",
    "model": "tp",
    "tensor": "tp",
    "tp": "tp",
    "pipe": "pp",
    "pipeline": "pp",
    "pp": "pp",
    "ep": "ep",
    "expert": "ep",
    "context": "cp",
    "cp": "cp",
}
_MESH_PREFIX = "mesh_"


def parallelism_of_group(description: str) -> str | None:
    """dp, tp, pp, ep or cp, when torch described the group as a usual dimension of a mesh (`mesh_tp`); else None."""
    if not description.startswith(_MESH_PREFIX):
        return None
    return _PARALLELISM_OF_DIMENSION.get(description.removeprefix(_MESH_PREFIX))
