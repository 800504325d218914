"""Derives strategies from the parallelism of the run's groups, after all other observers have set it.

Tensor, pipeline, expert and context parallelism each have a group, so a group of that parallelism is the strategy. For
data parallelism the group is not enough: several strategies use the same one.
"""

from __future__ import annotations

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.observers import MetadataDraft

_PARALLELISMS_WITH_GROUPS = frozenset({"tp", "pp", "ep", "cp"})

__all__ = ["GroupParallelismObserver"]


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
