"""Derives strategies from the parallelism of the run's groups, and finds `nn.DataParallel`, which has no group.

Tensor, pipeline, expert and context parallelism each have a group, so a group of that parallelism is the strategy, once
all other observers have set it. For data parallelism the group is not enough: several strategies use the same one.

`nn.DataParallel` is one process that copies its model to several devices in every step. With fewer than two devices it
only calls the module that it wraps; a note says so.
"""

from __future__ import annotations

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.observers import MetadataDraft

__all__ = ["DataParallelObserver", "GroupParallelismObserver"]

_PARALLELISMS_WITH_GROUPS = frozenset({"tp", "pp", "ep", "cp"})


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
