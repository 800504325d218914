"""Keeps the capture out of what torch.compile compiles.

While a compiled region runs eagerly between its graphs, torch.compile tries to compile each Python function that is
called there. What that function calls becomes part of its graph. The capture's own functions must be neither, or a
recording would add graph breaks, and compiled programs would keep calls into it.

`hide_from_compiler()` has the compiler skip them as candidates. A function that a traced one may call asks
`trace_check()` first, and while it is traced does exactly what was there before.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects

_PACKAGE = "tracekit.capture"  # not the package of this module, which is a part of it
_hidden: set[str] = set()  # modules


def trace_check() -> Callable[[], bool]:
    """Return a function that tells whether torch.compile is tracing its caller; the tracer understands it."""
    torch = sys.modules.get("torch")
    return torch.compiler.is_dynamo_compiling if torch is not None else bool


def hide_from_compiler() -> None:
    """Have torch.compile skip the functions of the capture; what they call is compiled as before."""
    with contextlib.suppress(Exception):
        skip = _skip_function()
        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGE) and name not in _hidden:
                _hidden.add(name)
                for code in _code_objects(module):
                    skip(code)


def compiled_module_ids(objects: LiveObjects) -> set[int]:
    """Return the ids of the compiled modules and of those inside them: a hook would have them compiled again.

    If torch.compile is set to guard the hooks of each module, all modules are returned. Modules that only a compiled
    function reaches are not known; a hook on one of them costs one more compilation.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and not getattr(dynamo.config, "skip_nnmodule_hook_guards", True):
        return {id(module) for module in objects.instances("torch.nn.modules.module", "Module")}
    compiled = objects.instances("torch._dynamo.eval_frame", "OptimizedModule")
    if dynamo is not None:
        modules = objects.instances("torch.nn.modules.module", "Module")
        compiled = compiled + [module for module in modules if module.__dict__.get("_compiled_call_impl") is not None]
    return {id(inner) for module in compiled for inner in module.modules()}


def _skip_function() -> Callable[[types.CodeType], Any]:
    """Return what makes torch.compile skip a code object.

    torch.compiler.disable() would not do: it breaks the graph of a trace that reaches the function.
    """
    eval_frame = sys.modules["torch"]._C._dynamo.eval_frame
    if not hasattr(eval_frame, "_FrameAction"):  # torch 2.6
        return lambda code: eval_frame.skip_code(code)
    action = eval_frame._FrameAction
    strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
    return lambda code: eval_frame.set_code_exec_strategy(code, strategy)


def _code_objects(module: types.ModuleType) -> Iterator[types.CodeType]:
    """Yield the code of every function of a module, of its classes, and inside other functions."""
    waiting: list[Any] = [
        value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__
    ]
    visited: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, types.CodeType):
            yield value
            waiting += [constant for constant in value.co_consts if isinstance(constant, types.CodeType)]
        elif isinstance(value, type):
            waiting += vars(value).values()
        elif isinstance(value, property):
            waiting += [value.fget, value.fset]
        elif (code := getattr(getattr(value, "__func__", value), "__code__", None)) is not None:
            waiting.append(code)
