"""What takes the place of the name of a Python function in a recorded stack.

Functions of torch, of Python and of tracekit keep their names, without the folder in which they are installed.
"""

from __future__ import annotations

import re
import sys

from tracekit.model.names.pseudonyms import Namer
from tracekit.model.names.python_functions import is_of_program, path_in_library
from tracekit.read.decode.anonymous.builtin_functions import is_public_builtin, is_public_owner

__all__ = ["anonymous_python_function"]

_FUNCTION = re.compile(r"(.+?)\.py\((\d+)\): (.+)", re.DOTALL)
_LIBRARY_PATH = re.compile(r"[^()]+")
_MODULE = re.compile(r"nn\.Module: (.+?)((?:_\d+)?)", re.DOTALL)
_BUILT_IN = re.compile(r"<built-in (function|method) ([^\s>]+)(?: of (.+?) object(?: at \w+)?)?>", re.DOTALL)
# Of code that is in no file: `<string>(2): __init__`.
_GENERATED = re.compile(r"(<.*)\((\d+)\): (.+)", re.DOTALL)
# What Python and torch call the place of such code. What follows may be a path: `<eval_with_key>.12 from /home/...`.
_PLACE = re.compile(r"<string>|<stdin>|<__array_function__ internals>|<eval_with_key>\.\d+(?! from)")
_PLACE_BEGINS = re.compile(r"(<eval_with_key>\.\d+) from .*|(<ipython-input-\d+)-.*", re.DOTALL)
_FROZEN = re.compile(r"<frozen ([\w.]+)>")
_FROZEN_MODULES = sys.stdlib_module_names | {
    *("importlib._bootstrap", "importlib._bootstrap_external", "importlib.machinery", "importlib.util", "os.path"),
}
_GENERIC_NAMES = frozenset({"forward", "<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})


def anonymous_python_function(name: str, namer: Namer) -> str:
    """Return the name of a function without that of anything that is the program's."""
    if name.startswith("<"):
        return _without_file(name, namer)
    if (module := _MODULE.fullmatch(name)) is not None:
        return f"nn.Module: {namer.name('module', module[1])}{module[2]}"
    function = _FUNCTION.fullmatch(name)
    if function is None:
        return namer.name("function", name)
    path, line, code = function.groups()
    if not is_of_program(name):
        if _LIBRARY_PATH.fullmatch(path) is None:
            return namer.name("function", name)
        return f"{path_in_library(path)}.py({line}): {code}"
    return f"{namer.name('path', path)}.py({line}): {namer.name('function', code)}"


def _without_file(name: str, namer: Namer) -> str:
    """Return the name of a built-in function, or of one that was made while the program ran."""
    if (built_in := _BUILT_IN.fullmatch(name)) is not None:
        kind, function, owner = built_in.groups()
        is_public = is_public_builtin(function) if owner is None else is_public_owner(owner)
        return f"<built-in {kind} {function if is_public else namer.name('function', function)}>"
    if (generated := _GENERATED.fullmatch(name)) is None:
        return namer.name("function", name)
    place, line, code = generated.groups()
    if (frozen := _FROZEN.fullmatch(place)) is not None and frozen[1] in _FROZEN_MODULES:
        return name
    code = code if code in _GENERIC_NAMES else namer.name("function", code)
    return f"{_place(place, namer)}({line}): {code}"


def _place(place: str, namer: Namer) -> str:
    if _PLACE.fullmatch(place) is not None:
        return place
    if (begins := _PLACE_BEGINS.fullmatch(place)) is not None:
        return begins[1] or f"{begins[2]}>"
    return f"<{namer.name('path', place)}>"
