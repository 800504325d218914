"""Finds `DistributedDataParallel` modules and maps their gradient buckets to parameter names, without a hook.

The map comes from DDP's logging data. Before DDP has rebuilt its buckets, it comes from the assignment function that
DDP itself uses. Both allocate nothing; `reducer._get_zeros_like_grad_buckets()` would need a second copy of all
gradients on the device.
"""

from __future__ import annotations

import sys
from typing import Any

from tracekit.capture.hooks.ddp_comm_hooks import HookSpans
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.span import runs_backward
from tracekit.capture.observers import MetadataDraft
from tracekit.model.metadata import Bucket, DdpModule

DEFAULT_CAP_BYTES = 25 * 2**20


class DdpObserver:
    """Holds the DDP modules from `attach` to `contribute`.

    A training function may return, and drop its model, before the window is written at the end of the process.
    """

    def __init__(self) -> None:
        self._modules: list[Any] = []
        self._descriptions: list[DdpModule] = []
        self._problems: list[str] = []
        self._hooks = HookSpans()
        self._unwrapped_hooks: list[str] = []

    def attach(self, objects: LiveObjects) -> None:
        self._modules = _find_ddp(objects)
        self._describe_all()
        self._unwrapped_hooks = self._hooks.apply(dict(zip(_names(self._modules), self._modules, strict=True)))

    def detach(self, objects: LiveObjects) -> None:
        self._hooks.remove()
        if runs_backward():
            return  # killed in a backward pass, where the reducer holds its lock: keep what `attach` saw
        # A short job may build its model inside the first step.
        self._modules = self._modules or _find_ddp(objects)
        self._describe_all()

    def contribute(self, draft: MetadataDraft) -> None:
        draft.ddp += self._descriptions
        for module in self._modules:
            draft.groups.set_parallelism(module.process_group, "dp")
        self._modules = []
        if self._descriptions:
            draft.strategies.append("ddp")
        for text in self._problems:
            draft.note(text)
        for name in self._unwrapped_hooks:
            draft.note(
                f"the communication hook of {name} was registered before the probe was made: its buckets are marked, "
                f"the time in the hook is not"
            )

    def _describe_all(self) -> None:
        self._problems = []
        self._descriptions = [
            self._describe(module, name) for name, module in zip(_names(self._modules), self._modules, strict=True)
        ]

    def _describe(self, module: Any, name: str) -> DdpModule:
        logged = module._get_ddp_logging_data()
        rebuilt = bool(logged.get("has_rebuilt_buckets"))
        try:
            buckets, gradient_order = _buckets(module, logged)
        except Exception as error:
            buckets, gradient_order = [], []
            self._problems.append(f"the buckets of {name} could not be mapped: {error}")
        return DdpModule(
            module=name,
            bucket_cap_bytes=int(module.bucket_bytes_cap),
            static_graph=bool(module.static_graph),
            find_unused=bool(module.find_unused_parameters),
            rebuilt=rebuilt,
            buckets=buckets,
            gradient_order=gradient_order,
            comm_hook=_hook_name(module, logged),
            gradient_as_bucket_view=bool(module.gradient_as_bucket_view),
            broadcast_buffers=bool(logged.get("broadcast_buffers", True)),
        )


def _names(modules: list[Any]) -> list[str]:
    """Return the class name of each wrapped module, of compiled ones the original's; the second has `#1`, and so on."""
    kinds = [type(getattr(module.module, "_orig_mod", module.module)).__name__ for module in modules]
    return [kind + (f"#{number}" if number else "") for number, kind in enumerate(kinds)]


def _hook_name(module: Any, logged: dict[str, Any]) -> str:
    """Return the name of the communication hook, such as `fp16_compress_hook`; "none" without one.

    A hook of the program has its module before its name, unless that is the script itself.
    """
    hooks = getattr(module, "_comm_hooks", ())
    if not hooks:
        return str(logged.get("comm_hook") or "none")  # one of those that are built in is in the log alone
    function = hooks[0][0]
    defined_in = str(getattr(function, "__module__", "")).removeprefix("__main__")
    name = str(getattr(function, "__qualname__", type(function).__name__))
    return name if defined_in.startswith("torch.distributed.") or not defined_in else f"{defined_in}.{name}"


