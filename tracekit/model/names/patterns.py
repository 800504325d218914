"""Regular expressions of users that are searched in names: which could take too long.

They may come from settings that somebody else wrote.
"""

from __future__ import annotations

import math
import re

__all__ = ["reason_to_refuse"]

_LONGEST_PATTERN = 1_000
_MOST_CHOICES = 8
_HIGHEST_COUNT = 1_000
# An escaped character, a class of characters, the beginning of a group, a quantifier, or any other character.
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[^:=!>()]*[:=!>)]?)?"
    r"|(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d*\})[?+]?|.",
    re.DOTALL,
)
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")  # spaces and comments in a pattern


def reason_to_refuse(pattern: str) -> str | None:
    """Return why the time to match a pattern could grow exponentially with the length of a name; None if it cannot.

    Python tries every way in which the parts of a pattern can share a name. There are too many where a part that can
    match in several ways is repeated, as in `(a+)+`, or where many such parts follow each other.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return f"it is longer than {_LONGEST_PATTERN:,} characters"
    choices = 0
    signs: list[set[str]] = [set()]  # of each group that is open: "|" and the others that let it match in several ways
    closed: set[str] | None = None  # the same of the group before the part, if there is one
    for part in _PART.findall(pattern):
        before, closed = closed, None
        if _VERBOSE.match(part):
            return "it has the flag x"
        if part.startswith("("):
            signs += [set()] * (not part.endswith(")"))  # which ends flags, as in (?i)
        elif part == ")" and len(signs) > 1:
            closed = signs.pop()
            signs[-1] |= {part} if closed else set()
        elif part == "|":
            choices += part not in signs[-1]  # one of each group
            signs[-1].add(part)
        elif (bounds := _bounds(part)) is not None:
            least, most = bounds
            if before and most > 1:
                return "it repeats a group in which something is repeated, optional or one of several"
            if _HIGHEST_COUNT < most < math.inf or least > _HIGHEST_COUNT:
                return f"it repeats something more than {_HIGHEST_COUNT:,} times"
            choices += least != most
            signs[-1] |= {part} if least != most or before is not None else set()
    return f"it has more than {_MOST_CHOICES} parts that can match in several ways" if choices > _MOST_CHOICES else None


def _bounds(part: str) -> tuple[float, float] | None:
    """Return how often at least and at most a quantifier lets the part before it match; None if it is no quantifier."""
    if (sign := part[0]) in "*+?":
        return {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}[sign]
    if sign != "{" or len(part) == 1:
        return None
    least, comma, most = part.rstrip("?+")[1:-1].partition(",")
    return int(least or 0), int(most) if most else math.inf if comma else int(least)
