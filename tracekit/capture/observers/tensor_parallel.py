"""Which modules communicate in their forward, and which parallel strategies the process groups of the job show.

`TensorParallelObserver` puts spans around modules, so that their collectives can be named by module. These are the
modules that `parallelize_module` and `distribute_module` prepared, and modules with DTensor parameters that are not
just FSDP's shards. If the program has process groups that these do not explain, tensor, expert or context parallelism
is written by hand. Then the modules of classes outside of torch get spans, too.

A span begins before the hooks that redistribute inputs and ends after those that redistribute outputs. Inside compiled
regions no hook runs, and modules that are known to be compiled get none.

`GroupParallelismObserver` derives strategies from groups, once all other observers have set the parallelism of each.
Tensor, pipeline, expert and context parallelism each have a group, so a group of that parallelism is the strategy. For
data parallelism the group is not enough: several strategies use the same one.

`DataParallelObserver` finds `nn.DataParallel`, which has no group: one process copies its model to several devices in
every step. With fewer than two devices it only calls the module that it wraps; a note says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.span import ForwardSpans
from tracekit.capture.hooks.torch_compile import compiled_module_ids
from tracekit.capture.job.groups import GroupTable
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.fsdp import parameter_groups
from tracekit.model.names.modules import clean_module_name
from tracekit.model.spans import module_span

_STYLES = "torch.distributed.tensor."
_DATA_PARALLEL = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
    ("torch.distributed.fsdp", "FSDPModule"),
)
_LIBRARIES = frozenset({"torch", "builtins", "typing", "abc"})
MAX_MODULES = 1000  # a hundred layers of ten modules; a hook costs about 3 us a call

_PARALLELISMS_WITH_GROUPS = frozenset({"tp", "pp", "ep", "cp"})


class TensorParallelObserver:
    """Holds the process groups of distributed modules until `contribute`, but not the modules."""

    def __init__(self) -> None:
        self._spans = ForwardSpans()
        self._process_groups: dict[int, Any] = {}
        self._sequence_parallel = False
        self._compiled_modules = 0
        self._modules_over_limit = 0

    def attach(self, objects: LiveObjects) -> None:
        module_ids = {id(module) for module in self._find_distributed(objects)}
        roots = _roots(objects) if module_ids else []
        if _communicates_by_hand(objects, {group.group_name for group in self._process_groups.values()}):
            roots = [root for root in _roots(objects) if next(root.parameters(), None) is not None]
            module_ids |= {id(module) for root in roots for module in root.modules() if _is_user_defined(module)}
        names = _names(roots, module_ids)
        self._modules_over_limit = max(0, len(names) - MAX_MODULES)
        # The outermost have priority: collectives of modules inside them then have their names.
        names = dict(sorted(names.items(), key=lambda item: item[1].count("."))[:MAX_MODULES])
        compiled = compiled_module_ids(objects)
        self._compiled_modules = len(names.keys() & compiled)
        for module in objects.instances("torch.nn.modules.module", "Module"):
            name = names.get(id(module))
            if name is not None and id(module) not in compiled:
                self._spans.add(module, module_span(name))

    def detach(self, objects: LiveObjects) -> None:
        self._spans.remove()
        if not self._process_groups:  # a short job may build its model inside the first step
            self._find_distributed(objects)

    def contribute(self, draft: MetadataDraft) -> None:
        process_groups, self._process_groups = list(self._process_groups.values()), {}
        tensor_groups = set()
        for process_group in process_groups:
            draft.groups.set_parallelism(process_group, "tp")
            number = draft.groups.id_of(process_group)
            if number is not None and draft.groups.groups[number].parallelism == "tp":
                tensor_groups.add(number)
        # Tensor parallelism uses a reduce-scatter only together with sequence parallelism.
        scattered = any(
            record.group in tensor_groups and record.kind == "reduce_scatter" for record in draft.collectives
        )
        if tensor_groups and (self._sequence_parallel or scattered):
            draft.strategies.append("sp")
        if self._compiled_modules:
            draft.note(f"{self._compiled_modules} modules are compiled: their collectives are not named by module")
        if self._modules_over_limit:
            draft.note(
                f"collectives are named by the {MAX_MODULES} outermost modules; "
                f"{self._modules_over_limit} more are inside them"
            )

    def _find_distributed(self, objects: LiveObjects) -> list[Any]:
        """Return the distributed modules of the program, and note their groups."""
        if "torch.distributed.tensor" not in sys.modules:
            return []
        sharding = _data_parallel_groups(objects)
        groups_of_mesh: dict[int, list[Any]] = {}
        distributed_modules = []
        for module in objects.instances("torch.nn.modules.module", "Module"):
            hooks = [hook for hook in _hooks(module) if hook.__module__.startswith(_STYLES)]
            meshes = [mesh for hook in hooks for mesh in _closure_values(hook, "DeviceMesh")]
            meshes += [p.device_mesh for p in module._parameters.values() if type(p).__name__ == "DTensor"]
            for mesh in meshes:
                if id(mesh) not in groups_of_mesh:
                    groups_of_mesh[id(mesh)] = [g for g in _groups_of(mesh) if g.group_name not in sharding]
            if any(groups_of_mesh[id(mesh)] for mesh in meshes):
                distributed_modules.append(module)
                self._sequence_parallel |= any(_is_sequence_parallel(hook) for hook in hooks)
        self._process_groups = {id(group): group for groups in groups_of_mesh.values() for group in groups}
        return distributed_modules


def _roots(objects: LiveObjects) -> list[Any]:
    """Return the modules that are part of no other."""
    modules = objects.instances("torch.nn.modules.module", "Module")
    inner = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in inner]


def _names(roots: Iterable[Any], module_ids: set[int]) -> dict[int, str]:
    """Return clean names by the ids of the `module_ids` modules, relative to their root.

    If several roots contain wanted modules, the root's class is put before the names. A module wrapped by DDP has its
    name inside the wrapped model.
    """
    by_root: list[tuple[str, dict[int, str]]] = []
    for root in roots:
        model = root.module if type(root).__name__ == "DistributedDataParallel" else root
        inside = {id(m): clean_module_name(name) for name, m in model.named_modules() if id(m) in module_ids}
        if inside:
            by_root.append((type(model).__name__, inside))
    if len(by_root) == 1:
        return by_root[0][1]
    names: dict[int, str] = {}
    classes: list[str] = []
    for kind, inside in by_root:
        classes.append(kind)
        prefix = kind if (number := classes.count(kind)) == 1 else f"{kind}#{number}"
        names.update((key, f"{prefix}.{name}" if name else prefix) for key, name in inside.items())
    return names


def _hooks(module: Any) -> list[Any]:
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [hook for hook in hooks if isinstance(getattr(hook, "__module__", None), str)]


def _closure_values(hook: Any, kind: str) -> list[Any]:
    """Return what a hook's closure holds whose type, or a base of it, has the name `kind`."""
    cells = []
    for cell in getattr(hook, "__closure__", None) or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return [content for content in cells if any(base.__name__ == kind for base in type(content).__mro__)]


