"""DDP's buckets against the backward pass, as bars for a terminal.

Comes in: a `BucketPicture`. Goes out: lines of text, which need no color.

    gradients  ────────────────────────────────────┤
    bucket 0        ·······▒▒▒▒▒▒▒▒
    bucket 1                         ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒████████   3.2
"""

from __future__ import annotations

from rich.text import Text

from tracekit.analysis.ddp.bucket_picture import BucketPicture
from tracekit.render.quantities import milliseconds
from tracekit.render.safe_text import safe_text

__all__ = ["bucket_chart"]

_MOST_BARS = 9
_COLUMNS = 54
_QUEUED, _HIDDEN, _AFTER = "·", "▒", "█"


def bucket_chart(picture: BucketPicture) -> list[object]:
    """The first two bars and the last ones where there are many: the end of the pass is what is exposed."""
    bars = picture.bars
    begin_ns, end_ns = bars[0].ready_ns, max(bar.end_ns for bar in bars)
    begin_ns -= (end_ns - begin_ns) // 8  # the first bucket's gradients came before it was ready
    scale = _COLUMNS / max(end_ns - begin_ns, 1)

    def column(time_ns: int) -> int:
        return min(max(round((time_ns - begin_ns) * scale), 0), _COLUMNS)

    gradients = "─" * max(column(picture.last_gradient_ns) - 1, 0) + "┤"
    lines = [f"{'gradients':<11}{gradients:<{_COLUMNS}}  exposed"]
    shown = bars if len(bars) <= _MOST_BARS else (*bars[:2], *bars[2 - _MOST_BARS :])
    several = len({bar.module for bar in bars}) > 1
    for place, bar in enumerate(shown):
        if place == 2 and len(shown) < len(bars):
            lines.append(f"{'...':<11}{len(bars) - len(shown)} more")
        name = f"{bar.module[:7]} {bar.index}" if several else f"bucket {bar.index}"
        drawn = _bar(column(bar.ready_ns), column(bar.start_ns), column(bar.end_ns), column(picture.last_gradient_ns))
        lines.append(f"{name:<11}{drawn:<{_COLUMNS}} {milliseconds(bar.exposed_ns):>8}")
    title = (
        f"Buckets against backward: rank {picture.rank}, step {picture.step}, a typical one; "
        f"{milliseconds(end_ns - begin_ns)} ms across"
    )
    legend = f"{_QUEUED} queued  {_HIDDEN} on its way during backward  {_AFTER} after the last gradient; exposed in ms"
    return [Text(title, style="bold"), "", *(Text(safe_text(line), no_wrap=True) for line in (*lines, legend)), ""]


def _bar(ready: int, start: int, end: int, last_gradient: int) -> str:
    end = max(end, start + 1)
    hidden = max(min(end, last_gradient) - start, 0)
    return " " * ready + _QUEUED * (start - ready) + _HIDDEN * hidden + _AFTER * (end - start - hidden)