def _find_ddp(objects: LiveObjects) -> list[Any]:
    modules = objects.instances("torch.nn.parallel.distributed", "DistributedDataParallel")
    # A module whose constructor failed is still an object, but has no reducer.
    return sorted((module for module in modules if hasattr(module, "reducer")), key=_structure)


def _structure(module: Any) -> list[tuple[str, int]]:
    """Return a sort key that is the same on all ranks, so that a module has the same name on each."""
    return [(name, parameter.numel()) for name, parameter in module.named_parameters()]


def _buckets(module: Any, logged: dict[str, Any]) -> tuple[list[Bucket], list[int]]:
    """Return the buckets, and the order of gradients in the last backward pass that DDP logged."""
    parameters, names = _reduced_parameters(module)
    order = _index_lists(logged.get("rebuilt_per_bucket_param_indices", ""))
    if not logged.get("has_rebuilt_buckets") or sum(map(len, order)) != len(parameters):
        order = _initial_assignment(module, parameters)
    buckets = [
        Bucket(
            index=index,
            size_bytes=sum(parameters[i].numel() * parameters[i].element_size() for i in members),
            dtype=str(parameters[members[0]].dtype).removeprefix("torch."),
            parameters=[names[i] for i in members],
            elements=[parameters[i].numel() for i in members],
        )
        for index, members in enumerate(order)
    ]
    position_of = {i: position for position, i in enumerate(i for members in order for i in members)}
    ready_order = [int(i) for i in logged.get("prev_iteration_grad_ready_order_indices", "").split(",") if i.strip()]
    return buckets, [position_of[i] for i in ready_order if i in position_of]


def _reduced_parameters(module: Any) -> tuple[list[Any], list[str]]:
    """Return the parameters in the reducer's order, and their names without the wrapper that `torch.compile` adds."""
    ignored: set[str] = getattr(module, "parameters_to_ignore", set())
    pairs = [
        (parameter, name.replace("_orig_mod.", ""))
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and name not in ignored
    ]
    return [parameter for parameter, _ in pairs], [name for _, name in pairs]


def _initial_assignment(module: Any, parameters: list[Any]) -> list[list[int]]:
    """Return DDP's first buckets: one of all dense gradients, unless it looks for unused parameters."""
    distributed = sys.modules["torch.distributed"]
    if module.static_graph or not module.find_unused_parameters:
        limits = [sys.maxsize]
    elif int(module.bucket_bytes_cap) == DEFAULT_CAP_BYTES:
        limits = [distributed._DEFAULT_FIRST_BUCKET_BYTES, DEFAULT_CAP_BYTES]
    else:  # a cap set by the user applies to the first bucket, too
        limits = [int(module.bucket_bytes_cap)]
    sparse = _with_sparse_gradients(module)
    expected = [id(parameter) in sparse for parameter in parameters]
    assignment, _ = distributed._compute_bucket_assignment_by_size(parameters, limits, expected)
    return [list(members) for members in reversed(assignment)]


def _with_sparse_gradients(module: Any) -> set[int]:
    """Return the ids of the parameters for which DDP expects a sparse gradient.

    Each has a bucket to itself, and the buckets of a model with one are never rebuilt.
    """
    embeddings = sys.modules["torch"].nn.Embedding, sys.modules["torch"].nn.EmbeddingBag
    tables = (table for table in module.module.modules() if isinstance(table, embeddings) and table.sparse)
    return {id(parameter) for table in tables for parameter in table.parameters(recurse=False)}


def _index_lists(text: str) -> list[list[int]]:
    """Return the lists in DDP's log, which has `"3 2, 1 0"` for two buckets of two parameters."""
    return [[int(index) for index in bucket.split()] for bucket in text.split(",") if bucket.strip()]
