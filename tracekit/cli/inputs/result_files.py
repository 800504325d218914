"""Files of a result, in several formats at once; the suffix of each says which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tracekit.cli.inputs.echo import echo_written

__all__ = ["refuse_suffixes", "write_results", "write_text"]


def refuse_suffixes(files: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Raise UsageError for a file whose name ends in none of the suffixes."""
    from tracekit.errors import UsageError

    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"-o {file}: the name does not end in {', '.join(suffixes)}", hint="it says the format")


def write_results(files: Sequence[Path], render: Callable[[str], str], *, force: bool) -> None:
    """Write what `render` returns for the suffix of each file. Raises OutputError."""
    for file in files:
        write_text(file, render(file.suffix), force=force)


def write_text(file: Path, text: str, *, force: bool) -> None:
    """Write a file, and say so on stderr. Raises OutputError."""
    from tracekit.render.output import new_file

    with new_file(file, force=force) as stream:
        stream.write(text.encode())
    echo_written(file)
