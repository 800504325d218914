"""What modules are called in the model's code, and whether a Python function in a profile is of the program.

Other functions are of a library. The name tells: Kineto writes `train.py(12): step`, with paths relative to `sys.path`
where it can.
"""

from __future__ import annotations

import re
import sys

# Attributes in which torch.compile, activation checkpointing and FSDP1 store the module that they wrap.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a path
_AND_MORE = re.compile(r" and (\d{1,9}) more$")

_LIBRARIES = frozenset({"torch", "tracekit", *sys.stdlib_module_names})


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


def is_of_program(name: str) -> bool:
    """Return whether this is a Python function of a file that is neither torch's nor Python's."""
    path, _, function = name.partition(".py(")
    if not function or path.startswith("<"):
        return False
    return path_in_library(path).partition("/")[0] not in _LIBRARIES


def path_in_library(path: str) -> str:
    """Return the path of a file without the folder in which its library is installed, if there is one."""
    installed = max(path.rfind("-packages/"), path.rfind("/lib/python3"))
    if installed >= 0:
        path = path[installed + 1 :].partition("/")[2]
        if path.startswith(("python3", "lib/python3")):
            path = path.partition("python3")[2].partition("/")[2]
    return path.lstrip("/")
