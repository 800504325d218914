"""Records the values of the corpus, compares two recordings, and freezes what the tests hold.

python -m tests.values record build/values/before
python -m tests.values diff build/values/before build/values/after
python -m tests.values freeze
python -m tests.values ways
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import click

from tests.values.canonical import digests, text_of, values_of
from tests.values.corpus import ValueCase, cases
from tests.values.differences import differences, kind_of
from tests.values.frozen import read_frozen, write_frozen
from tests.values.ways import differing_ways

R = TypeVar("R")

only_option = click.option("--only", default="", help="Cases whose name contains this.")
extra_option = click.option(
    "--extra", type=click.Path(path_type=Path), help="A folder of traces, each a run of its own."
)
jobs_option = click.option("--jobs", default=2, show_default=True, help="Processes.")


@click.group()
def main() -> None:
    """Guard the values of a corpus of runs."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@only_option
@extra_option
@jobs_option
def record(folder: Path, only: str, extra: Path | None, jobs: int) -> None:
    """Write the canonical result of each case to FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [case for case in cases(extra) if only in case.name]
    for case, text in _of_each(_recorded, chosen, jobs):
        (folder / f"{case.name.replace('/', '--')}.json").write_text(text)
    click.echo(f"{len(chosen)} cases")


def _recorded(case: ValueCase) -> str:
    return text_of(values_of(case))


def _of_each(
    function: Callable[[ValueCase], R], chosen: Sequence[ValueCase], jobs: int
) -> Iterable[tuple[ValueCase, R]]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from zip(chosen, pool.map(function, chosen), strict=True)


@main.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
@click.option("--examples", default=1, show_default=True)
def diff(before: Path, after: Path, examples: int) -> None:
    """List the fields that differ, first those of numbers, with the number of cases, and examples."""
    found = differences(before, after)
    heading = ""
    for field in sorted(found, key=lambda name: (kind_of(found[name]), -len(found[name]), name)):
        if kind_of(found[field]) != heading:
            heading = kind_of(found[field])
            click.echo(f"\n# {heading}")
        click.echo(f"{field}: {len(found[field])} cases")
        for case, old, new in found[field][:examples]:
            click.echo(f"    {case}: {str(old)[:160]} -> {str(new)[:160]}")


@main.command()
@jobs_option
def freeze(jobs: int) -> None:
    """Freeze the values of the cases in reach. Others stay as they are: remove lines of cases that are no more."""
    frozen = read_frozen() | dict(_frozen_digests(jobs))
    write_frozen(frozen)
    click.echo(f"{len(frozen)} cases")


def _frozen_digests(jobs: int) -> Iterable[tuple[str, dict[str, str]]]:
    for case, found in _of_each(_digests, [case for case in cases() if case.is_frozen], jobs):
        yield case.name, found


def _digests(case: ValueCase) -> dict[str, str]:
    return digests(values_of(case))


@main.command()
@only_option
@extra_option
def ways(only: str, extra: Path | None) -> None:
    """Compare ways to analyse each case: decoders, jobs, with and without a cache. The exit code is 1 if any differ."""
    found = {case.name: differing_ways(case) for case in cases(extra) if only in case.name}
    for name, differing in found.items():
        if differing:
            click.echo(f"{name}: {', '.join(differing)}")
    click.echo(f"{len(found)} cases")
    sys.exit(1 if any(found.values()) else 0)


if __name__ == "__main__":
    main()
