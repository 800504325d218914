"""Names of modules as they are in the model's code."""

from __future__ import annotations

import re

__all__ = ["clean_module_name", "name_of_layers_alike", "names_together"]

# Attributes in which torch.compile, activation checkpointing and FSDP1 store the module that they wrap.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a path
_AND_MORE = re.compile(r" and (\d{1,9}) more$")


def clean_module_name(name: str) -> str:
    """Return the name without wrappers: `blocks.0.linear` for `blocks.0._orig_mod.linear`.

    FSDP2 writes the names of a group of modules with ", " between them; each of them is cleaned.
    """
    each = name.split(", ")
    return ", ".join(".".join(part for part in one.split(".") if part not in _WRAPPERS) for one in each)


def names_together(names: str) -> tuple[list[str], int]:
    """Return the listed module names of `a, b and 3 more`, and how many more there are."""
    match = _AND_MORE.search(names)
    listed = names if match is None else names[: match.start()]
    return listed.split(", "), 0 if match is None else int(match[1])


def name_of_layers_alike(name: str) -> str:
    """Return `blocks.*.up` for `blocks.3.up`: the common name of modules that differ only in numbers of their path."""
    return _NUMBER.sub("*", name)
