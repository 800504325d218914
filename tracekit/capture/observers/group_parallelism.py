"""What parallelism the run's groups stand for, once everybody has said what they use theirs for.

Tensor, pipeline, expert and context parallelism have a group of their own, so a group of that use is the strategy. Data
parallelism is not told by its group: many ways share one.
"""

from __future__ import annotations

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.observers import MetadataDraft

_TOLD_BY_GROUP = frozenset({"tp", "pp", "ep", "cp"})

__all__ = ["GroupParallelismObserver"]


class GroupParallelismObserver:
    """Contributes last."""

    def attach(self, objects: LiveObjects) -> None:
        """Nothing to see yet."""

    def detach(self, objects: LiveObjects) -> None:
        """Nothing to undo."""

    def contribute(self, draft: MetadataDraft) -> None:
        # Only experts send one another different numbers of tokens. Functional collectives run below Python, so that
        # the flight recorder alone has seen them.
        for record in draft.collectives:
            if record.kind == "all_to_all" and record.in_shapes != record.out_shapes:
                draft.groups.set_parallelism_of(record.group, "ep")
        uses = {group.parallelism for group in draft.groups.multi_rank_groups() if group.parallelism is not None}
        draft.strategies += sorted(uses & _TOLD_BY_GROUP)
