"""Reads how FSDP1 and FSDP2 are configured, under the names of their own arguments.

The values are those in use, which FSDP may have changed. FSDP2 does not reshard the outermost module after forward,
unless it is told to. FSDP1 shards nothing where there is one rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracekit.capture.observers.settings import dtype_name, settings_by_values
from tracekit.model.metadata import Settings, SettingValue

__all__ = ["fsdp1_settings", "fsdp2_settings", "replicate_group_of_fsdp1"]


def fsdp2_settings(groups: Sequence[tuple[str, Any]]) -> list[Settings]:
    """Return the settings of FSDP2.

    groups: its parameter groups (`FSDPParamGroup`), each with the names of its modules.
    """
    settings = settings_by_values("fsdp2", [(name, _values_of_group(group)) for name, group in groups])
    if settings:
        settings.append(Settings(component="fsdp2", values=_explicit_prefetch(group for _, group in groups)))
    return settings


def _values_of_group(group: Any) -> dict[str, SettingValue]:
    layout, after_forward, policy = group.mesh_info, group.post_forward_mesh_info, group.mp_policy
    whole = getattr(layout, "shard_mesh_size", None)
    part = getattr(after_forward, "shard_mesh_size", None)
    values: dict[str, SettingValue] = {
        "reshard_after_forward": after_forward is not None and (part == whole or part),
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
