"""`tracekit cache`: where the cache is, how large it is, and how it is emptied."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo

if TYPE_CHECKING:
    from tracekit.read.cache.cache_dir import CacheSize

_runs = click.argument("runs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path))


@click.group()
def cache() -> None:
    """Show where the cache is and how large, or empty it.

    The cache has what was worked out of each rank. For a run that tracekit.probe recorded it lies beside the traces,
    for others in a folder of this user.
    """


@cache.command("dir")
@click.pass_context
def show_dir(ctx: click.Context) -> None:
    """Print the cache folder of this user."""
    echo(str(_chosen_folder(ctx)))


@cache.command("size")
@_runs
@click.pass_context
def show_size(ctx: click.Context, runs: tuple[Path, ...]) -> None:
    """Print how much it holds; with RUN, beside its traces."""
    from tracekit.read.cache.cache_dir import size_of_cache_dir

    _total(ctx, runs, size_of_cache_dir, "{size} in {where}")


@cache.command()
@_runs
@click.pass_context
def clean(ctx: click.Context, runs: tuple[Path, ...]) -> None:
    """Empty it; with RUN, beside its traces.

    Other files in these folders stay.
    """
    from tracekit.read.cache.cache_dir import empty_cache_dir

    _total(ctx, runs, empty_cache_dir, "removed {size} from {where}")


def _total(ctx: click.Context, runs: tuple[Path, ...], function: Callable[[Path], CacheSize], text: str) -> None:
    """Print the sum of what a function returns of each cache folder."""
    from tracekit.errors import OutputError
    from tracekit.model.texts import count_text, file_size

    folders = [folder for run in runs for folder in _folders_beside(run)] if runs else [_chosen_folder(ctx)]
    entries = size_bytes = 0
    for folder in folders:
        try:
            of_folder = function(folder)
        except OSError as error:
            hint = "give yourself read and write permission on it"
            raise OutputError(f"{folder}: {error.strerror or error}", hint=hint) from None
        entries, size_bytes = entries + of_folder.entries, size_bytes + of_folder.size_bytes
    size = f"{count_text(entries, 'file')} of {file_size(size_bytes)}" if entries else "nothing"
    where = f"{count_text(len(folders), 'folder')} below {' '.join(map(str, runs))}" if runs else str(folders[0])
    echo(text.format(size=size, where=where))


def _folders_beside(run: Path) -> list[Path]:
    """Return the cache folders below a folder. Raises InputError when there is no such folder."""
    from tracekit.errors import InputError
    from tracekit.read.cache.cache_dir import CACHE_FOLDER

    if not run.is_dir():
        raise InputError(f"{run}: no such folder", hint="give a run folder, or none for the cache of this user")
    return sorted(Path(parent, CACHE_FOLDER) for parent, folders, _ in os.walk(run) if CACHE_FOLDER in folders)


def _chosen_folder(ctx: click.Context) -> Path:
    """Return the one folder that the settings name, or else the user's. Raises UsageError when there is no home."""
    from tracekit.cli.inputs.settings import settings
    from tracekit.errors import UsageError
    from tracekit.read.cache.cache_dir import CACHE_FOLDER, user_cache_dir

    chosen = next(setting.value for setting in settings(ctx.obj) if setting.key.name == "cache")
    if chosen not in (None, "0"):
        return Path(chosen).absolute() / CACHE_FOLDER
    folder = user_cache_dir()
    if folder is None:
        raise UsageError("this user has no home, and so no cache", hint="name a folder: TRACEKIT_CACHE")
    return folder
