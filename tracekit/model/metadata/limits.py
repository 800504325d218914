"""Numbers within limits. A capture never writes values beyond them, and a reader refuses those."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_NS = 1 << 62
MAX_RANKS = 1 << 20

Integer = Annotated[int, msgspec.Meta(ge=-MAX_NS, le=MAX_NS)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)]
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]

__all__ = ["MAX_NS", "MAX_RANKS", "Integer", "Rank", "WorldSize"]
