from collections.abc import Iterable
from typing import Any

ARGUMENT_KEYS: list[str]
INTERFACE: int
PADDING_BYTES: int

class NotUnderstoodError(ValueError): ...

class Scanner:
    def __init__(
        self,
        communication_prefixes: Iterable[bytes],
        sized: Iterable[bytes],
        excluded_args: Iterable[bytes] | None = None,
        max_events: int = 2**31 - 1,
        seed: int = 0,
    ) -> None: ...
    def scan(self, buffer: bytearray, size: int) -> tuple[int, bool]: ...
    def take(self) -> dict[str, Any]: ...
