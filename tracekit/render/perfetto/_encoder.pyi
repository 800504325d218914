from typing import Self

from tracekit.model.events import Bool, Int32, Int64
from tracekit.render.trace.slices import Unsigned

INTERFACE: int

def lanes(order: Int32, start_ns: Int64, duration_ns: Int64, max_depth: int) -> bytes: ...

class Packets:
    def __init__(
        self,
        order: Int32,
        start_ns: Int64,
        duration_ns: Int64,
        rows: Int32 | None,
        fields: list[tuple[bytes, bytes, Unsigned | Int32, Unsigned | None, Bool | None, bool]],
        details: tuple[Int32, Int64, Int64, bytes] | None,
        frame: tuple[bytes, bytes, bytes, bytes, bytes],
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
