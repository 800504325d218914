"""Names of modules as a reader of the model's code knows them."""

from __future__ import annotations

import re

__all__ = ["clean_module_name", "name_of_layers_alike", "names_together"]

# Attributes under which torch.compile, activation checkpointing and FSDP1 keep the module that they wrap.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a path
_AND_MORE = re.compile(r" and (\d{1,9}) more$")


def clean_module_name(name: str) -> str:
    """`blocks.0._orig_mod.linear` to `blocks.0.linear`; of several names, as FSDP2 writes a group's, each."""
    each = name.split(", ")
    return ", ".join(".".join(part for part in one.split(".") if part not in _WRAPPERS) for one in each)


def names_together(names: str) -> tuple[list[str], int]:
    """The names of modules that go together, `a, b and 3 more`, and how many more there are."""
    match = _AND_MORE.search(names)
    listed = names if match is None else names[: match.start()]
    return listed.split(", "), 0 if match is None else int(match[1])


def name_of_layers_alike(name: str) -> str:
    """`blocks.*.up` of `blocks.3.up`: what modules have in common that differ only in numbers of their path."""
    return _NUMBER.sub("*", name)
