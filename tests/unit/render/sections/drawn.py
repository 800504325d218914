"""A section as a terminal of 80 columns shows it."""

from __future__ import annotations

from typing import Any, cast

from tracekit.explain.sections import SECTIONS
from tracekit.model.run import Run
from tracekit.render.console import write
from tracekit.render.sections.text import section_text


def lines_of(name: str, result: Any, run: Run | None = None, *, width: int = 80) -> list[str]:
    """Return the lines that are not empty."""
    parts = section_text(SECTIONS[name], result, cast(Run, run), width)
    return [line for line in write(parts, width=width, color=False).splitlines() if line]
