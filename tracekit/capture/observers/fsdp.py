"""Finds what FSDP2 (`fully_shard`) and FSDP1 shard and gather as one unit, in which groups, and how they are set.

FSDP2 writes labels with module names. FSDP1 does not, so while a window is open its unshards, its gradient reductions
and the uses of unsharded parameters become spans. Names are those of `named_modules()` of the outermost FSDP module,
which is "" itself, without the names that wrappers add.

Settings have the names of FSDP's own arguments. The values are those in use, which FSDP may have changed. FSDP2 does
not reshard the outermost module after forward, unless it is told to. FSDP1 shards nothing where there is one rank.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, PatchSet
from tracekit.capture.hooks.span import span
from tracekit.capture.hooks.torch_compile import compiled_module_ids
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.compiled import dtype_name, settings_by_values
from tracekit.model.metadata import FsdpUnit, Settings, SettingValue
from tracekit.model.names.modules import clean_module_name
from tracekit.model.spans import FsdpAction, FsdpPhase, fsdp_span

_PHASE_OF_STATE: dict[str, FsdpPhase] = {
    "FORWARD": "forward",
    "BACKWARD_PRE": "backward",
    "BACKWARD_POST": "backward",
}


class Fsdp2Observer:
    """Notes which of FSDP's parameter groups unshard, so that models which do not run do not count.

    Holds them from `attach` to `contribute`: a training function may return before the window is written.
    """

    def __init__(self) -> None:
        self._groups: dict[int, Any] = {}
        self._patch: Patch | None = None

    def attach(self, objects: LiveObjects) -> None:
        group = getattr(
            sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_param_group"), "FSDPParamGroup", None
        )
        if group is not None:
            self._patch = Patch(group, "unshard", self._note_use)
            self._patch.apply()

    def detach(self, objects: LiveObjects) -> None:
        if self._patch is not None:
            self._patch.remove()
        elif not self._groups:  # a short job may import FSDP inside its first step
            modules = objects.instances("torch.distributed.fsdp", "FSDPModule")
            self._groups = {
                id(group): group for module in modules for group in parameter_groups(module._get_fsdp_state())
            }

    def contribute(self, draft: MetadataDraft) -> None:
        groups, self._groups = self._groups, {}
        sharding: list[tuple[str, Any]] = []
        for group in groups.values():
            layout = group.mesh_info
            shard_group = getattr(layout, "shard_process_group", None)
            replicate_group = getattr(layout, "replicate_process_group", None)
            process_groups = [shard_group, replicate_group, getattr(layout, "reduce_scatter_process_group", None)]
            process_groups.append(getattr(group.post_forward_mesh_info, "shard_process_group", None))
            for process_group in process_groups:
                if process_group is not None:
                    draft.groups.set_parallelism(process_group, "dp")
            if shard_group is None:  # `replicate`: data parallel on FSDP's machinery, nothing is sharded
                draft.strategies.append("ddp")
                continue
            draft.strategies += ["fsdp2"] if replicate_group is None else ["fsdp2", "hsdp"]
            if replicate_group is not None:
                draft.groups.set_dimensions_of_hsdp(shard_group, replicate_group)
            name = clean_module_name(group._module_fqn or "")  # lists all modules that are sharded as one
            sharding.append((name, group))
            group_id = draft.groups.id_of(shard_group)
            if group_id is not None:
                size_bytes = sum(p._orig_size.numel() * p.sharded_param.element_size() for p in group.fsdp_params)
                draft.fsdp.append(FsdpUnit(module=name, unit_bytes=size_bytes, shard_group=group_id))
        draft.settings += fsdp2_settings(sharding)

    def _note_use(self, unshard: Callable[..., Any], group: Any, *rest: Any, **more: Any) -> Any:
        self._groups[id(group)] = group
        return unshard(group, *rest, **more)


class Fsdp1Observer:
    """Puts spans around what FSDP1 does; contributes the wrapped modules that unshard.

    Holds the wrapped modules from `attach` to `contribute`.
    """

    def __init__(self) -> None:
        self._units: list[tuple[Any, str]] = []
        self._name_of_handle: dict[int, str] = {}
        self._unsharded_handles: set[int] | None = None  # ids of handles; None if unshards are not observed
        self._patches = PatchSet()
        self._compiled = False

    def attach(self, objects: LiveObjects) -> None:
        self._find(objects)
        if not self._units:
            return
        self._compiled = not compiled_module_ids(objects).isdisjoint(id(module) for module, _ in self._units)
        if self._compiled:  # a change of traced code would have it compiled again
            return
        runtime = sys.modules["torch.distributed.fsdp._runtime_utils"]
        wrapper = sys.modules["torch.distributed.fsdp.fully_sharded_data_parallel"]
        self._unsharded_handles = set()
        patches = [
            Patch(runtime, "_unshard", self._around_unshard),
            Patch(runtime, "_reduce_grad", self._around_reduction),
            Patch(runtime, "_reduce_grad_no_shard", self._around_reduction),
            Patch(runtime, "_pre_backward_hook", self._around_backward_use),
            Patch(wrapper, "_pre_forward_unshard", self._around_forward_use),
        ]
        self._patches.apply(patches)

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        if self._unsharded_handles is None or not self._unsharded_handles <= self._name_of_handle.keys():
            self._find(objects)  # a short job may wrap its model inside the first step

    def contribute(self, draft: MetadataDraft) -> None:
        units, self._units, self._name_of_handle = self._units, [], {}
        if self._compiled:
            draft.note("FSDP1 runs inside torch.compile, so its communication is not named by module")
        sharding: list[tuple[str, Any]] = []
        for module, name in units:
            if self._unsharded_handles is not None and id(module._handle) not in self._unsharded_handles:
                continue
            sharding.append((name, module))
            draft.strategies.append("fsdp1")
            draft.groups.set_parallelism(module.process_group, "dp")
            replicate_group = replicate_group_of_fsdp1(module)
            if replicate_group is not None:
                draft.strategies.append("hsdp")
                draft.groups.set_parallelism(replicate_group, "dp")
                draft.groups.set_dimensions_of_hsdp(module.process_group, replicate_group)
            group_id, handle = draft.groups.id_of(module.process_group), module._handle
            if group_id is not None and handle is not None:
                parameter = handle.flat_param
                size_bytes = parameter._unpadded_unsharded_size.numel() * parameter.element_size()
                draft.fsdp.append(FsdpUnit(module=name, unit_bytes=size_bytes, shard_group=group_id))
        draft.settings += fsdp1_settings(sharding)

    def _find(self, objects: LiveObjects) -> None:
        modules = objects.instances("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel")
        modules = [module for module in modules if hasattr(module, "_handle")]  # else its constructor failed
        names = _names(modules)
        self._units = [(module, names[id(module)]) for module in modules]
        self._name_of_handle = {id(module._handle): name for module, name in self._units if module._handle is not None}

    def _around_unshard(self, unshard: Callable[..., Any], state: Any, handle: Any, *rest: Any, **more: Any) -> Any:
        if self._unsharded_handles is not None:
            self._unsharded_handles.add(id(handle))
        # For a prefetch, FSDP unshards another module's handle with the state of the module that runs.
        action: FsdpAction = "unshard" if handle is getattr(state, "_handle", None) else "prefetch"
        with self._span(action, handle, _phase(handle)):
            return unshard(state, handle, *rest, **more)

    def _around_reduction(self, reduce: Callable[..., Any], state: Any, handle: Any, *rest: Any, **more: Any) -> Any:
        with self._span("reduce", handle, "backward"):
            return reduce(state, handle, *rest, **more)

    def _around_forward_use(self, use: Callable[..., Any], state: Any, handle: Any, *rest: Any, **more: Any) -> Any:
        with self._span("use", handle, "forward"):
            return use(state, handle, *rest, **more)

    def _around_backward_use(
        self, use: Callable[..., Any], state: Any, module: Any, handle: Any, *rest: Any, **more: Any
    ) -> Any:
        with self._span("use", handle, "backward"):
            return use(state, module, handle, *rest, **more)

    def _span(self, action: FsdpAction, handle: Any, phase: FsdpPhase | None) -> contextlib.AbstractContextManager[Any]:
        name = self._name_of_handle.get(id(handle))
        if name is None or phase is None:
            return contextlib.nullcontext()
        return span(fsdp_span(action, phase, name))


def _phase(handle: Any) -> FsdpPhase | None:
    """Return the phase for which FSDP unshards; None if it does so for the user, as in `summon_full_params`."""
    return _PHASE_OF_STATE.get(getattr(getattr(handle, "_training_state", None), "name", ""))


def parameter_groups(state: Any) -> list[Any]:
    """Return the parameter groups of an FSDP2 module's state."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    only = state._fsdp_param_group  # torch before 2.12
    return [] if only is None else [only]


