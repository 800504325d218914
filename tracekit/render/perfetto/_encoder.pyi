from tracekit.model.events import Bool, Int32, Int64
from tracekit.render.merged.slices import Unsigned

INTERFACE: int

def encode(
    order: Int32,
    start_ns: Int64,
    duration_ns: Int64,
    rows: Int32 | None,
    fields: list[tuple[bytes, bytes, Unsigned | Int32, Unsigned | None, Bool | None, Int32 | None, bool]],
    frame: tuple[bytes, bytes, bytes, bytes, bytes],
    max_depth: int,
) -> list[tuple[int, int, bytearray]]: ...
