"""The colours of what ranks do, in every picture: terminal, page, notebook, and tracks of a merged trace.

Perfetto's formats and UI offer no way to choose a colour: a slice has that of a hash of its name. So only tracks in
Chrome's format have these colours, each by the closest name that chrome://tracing knows (tracing/base/color_scheme.html
of catapult), and outlines are white there.

Each colour has a contrast of at least 3 to black and to white, and differs from the others in lightness or hue also for
eyes that cannot tell red from green. Where there is no colour the mark tells parts apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle


@dataclass(frozen=True)
class Look:
    """How a part of a step looks.

    Attributes:
        name: in legends.
        colour: as #rrggbb.
        mark: one character, where a step is drawn in text.
        name_on_cpu: where it differs, as there is no device that idles.
        is_hollow: drawn as an outline: nothing is done then.
        chrome_name: of its colour in chrome://tracing.
    """

    name: str
    colour: str
    mark: str
    name_on_cpu: str | None = None
    is_hollow: bool = False
    chrome_name: str = "white"


LOOKS = {
    "compute": Look("compute", "#2173b5", "█", chrome_name="rail_response"),
    "transfer": Look("transfer", "#c56a00", "▒", chrome_name="heap_dump_child_node_arrow"),
    "communication": Look("communication, with waiting", "#c56a00", "▒", chrome_name="heap_dump_child_node_arrow"),
    "waiting": Look("waits for a rank", "#c43d50", "~", is_hollow=True),
    "bubble": Look("bubble", "#17896a", "~", is_hollow=True),
    "copy": Look("copies", "#2a8a8a", "▓", chrome_name="background_memory_dump"),
    "host_late": Look("GPU idle: host late", "#9467bd", "·", chrome_name="detailed_memory_dump"),
    "synchronisation": Look("GPU idle: host synchronises", "#b8529e", "'", chrome_name="thread_state_uninterruptible"),
    "data_loading": Look("data loading", "#5a8a00", "=", chrome_name="olive"),
    "pause": Look("checkpoint, log, GC", "#946a3c", "+", chrome_name="bad"),
    "idle": Look("GPU idle: other", "#7d7d7d", "-", name_on_cpu="Python, other", chrome_name="generic_work"),
}

_PARTS = {
    "exposed communication": "communication",
    "exposed copies": "copy",
    "exposed": "communication",
    "waits": "waiting",
    "waited": "waiting",
    "queued": "waiting",
    "data": "data_loading",
}
"""What tables and tracks call parts that have another name here."""


def look_of(name: str) -> Look | None:
    """Return the look of the part of a step that a track or a series shows; None where it shows none."""
    return LOOKS.get(_PARTS.get(name, name))


def series_looks(names: Iterable[str]) -> list[Look]:
    """Return the look of each series of a plot: that of the part it shows, else a colour that no part has there."""
    known = [look_of(name) for name in names]
    filled = {look.colour: look for look in LOOKS.values() if not look.is_hollow}
    free = cycle([look for look in filled.values() if look not in known] or filled.values())
    return [look or next(free) for look in known]
