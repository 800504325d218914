from typing import Self

from tracekit.model.events import Bool, Int32, Int64
from tracekit.render.slices import Unsigned

INTERFACE: int

FieldColumns = tuple[bytes, bytes, Unsigned | Int64 | Int32, Unsigned | None, Bool | None, bool]
"""annotation, prefix, values, numbers, present, is_fixed64"""

ExtraArgColumns = tuple[Int32, Int64, Int64, bytes]
"""ids, starts, sizes, content"""

def lanes(order: Int32, start_ns: Int64, duration_ns: Int64, max_depth: int, max_lanes: int) -> bytes: ...

class Packets:
    def __init__(
        self,
        order: Int32,
        start_ns: Int64,
        duration_ns: Int64,
        rows: Int32 | None,
        fields: list[FieldColumns],
        extra_args: ExtraArgColumns | None,
        template: tuple[bytes, bytes, bytes, bytes, bytes],
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
