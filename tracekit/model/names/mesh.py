"""Which kind of parallelism the name of a mesh dimension or of a process group stands for, and what a mesh calls it."""

from __future__ import annotations

import re

_NAMES_OF_PARALLELISM = {
    "dp": "data ddp dp dp_mod_ep dp_replicate dp_shard dp_shard_in_ep dp_shard_mod_ep efsdp expert_data fsdp hsdp "
    "replicate shard",
    "tp": "etp expert_tensor model tensor tensor_model tp",
    "pp": "pipe pipeline pipeline_model pp stage",
    "ep": "ep expert expert_model",
    "cp": "context cp ring sequence sp ulysses",
}
_PARALLELISM_OF_DIMENSION = {
    name: parallelism for parallelism, names in _NAMES_OF_PARALLELISM.items() for name in names.split()
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
