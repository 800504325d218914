"""Events as msgspec decodes them: the fields and arguments that are kept, and nothing else."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tracekit.read.decode.field_values import Scalar, is_inexact

__all__ = ["RawArguments", "RawEvent", "RawText"]

_NO_TEXT = msgspec.Raw(b"")

# Larger ones become text: Python's hash of integers of any size lets a file choose as many equal ones as it likes.
_TrackId = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | str | None


class RawArguments(msgspec.Struct, gc=False):
    """The arguments that are kept. msgspec skips all others without building them."""

    external_id: Scalar = msgspec.field(name="External id", default=None)
    correlation: Scalar = None
    sequence_number: Scalar = msgspec.field(name="Sequence number", default=None)
    forward_thread: Scalar = msgspec.field(name="Fwd thread id", default=None)
    collective: Scalar = msgspec.field(name="Collective name", default=None)
    dtype: Scalar = None
    in_elements: Scalar = msgspec.field(name="In msg nelems", default=None)
    out_elements: Scalar = msgspec.field(name="Out msg nelems", default=None)
    group_size: Scalar = msgspec.field(name="Group size", default=None)
    group_name: Scalar = msgspec.field(name="Process Group Name", default=None)
    group_description: Scalar = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Scalar = msgspec.field(name="Process Group Ranks", default=None)
    sequence: Scalar = msgspec.field(name="Seq", default=None)
    source_rank: Scalar = msgspec.field(name="Src Rank", default=None)
    destination_rank: Scalar = msgspec.field(name="Dst Rank", default=None)
    input_shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_TEXT)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_TEXT)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NO_TEXT)
    grid: msgspec.Raw = _NO_TEXT
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NO_TEXT)
    device_id: msgspec.Raw = msgspec.field(name="Device Id", default=_NO_TEXT)
    change_bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NO_TEXT)
    allocated_bytes: msgspec.Raw = msgspec.field(name="Total Allocated", default=_NO_TEXT)
    reserved_bytes: msgspec.Raw = msgspec.field(name="Total Reserved", default=_NO_TEXT)
    label: Scalar = msgspec.field(name="name", default=None)


class RawEvent(msgspec.Struct, gc=False):
    """One event. `written_args`: the text of its arguments, where `RawText.restore` has put it."""

    ph: str | None = None
    name: str | None = None
    cat: str | None = None
    ts: Scalar = None
    dur: Scalar = None
    pid: _TrackId = None
    tid: _TrackId = None
    args: RawArguments | None = None
    written_args: msgspec.Raw = msgspec.Raw(b"null")  # overwritten whatever a file has under this name


class RawText(msgspec.Struct, gc=False):
    """Start, duration and arguments of an event as they are written.

    Some numbers lose digits in a float64, and `RawArguments` has only some of the arguments.
    """

    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"null")

    def restore(self, event: RawEvent) -> None:
        """Give `event` the text of its arguments, and that of its times which lost digits."""
        event.written_args = msgspec.Raw(bytes(self.args))  # a copy: it is a view of the whole text
        if is_inexact(event.ts):
            event.ts = bytes(self.ts).decode("ascii")
        if is_inexact(event.dur):
            event.dur = bytes(self.dur).decode("ascii")
