"""Finds what torch.compile compiles, and with which options.

Modules are named by their path below the outermost one. Of compiled functions torch keeps the names of those that it
has compiled. Numbers of graphs and of graph breaks are those of the whole process. Settings have the form of the
metadata: modules with equal values together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.observers import MetadataDraft
from tracekit.model.metadata import Settings, SettingValue
from tracekit.model.names.modules import clean_module_name

_CONTEXT = ("torch._dynamo.eval_frame", "OptimizeContext")
_MODULE = ("torch.nn.modules.module", "Module")
_RESUMED = "torch_dynamo_resume_in_"  # the rest of a function behind a graph break
# The options of Inductor by which its modes differ, as torch._inductor.list_mode_options() gives them.
_MODES = {
    (True, False): "reduce-overhead",
    (True, True): "max-autotune",
    (False, True): "max-autotune-no-cudagraphs",
}

Values = Mapping[str, SettingValue]


class CompileObserver:
    """Reads the settings as the window closes, when all that the steps need is compiled."""

    def __init__(self) -> None:
        self._settings: list[Settings] = []

    def attach(self, objects: LiveObjects) -> None:
        """Nothing to see yet."""

    def detach(self, objects: LiveObjects) -> None:
        if "torch._dynamo.eval_frame" in sys.modules and not self._settings:
            self._settings = _settings(objects)

    def contribute(self, draft: MetadataDraft) -> None:
        draft.settings += self._settings
        self._settings = []


def _settings(objects: LiveObjects) -> list[Settings]:
    modules = objects.instances(*_MODULE)
    of_modules = [(module, context) for module in modules if (context := _context_of(module)) is not None]
    known = {id(context) for _, context in of_modules}
    others = [context for context in objects.instances(*_CONTEXT) if id(context) not in known]
    names = _names(modules, (module for module, _ in of_modules))
    named = [(name, _values(context)) for name, (_, context) in zip(names, of_modules, strict=True)]
    of_functions = [dict(values) for values in dict.fromkeys(tuple(_values(context).items()) for context in others)]
    if len(of_functions) > 1:  # which function has which options is not known
        of_functions = [{"backend": ", ".join(dict.fromkeys(str(values["backend"]) for values in of_functions))}]
    functions = _compiled_functions(module for module, _ in of_modules) if of_functions else ()
    settings = settings_by_values("compile", named + [(name, of_functions[0]) for name in functions])
    counts = _counts() if settings else {}
    return [*settings, Settings(component="compile", values=counts)] if counts else settings


def _context_of(module: Any) -> Any | None:
    """Return what compiles the module, wrapped by `torch.compile` or compiled in place; None for one that is not."""
    state = vars(module)
    if "_orig_mod" in state.get("_modules", {}):
        return state.get("dynamo_ctx")
    call = state.get("_compiled_call_impl")
    contents = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
    return next((content for content in contents if type(content).__name__ == _CONTEXT[1]), None)


def _inner_backend(backend: Any) -> Any | None:
    """Return the backend that `backend` wraps, by the name that this torch has for it; None if it wraps none."""
    names = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")  # the second in older versions
    return next((inner for name in names if (inner := getattr(backend, name, None)) is not None), None)


def _values(context: Any) -> dict[str, SettingValue]:
    wrapped = [context.callback]
    while (inner := _inner_backend(wrapped[-1])) is not None:
        wrapped.append(inner)
    backend = wrapped[-1]
    is_asserted = any(type(each).__name__ == "ConvertFrameAssert" for each in wrapped)  # torch 2.8
    config = getattr(backend, "config", None)
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__)
    values: dict[str, SettingValue] = {"backend": str(name)}
    if isinstance(config, dict):
        values["mode"] = _MODES.get((bool(config.get("triton.cudagraphs")), bool(config.get("max_autotune"))))
    dynamic = getattr(context, "_dynamic", None)
    values["dynamic"] = dynamic if isinstance(dynamic, bool) else None
    return values | {"fullgraph": bool(getattr(context, "fullgraph", is_asserted))}


def _names(modules: Iterable[Any], compiled: Iterable[Any]) -> list[str]:
    """Return the paths of the compiled modules; of an outermost one its class."""
    parents = {
        id(child): (module, name)
        for module in modules
        for name, child in vars(module).get("_modules", {}).items()
        if child is not None
    }
    names = []
    for module in compiled:
        path: list[str] = []
        current = module
        while (parent := parents.get(id(current))) is not None and len(path) < len(parents):
            current = parent[0]
            path.insert(0, parent[1])
            if type(current).__name__ == "DistributedDataParallel":
                path.clear()  # a module that DDP wraps has its name inside the wrapped model
        original = vars(module)["_modules"].get("_orig_mod", module)
        names.append(clean_module_name(".".join(path)) or type(original).__name__)
    return names


def _compiled_functions(modules: Iterable[Any]) -> Iterator[str]:
    """Yield the names of the compiled functions, without methods of classes of which compiled modules consist."""
    classes = {type(inner).__name__ for module in modules for inner in module.modules()}
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    seen = getattr(getattr(convert_frame, "output_codes", None), "seen", ())
    names = (code.co_qualname for reference in list(seen) if (code := reference()) is not None)
    for name in dict.fromkeys(names):
        if _RESUMED not in name and name.split(".")[0] not in classes:
            yield name


def _counts() -> dict[str, SettingValue]:
    """Return how many graphs were compiled, and how often one had to be broken up."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    graphs = counters.get("stats", {}).get("unique_graphs")
    if graphs is None:
        return {}
    return {"graphs": int(graphs), "graph_breaks": sum(counters.get("graph_break", {}).values())}


def settings_by_values(component: str, modules: Iterable[tuple[str, Values]]) -> list[Settings]:
    """Return one entry for all modules with equal values, in order of the first of them. modules: names and values."""
    names: dict[tuple[tuple[str, SettingValue], ...], list[str]] = {}
    for name, values in modules:
        names.setdefault(tuple(values.items()), []).append(name)
    return [Settings(component=component, modules=of_values, values=dict(key)) for key, of_values in names.items()]


def dtype_name(dtype: Any) -> str | None:
    """Return `bfloat16` for `torch.bfloat16`; None for None."""
    return None if dtype is None else str(dtype).removeprefix("torch.")