def _names(modules: Iterable[Any]) -> dict[int, str]:
    """Return, by the id of each module, its clean name below the outermost of `modules` that contains it."""
    modules = list(modules)
    module_ids = {id(module) for module in modules}
    inner: set[int] = set()
    for module in modules:
        if id(module) not in inner:
            inner.update(module_ids.intersection(map(id, module.modules())) - {id(module)})
    names: dict[int, str] = {}
    for root in modules:
        if id(root) not in inner:
            for name, module in root.named_modules():
                if id(module) in module_ids:
                    names.setdefault(id(module), clean_module_name(name))
    return names


def fsdp2_settings(groups: Sequence[tuple[str, Any]]) -> list[Settings]:
    """Return the settings of FSDP2.

    groups: its parameter groups (`FSDPParamGroup`), each with the names of its modules.
    """
    settings = settings_by_values("fsdp2", [(name, _values_of_group(group)) for name, group in groups])
    if settings:
        settings.append(Settings(component="fsdp2", values=_explicit_prefetch(group for _, group in groups)))
    return settings


def _values_of_group(group: Any) -> dict[str, SettingValue]:
    layout, after_forward = group.mesh_info, group.post_forward_mesh_info
    policy = getattr(group, "mp_policy", None) or group.fsdp_params[0].mp_policy  # torch 2.15 has one of each parameter
    whole = getattr(layout, "shard_mesh_size", None)
    shard_size = getattr(after_forward, "shard_mesh_size", None)
    values: dict[str, SettingValue] = {
        "reshard_after_forward": after_forward is not None and (shard_size == whole or shard_size),
        "param_dtype": dtype_name(policy.param_dtype),
        "reduce_dtype": dtype_name(policy.reduce_dtype),
        "offload_policy": type(group.offload_policy).__name__ if _offloads(group.offload_policy) else None,
    }
    if not group.reshard_after_backward:  # set for a pipeline's micro-batches
        values["reshard_after_backward"] = False
    return values | _sizes(whole, getattr(layout, "replicate_mesh_size", None))


