"""The colours of what ranks do, in every picture: terminal, page, notebook, and tracks of a merged trace.

Each colour has a contrast of at least 3 to black and to white, and differs from the others in lightness or hue also for
eyes that cannot tell red from green. Where there is no colour the mark tells parts apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How a part of a step looks.

    Attributes:
        name: in legends.
        colour: as #rrggbb.
        mark: one character, where a step is drawn in text.
        name_on_cpu: where it differs, as there is no device that idles.
        is_hollow: drawn as an outline: nothing is done then.
    """

    name: str
    colour: str
    mark: str
    name_on_cpu: str | None = None
    is_hollow: bool = False


LOOKS = {
    "compute": Look("compute", "#2173b5", "█"),
    "transfer": Look("transfer", "#c56a00", "▒"),
    "communication": Look("communication, with waiting", "#c56a00", "▒"),
    "waiting": Look("waits for a rank", "#c43d50", "~", is_hollow=True),
    "bubble": Look("bubble", "#17896a", "~", is_hollow=True),
    "copy": Look("copies", "#2a8a8a", "▓"),
    "host_late": Look("GPU idle: host late", "#9467bd", "·"),
    "synchronisation": Look("GPU idle: host synchronises", "#b8529e", "'"),
    "data_loading": Look("data loading", "#5a8a00", "="),
    "pause": Look("checkpoint, log, GC", "#946a3c", "+"),
    "idle": Look("GPU idle: other", "#7d7d7d", "-", name_on_cpu="Python, other"),
}
