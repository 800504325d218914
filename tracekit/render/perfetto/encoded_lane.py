"""What an encoder of slices returns: the packets of one lane, a row on which slices nest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tracekit.render.perfetto.extra_args import ExtraArgs
from tracekit.render.perfetto.fields import Field
from tracekit.render.trace.slices import Slices

__all__ = ["EncodedLane", "Encoder"]


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedLane:
    """The packets of one lane.

    Attributes:
        start_ns: Start of its first slice.
        end_ns: Latest end of its slices.
        slices: Number of its slices.
        packets: The packets as blocks of bytes, to be written one after the other.
    """

    start_ns: int
    end_ns: int
    slices: int
    packets: Iterable[bytes]


Encoder = Callable[[Slices, Sequence[Field], ExtraArgs | None, int], list[EncodedLane]]
"""Takes n > 0 slices, their fields, their extra arguments and the id of the packet sequence. Slices may be left out:
see `nesting.assign_lanes`."""