def _offloads(policy: Any) -> bool:
    return hasattr(policy, "pin_memory")  # the default policy, which offloads nothing, lacks it


def _explicit_prefetch(groups: Iterable[Any]) -> dict[str, SettingValue]:
    """Return how many modules any module prefetches explicitly, at most; 0: FSDP2 decides itself."""
    states = [module._get_fsdp_state() for group in groups for module in group.modules if _has_state(module)]
    forward = [len(getattr(state, "_states_to_forward_prefetch", ())) for state in states]
    backward = [len(getattr(state, "_states_to_backward_prefetch", ())) for state in states]
    return {
        "set_modules_to_forward_prefetch": max(forward, default=0),
        "set_modules_to_backward_prefetch": max(backward, default=0),
    }


def _has_state(module: Any) -> bool:
    return hasattr(type(module), "_get_fsdp_state")


def fsdp1_settings(modules: Sequence[tuple[str, Any]]) -> list[Settings]:
    """Return the settings of FSDP1. modules: the wrapped modules, each with its name."""
    return settings_by_values("fsdp1", [(name, _values_of_module(module)) for name, module in modules])


def _values_of_module(module: Any) -> dict[str, SettingValue]:
    precision, hook = module.mixed_precision, getattr(module, "_comm_hook", None)
    values: dict[str, SettingValue] = {
        "sharding_strategy": module.sharding_strategy.name,
        "backward_prefetch": getattr(module.backward_prefetch, "name", None),
        "forward_prefetch": bool(module.forward_prefetch),
        "limit_all_gathers": bool(module.limit_all_gathers),
        "param_dtype": dtype_name(precision.param_dtype),
        "reduce_dtype": dtype_name(precision.reduce_dtype),
        "buffer_dtype": dtype_name(precision.buffer_dtype),
        "cpu_offload": bool(module.cpu_offload.offload_params),
        "use_orig_params": bool(module._use_orig_params),
    }
    if hook is not None:
        values["comm_hook"] = str(getattr(hook, "__qualname__", type(hook).__name__))
    replicate_group = replicate_group_of_fsdp1(module)
    return values | _sizes(module.process_group.size(), None if replicate_group is None else replicate_group.size())


def replicate_group_of_fsdp1(module: Any) -> Any | None:
    """Return the process group over which hybrid sharding replicates; None with any other strategy."""
    return getattr(module, "_inter_node_pg", None) if "HYBRID" in module.sharding_strategy.name else None


def _sizes(shard: int | None, replicate: int | None) -> dict[str, SettingValue]:
    """Return over how many ranks parameters are sharded, and how many replicas there are."""
    sizes = {"dp_shard": shard, "dp_replicate": replicate}
    return {name: int(size) for name, size in sizes.items() if size is not None}
