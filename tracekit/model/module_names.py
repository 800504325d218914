"""Names of modules as a reader of the model's code knows them."""

from __future__ import annotations

__all__ = ["clean_module_name"]

# Attributes under which torch.compile, activation checkpointing and FSDP1 keep the module that they wrap.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


def clean_module_name(name: str) -> str:
    """`blocks.0._orig_mod.linear` to `blocks.0.linear`; of several names, as FSDP2 writes a group's, each."""
    each = name.split(", ")
    return ", ".join(".".join(part for part in one.split(".") if part not in _WRAPPERS) for one in each)
