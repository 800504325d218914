"""What an entry of the table of private names says about one name of torch."""

from __future__ import annotations

from dataclasses import dataclass

OLDEST_TORCH = "2.6"
"""The oldest version of torch that recording supports, as in pyproject.toml."""


@dataclass(frozen=True, kw_only=True)
class PrivateName:
    """A private name of torch.

    Attributes:
        module: where it is, as in an import statement; a builtin namespace such as `torch._C._profiler` counts.
        attribute: its name below the module, with dots; empty if the module itself is what is private.
        use: what tracekit does with it.
        fallback: what happens without it.
        since: the first version of torch that has it, of those that tracekit supports.
        set_by: the function that sets it, with dots; for an attribute that no method of its class sets.
        instead: the name of other versions that serves as well, with dots; nothing is lost while one of them is there.
        needs: the part of torch without which a build lacks the name, such as "NCCL"; empty if all builds have it.
    """

    module: str
    attribute: str
    use: str
    fallback: str
    since: str = OLDEST_TORCH
    set_by: str = ""
    instead: str = ""
    needs: str = ""

    @property
    def path(self) -> str:
        """The whole name, such as `torch._C._current_graph_task_id`."""
        return f"{self.module}.{self.attribute}".rstrip(".")


def entries(uses_by_loss: dict[str, dict[str, str]], **fields: str) -> list[PrivateName]:
    """Return the entries of a part of the table, which have the other fields in common.

    Args:
        uses_by_loss: what tracekit does with names, by `module: name, name`, by what happens without them.
        fields: the other fields of `PrivateName`.
    """
    return [
        PrivateName(module=module, attribute=attribute, use=use, fallback=fallback, **fields)
        for fallback, uses in uses_by_loss.items()
        for names, use in uses.items()
        for module, _, attributes in [names.partition(": ")]
        for attribute in attributes.split(", ")
    ]
