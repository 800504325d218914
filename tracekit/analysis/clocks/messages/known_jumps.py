"""What the jumps of other clocks tell of a clock that only messages bound.

Ranks of a frame show by their collectives that one of them jumps, when, and by how much. If it is the one whose clock
the frame has, the messages with other frames show it, too: less exactly, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tracekit.analysis.clocks.messages.bounds import BoundedClock, BoundedPiece
from tracekit.model.events import Bool, Float64

__all__ = ["KnownJump", "with_known_jumps"]


class KnownJump(NamedTuple):
    """A jump of another clock: it is between `begin_x` and `end_x`, and this clock would jump ahead `by` if it were it.

    In ns, as what bounds a clock.
    """

    begin_x: float
    end_x: float
    by: float


def with_known_jumps(
    clock: BoundedClock, x: Float64, bound: Float64, is_upper: Bool, known: Iterable[KnownJump]
) -> BoundedClock:
    """Return a clock that jumps when others are known to, if it may be the same jump.

    Where its n bounds, [n] each, show no jump but leave room for the known one, nothing shows that the clock is steady.
    """
    pieces = list(clock.pieces)
    level = bound - (clock.slope or 0.0) * x
    for jump in sorted(known):
        shown = [_shown_between(piece, x) for piece in pieces[1:]]
        if overlapping := [i for i, (first, last) in enumerate(shown) if first <= jump.end_x and jump.begin_x <= last]:
            i = overlapping[0]
            if _may_be_same(pieces[i], pieces[i + 1], jump, clock.error):
                both = jump._replace(begin_x=max(shown[i][0], jump.begin_x), end_x=min(shown[i][1], jump.end_x))
                pieces[i : i + 2] = _joined(pieces[i], pieces[i + 1], both)
            continue
        place = sum(piece.from_x < jump.begin_x for piece in pieces)
        if place and _leave_room(x, level, is_upper, pieces, place, jump):
            pieces.insert(place, replace(_begun_by(pieces[place - 1], jump), is_unproven=True))
    return replace(clock, pieces=tuple(pieces))


def _shown_between(piece: BoundedPiece, x: Float64) -> tuple[float, float]:
    """Return between which x bounds show the jump that begins a piece."""
    if piece.between is None:
        return piece.from_x - piece.from_error, piece.from_x + piece.from_error
    first, last = sorted(x[list(piece.between)].tolist())
    return first, last


def _may_be_same(before: BoundedPiece, behind: BoundedPiece, jump: KnownJump, error: float) -> bool:
    """Return whether a known jump is as large as the one between two pieces of a clock, which is off by `error`."""
    seen = behind.offset - before.offset
    is_larger = abs(jump.by) > abs(seen) and jump.by * seen > 0
    return abs(jump.by - seen) <= 2 * error or (is_larger and (before.is_one_sided or behind.is_one_sided))


def _joined(before: BoundedPiece, behind: BoundedPiece, jump: KnownJump) -> tuple[BoundedPiece, BoundedPiece]:
    """Return the pieces around a jump that is the known one, which tells when it is and, if bounds do not, its size."""
    if behind.is_one_sided:
        behind = replace(behind, offset=before.offset + jump.by, is_one_sided=False)
    elif before.is_one_sided:
        before = replace(before, offset=behind.offset - jump.by, is_one_sided=False)
    return before, _begun_by(behind, jump)


def _begun_by(piece: BoundedPiece, jump: KnownJump) -> BoundedPiece:
    """Return a piece that begins with a known jump."""
    half = (jump.end_x - jump.begin_x) / 2
    return replace(piece, from_x=jump.begin_x + half, from_error=half, between=None)


def _leave_room(
    x: Float64, level: Float64, is_upper: Bool, pieces: Sequence[BoundedPiece], place: int, jump: KnownJump
) -> bool:
    """Return whether a clock may jump as known in the piece before `place`, given levels of n bounds, [n] each."""
    first = pieces[place - 1].from_x if place > 1 else -math.inf
    last = pieces[place].from_x if place < len(pieces) else math.inf
    before, behind = (x > first) & (x <= jump.begin_x), (x >= jump.end_x) & (x < last)
    (low, high), (low_behind, high_behind) = (
        (level[side & ~is_upper].max(initial=-math.inf), level[side & is_upper].min(initial=math.inf))
        for side in (before, behind)
    )
    return bool(low_behind - high <= jump.by <= high_behind - low)