def _is_sequence_parallel(hook: Any) -> bool:
    """Return whether the hook belongs to torch's `SequenceParallel` style."""
    return any(
        getattr(partial.func, "__qualname__", "").startswith("SequenceParallel.")
        for partial in _closure_values(hook, "partial")
    )


def _groups_of(mesh: Any) -> list[Any]:
    """Return the process groups along the dimensions of a mesh; none for a mesh without groups."""
    try:
        return [mesh.get_group(number) for number in range(mesh.ndim) if mesh.size(number) > 1]
    except (RuntimeError, ValueError, KeyError, AttributeError):
        return []


def _data_parallel_groups(objects: LiveObjects) -> set[str]:
    """Return the names of the groups over which FSDP2 shards and replicates: no tensor parallelism."""
    names: set[str] = set()
    for module in objects.instances("torch.distributed.fsdp", "FSDPModule"):
        state = module._get_fsdp_state()
        for group in parameter_groups(state):
            layout = getattr(group, "mesh_info", None)
            for kind in ("shard_process_group", "replicate_process_group"):
                name = getattr(getattr(layout, kind, None), "group_name", None)
                if name is not None:
                    names.add(str(name))
    return names


def _communicates_by_hand(objects: LiveObjects, distributed: set[str]) -> bool:
    """Return whether the program seems to communicate by its own code.

    It does if it has a group that neither FSDP2 nor DTensor uses (`distributed` are the names of DTensor's groups), or
    if it has groups but none of torch's wrappers.
    """
    groups = GroupTable.of_this_rank().multi_rank_groups()
    explained = distributed | _data_parallel_groups(objects)
    if any(g.ranks != "world" and g.parallelism not in {"dp", "pp"} and g.name not in explained for g in groups):
        return True
    return (
        bool(groups) and not explained and not any(objects.instances(module, name) for module, name in _DATA_PARALLEL)
    )


def _is_user_defined(module: Any) -> bool:
    """Return whether the module's class, or a base of it, is defined outside of torch."""
    return any(base.__module__.partition(".")[0] not in _LIBRARIES for base in type(module).__mro__)


class GroupParallelismObserver:
    """Contributes last."""

    def attach(self, objects: LiveObjects) -> None:
        """Nothing to see yet."""

    def detach(self, objects: LiveObjects) -> None:
        """Nothing to undo."""

    def contribute(self, draft: MetadataDraft) -> None:
        # Only experts exchange different numbers of tokens. Functional collectives run below Python, so only the
        # flight recorder sees them.
        for record in draft.collectives:
            if record.kind == "all_to_all" and record.in_shapes != record.out_shapes:
                draft.groups.set_parallelism_of(record.group, "ep")
        uses = {group.parallelism for group in draft.groups.multi_rank_groups() if group.parallelism is not None}
        draft.strategies += sorted(uses & _PARALLELISMS_WITH_GROUPS)


class DataParallelObserver:
    """Contributes the strategy, and a note if there are fewer than two devices."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}  # number of devices, by the class of the wrapped module

    def attach(self, objects: LiveObjects) -> None:
        self._find_wrappers(objects)

    def detach(self, objects: LiveObjects) -> None:
        self._find_wrappers(objects)  # a short job may build its model inside the first step

    def contribute(self, draft: MetadataDraft) -> None:
        if self._devices:
            draft.strategies.append("dp")
        for wrapped, devices in self._devices.items():
            if devices < 2:
                draft.note(
                    f"DataParallel of {wrapped} has {devices or 'no'} device{'' if devices == 1 else 's'}: "
                    f"it only calls the module"
                )

    def _find_wrappers(self, objects: LiveObjects) -> None:
        for module in objects.instances("torch.nn.parallel.data_parallel", "DataParallel"):
            self._devices[type(module.module).__name__] = len(module.device_ids)
