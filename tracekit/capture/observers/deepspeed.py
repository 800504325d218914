"""Puts spans around what DeepSpeed engines do: phases, ZeRO 3's gathers, and the reductions of ZeRO 1 to 3.

DeepSpeed writes no labels on CPUs, and on GPUs NVTX ranges, which torch.profiler does not see. While a window is open,
its engine's forward, backward and step become spans. So do gathers and reductions, with the names of the modules whose
parameters they move. The spans are those of FSDP1, as ZeRO 3 shards in the same way:

* `use`: fetches the parameters of a module that is about to run, including the wait for them.
* `unshard`, inside `use`: all-gathers the parameters that are not there yet.
* `prefetch`, inside `use`: all-gathers parameters for later, often of several modules at once. They are needed when the
  first of these modules runs, so its `use` carries the names of all of them.
* `unshard` in the optimizer's step of ZeRO 1 and 2: all-gathers what each rank has updated.
* `reduce`: reduces a bucket of gradients; it carries the names of all modules in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import PatchSet, patch_of
from tracekit.capture.hooks.span import span
from tracekit.capture.observers import MetadataDraft
from tracekit.model.metadata import FsdpUnit, Settings, SettingValue
from tracekit.model.names.modules import clean_module_name
from tracekit.model.spans import FsdpAction, FsdpPhase, engine_span, fsdp_span, optimizer_span

_ENGINE = "deepspeed.runtime.engine"
_ZERO_1_2 = ("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer")
_ZERO_3 = ("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer_Stage3")
_FETCHES = ("deepspeed.runtime.zero.partitioned_param_coordinator", "PartitionedParameterCoordinator")
_MOST_NAMES = 3  # of modules in one span


class DeepSpeedObserver:
    """Holds the engines that ran, and the names of their parameters, from `attach` to `contribute`.

    Only engines that ran count: one of an earlier training run may still be alive.
    """

    def __init__(self) -> None:
        self._engines: list[Any] = []
        self._module_of_parameter: dict[int, str] = {}  # id of a parameter -> name of its module
        self._module_names: dict[int, str] = {}  # id of a module -> its name
        self._prefetched: dict[str, str] = {}  # module -> all module names in the prefetch of its parameters
        self._fetching: str | None = None
        self._patches = PatchSet()
        self._notes: list[str] = []

    def attach(self, objects: LiveObjects) -> None:
        engines = find_engines(objects)
        if not engines:
            return
        patches = [
            *patch_of(_ENGINE, "DeepSpeedEngine", "forward", self._engine_in(engine_span("forward"))),
            *patch_of(_ENGINE, "DeepSpeedEngine", "backward", self._engine_in(engine_span("backward"))),
            *patch_of(_ENGINE, "DeepSpeedEngine", "step", self._engine_in(optimizer_span("step"))),
            *patch_of(*_ZERO_1_2, "reduce_ipg_grads", self._reduce_1_2),
            *patch_of(_ZERO_1_2[0], None, "all_gather_dp_groups", self._gather_1_2),
            *patch_of(*_ZERO_3, f"_{_ZERO_3[1]}__reduce_and_partition_ipg_grads", self._reduce_3),
        ]
        if any(_is_compiled(engine) for engine in engines):
            self._notes.append("parameter fetches of ZeRO 3 are not named: the model is compiled")
        else:
            patches += patch_of(*_FETCHES, "fetch_sub_module", self._fetch)
            patches += patch_of(*_FETCHES, f"_{_FETCHES[1]}__all_gather_params", self._gather)
        self._patches.apply(patches)

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        if not self._engines:  # a short job may build its engine inside the first step
            for engine in find_engines(objects):
                self._add_engine(engine)

    def contribute(self, draft: MetadataDraft) -> None:
        engines, self._engines = self._engines, []
        for engine in engines:
            stage = int(engine.zero_optimization_stage())
            draft.strategies.append(f"zero{stage}" if stage else "dp")
            draft.settings.append(Settings(component="zero", values=_settings(engine, stage)))
            for process_group, parallelism in _process_groups(engine):
                draft.groups.set_parallelism(process_group, parallelism)
            if stage == 3:
                draft.fsdp += self._units(engine, draft)
        for text in self._notes:
            draft.note(text)
        self._module_of_parameter, self._module_names, self._prefetched = {}, {}, {}

    def _add_engine(self, engine: Any) -> None:
        """Name the modules of an engine; from the second engine on, the model's class is part of the names."""
        number = len(self._engines)
        self._engines.append(engine)
        prefix = f"{type(engine.module).__name__}#{number}." if number else ""
        for name, module in engine.module.named_modules():
            name = clean_module_name(prefix + name).rstrip(".")
            self._module_names.setdefault(id(module), name)
            for parameter in vars(module).get("_parameters", {}).values():
                if parameter is not None:
                    self._module_of_parameter.setdefault(id(parameter), name)

    def _engine_in(self, name: str) -> Callable[..., Any]:
        def in_span(method: Callable[..., Any], engine: Any, *args: Any, **kwargs: Any) -> Any:
            if not any(engine is added for added in self._engines):
                self._add_engine(engine)
            with span(name):
                return method(engine, *args, **kwargs)

        return in_span

    def _units(self, engine: Any, draft: MetadataDraft) -> list[FsdpUnit]:
        """Return the modules under ZeRO 3 that have parameters themselves."""
        size_bytes: dict[tuple[str, int], int] = {}
        for parameter in engine.module.parameters():
            group = draft.groups.id_of(getattr(parameter, "ds_process_group", None))
            owner = self._module_of_parameter.get(id(parameter))
            if group is not None and owner is not None:
                unit = (owner, group)
                size_bytes[unit] = size_bytes.get(unit, 0) + int(parameter.ds_numel) * parameter.element_size()
        return [FsdpUnit(module=name, unit_bytes=size, shard_group=group) for (name, group), size in size_bytes.items()]

    def _fetch(
        self, fetch: Callable[..., Any], coordinator: Any, current_submodule: Any, *rest: Any, **more: Any
    ) -> Any:
        forward = bool(rest[0] if rest else more["forward"])
        phase: FsdpPhase = "forward" if forward else "backward"
        name = self._module_names.get(id(current_submodule))
        if name is None or not _parameters_of(current_submodule):
            return fetch(coordinator, current_submodule, *rest, **more)
        fetched = self._prefetched.get(name, name)
        self._prefetched = {module: names for module, names in self._prefetched.items() if names != fetched}
        outer, self._fetching = self._fetching, name
        try:
            with span(fsdp_span("use", phase, fetched)):
                return fetch(coordinator, current_submodule, *rest, **more)
        finally:
            self._fetching = outer

    def _gather(
        self, gather: Callable[..., Any], coordinator: Any, params: Iterable[Any], forward: bool, *rest: Any
    ) -> Any:
        phase: FsdpPhase = "forward" if forward else "backward"
        absent = [parameter for parameter in params if _is_absent(parameter)]
        names = self._names(sorted(absent, key=lambda parameter: parameter.ds_id, reverse=not forward))
        if not names:
            return gather(coordinator, params, forward, *rest)
        action: FsdpAction = "unshard" if names == [self._fetching] else "prefetch"
        joined = _joined(names)
        if action == "prefetch":
            self._prefetched.update(dict.fromkeys(names, joined))
        with span(fsdp_span(action, phase, joined)):
            return gather(coordinator, params, forward, *rest)

    def _reduce_1_2(self, reduce: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        members = [entry for bucket in optimizer.ipg_buckets.values() for entry in bucket.params]
        parameters = [optimizer.bit16_groups[group][index] for group, index, _ in members]
        return self._in_reduction(parameters, reduce, optimizer, *args, **kwargs)

    def _gather_1_2(self, gather: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        flat = args[0] if args else kwargs["groups_flat"]
        optimizers = (engine.optimizer for engine in self._engines)
        matching = [optimizer for optimizer in optimizers if getattr(optimizer, "bit16_groups_flat", None) is flat]
        names = self._names(
            parameter for optimizer in matching for group in optimizer.bit16_groups for parameter in group
        )
        if not names:
            return gather(*args, **kwargs)
        with span(fsdp_span("unshard", "optimizer", _joined(names))):
            return gather(*args, **kwargs)

    def _reduce_3(self, reduce: Callable[..., Any], optimizer: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return self._in_reduction(optimizer.ipg_buckets[dtype].params, reduce, optimizer, dtype, *args, **kwargs)

    def _in_reduction(self, parameters: Sequence[Any], reduce: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        names = self._names(parameters)
        if not names:
            return reduce(*args, **kwargs)
        with span(fsdp_span("reduce", "backward", _joined(names))):
            return reduce(*args, **kwargs)

    def _names(self, parameters: Iterable[Any]) -> list[str]:
        """Return the names of the modules that have these parameters, each once, in order."""
        owners = (self._module_of_parameter.get(id(parameter)) for parameter in parameters)
        return list(dict.fromkeys(owner for owner in owners if owner is not None))


def find_engines(objects: LiveObjects) -> list[Any]:
    """Return the engines whose constructor has finished."""
    engines = objects.instances(_ENGINE, "DeepSpeedEngine")
    return [engine for engine in engines if getattr(engine, "optimizer", None) is not None]


def _joined(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    listed = ", ".join(name or "<root>" for name in names[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"


def _parameters_of(module: Any) -> list[Any]:
    """Return the parameters that ZeRO fetches when the module runs: its own, or of a leaf module all below it."""
    return list(module.parameters(recurse=hasattr(module, "ds_z3_leaf_module")))


def _is_absent(parameter: Any) -> bool:
    return getattr(getattr(parameter, "ds_status", None), "name", "") == "NOT_AVAILABLE"


def _settings(engine: Any, stage: int) -> dict[str, SettingValue]:
    """Return the settings of an engine, by the keys of DeepSpeed's own configuration."""
    of_stage_3 = (
        *("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
        *("stage3_max_live_parameters", "stage3_max_reuse_distance"),
    )
    names = ["overlap_comm", "contiguous_gradients", "reduce_bucket_size"]
    names += of_stage_3 if stage == 3 else ["allgather_bucket_size"]
    values: dict[str, SettingValue] = {"stage": stage}
    for name in names:
        method = getattr(engine, f"zero_{name.removeprefix('stage3_')}", None)
        value = method() if method is not None and stage else None
        if isinstance(value, int):
            values[name] = value
    for name in ("offload_optimizer", "offload_param"):
        offload = getattr(engine, f"zero_{name}")()
        device = getattr(offload, "device", None)
        values[name] = None if device is None else str(getattr(device, "value", device))
    values["bf16"], values["fp16"] = bool(engine.bfloat16_enabled()), bool(engine.fp16_enabled())
    values["gradient_accumulation_steps"] = int(engine.gradient_accumulation_steps())
    return values


def _is_compiled(engine: Any) -> bool:
    """Return whether fetches are part of compiled code, which a span around them would break."""
    optimized = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    return bool(engine.is_compiled) or any(isinstance(module, optimized) for module in engine.module.modules())


def _process_groups(engine: Any) -> list[tuple[Any, str]]:
    """Return the groups of an engine, each with its parallelism."""
    optimizer = engine.optimizer
    data_parallel = [
        getattr(optimizer, "dp_process_group", None),
        getattr(engine, "data_parallel_group", None),
        getattr(engine, "seq_data_parallel_group", None),
        *_values(getattr(engine, "expert_data_parallel_group", None)),
    ]
    sharded = {id(group): group for p in engine.module.parameters() if (group := getattr(p, "ds_process_group", None))}
    experts = _values(getattr(engine, "expert_parallel_group", None))
    groups = [*((group, "ep") for group in experts), *((group, "dp") for group in (*data_parallel, *sharded.values()))]
    return [(group, parallelism) for group, parallelism in groups if group is not None]


def _values(groups: Any) -> list[Any]:
    return list(groups.values()) if isinstance(groups, dict) else []
