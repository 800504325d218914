"""Whether a Python function in a profile is of the program or of a library.

Its name says so. Kineto writes `train.py(12): step`, with paths relative to `sys.path` where it can.
"""

from __future__ import annotations

import sys

__all__ = ["is_of_program", "path_in_library"]

_LIBRARIES = frozenset({"torch", "tracekit", *sys.stdlib_module_names})


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
