"""The formats of a comparison, by the suffix of a file's name."""

from __future__ import annotations

from pathlib import Path

from tracekit.analysis.comparison.comparison import Comparison
from tracekit.errors import UsageError

__all__ = ["SUFFIXES", "render_comparison", "write_comparison"]

SUFFIXES = (".html", ".json", ".md", ".txt")


def render_comparison(comparison: Comparison, suffix: str) -> str:
    """Return the comparison in the format of a suffix, one of `SUFFIXES`."""
    if suffix == ".html":
        from tracekit.render.comparison.page import comparison_html

        return comparison_html(comparison)
    if suffix == ".json":
        from tracekit.render.comparison.document import comparison_json

        return comparison_json(comparison)
    if suffix == ".md":
        from tracekit.render.comparison.markdown import comparison_markdown

        return comparison_markdown(comparison)
    from tracekit.render.comparison.terminal import comparison_text

    return comparison_text(comparison, width=80, color=False)


def write_comparison(comparison: Comparison, path: Path, *, force: bool = False) -> None:
    """Write the comparison to a file. Raises UsageError for a name without a known suffix, and OutputError."""
    from tracekit.render.output import new_file

    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: the name does not end in {', '.join(SUFFIXES)}", hint="it says the format")
    with new_file(path, force=force) as stream:
        stream.write(render_comparison(comparison, path.suffix).encode())
