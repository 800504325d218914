"""Which kind of parallelism the name of a mesh dimension or of a process group stands for, and what a mesh calls it."""

from __future__ import annotations

import re

_PARALLELISM_OF_DIMENSION = {
    "data": "dp",
    "ddp": "dp",
    "dp": "dp",
    "dp_mod_ep": "dp",
    "dp_replicate": "dp",
    "dp_shard": "dp",
    "dp_shard_in_ep": "dp",
    "dp_shard_mod_ep": "dp",
    "efsdp": "dp",
    "expert_data": "dp",
    "fsdp": "dp",
    "hsdp": "dp",
    "replicate": "dp",
    "shard": "dp",
    "etp": "tp",
    "expert_tensor": "tp",
    "model": "tp",
    "tensor": "tp",
    "tensor_model": "tp",
    "tp": "tp",
    "pipe": "pp",
    "pipeline": "pp",
    "pipeline_model": "pp",
    "pp": "pp",
    "stage": "pp",
    "ep": "ep",
    "expert": "ep",
    "expert_model": "ep",
    "context": "cp",
    "cp": "cp",
    "ring": "cp",
    "sequence": "cp",
    "sp": "cp",
    "ulysses": "cp",
}
_MESH_PREFIX = "mesh_"
_NAMELESS = re.compile(r"dim_\d+|default")  # torch's names for dimensions, and for a mesh, without one
# Endings that libraries add, as in TENSOR_MODEL_PARALLEL_GROUP.
_DECORATION = re.compile(r"_?(parallel|pg|group|process)$")


def parallelism_of_dimension(name: str) -> str | None:
    """Return dp, tp, pp, ep or cp if a dimension of this name is usually for that, else None."""
    name = name.lower()
    while (bare := _DECORATION.sub("", name)) != name:
        name = bare
    return _PARALLELISM_OF_DIMENSION.get(name)


def parallelism_of_group(description: str) -> str | None:
    """Return dp, tp, pp, ep or cp if a group's description says so, else None.

    Such descriptions are torch's for a dimension of a mesh (`mesh_tp`), and usual ones of programs (`tp_group`,
    `TENSOR_MODEL_PARALLEL_GROUP`).
    """
    return parallelism_of_dimension(description.partition("#")[0].removeprefix(_MESH_PREFIX))


def dimension_of_group(description: str) -> str | None:
    """Return the name that a mesh gives the dimension of a group, `dp_shard` for `mesh_dp_shard`; None without one."""
    name = description.partition("#")[0]
    if not name.startswith(_MESH_PREFIX) or _NAMELESS.fullmatch(name.removeprefix(_MESH_PREFIX)):
        return None
    return name.removeprefix(_MESH_PREFIX) or None
