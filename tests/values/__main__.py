"""Records the values of the corpus, compares two recordings, and freezes what the tests hold.

python -m tests.values record build/values/before
python -m tests.values diff build/values/before build/values/after
python -m tests.values freeze
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from tests.values.canonical import canonical, digests, text_of
from tests.values.corpus import ValueCase, cases
from tests.values.differences import differences
from tracekit.errors import TracekitError

FROZEN = Path(__file__).with_name("frozen.json")

WAYS = {
    "portable": ({"TRACEKIT_NATIVE": "0"}, ["--no-cache", "--jobs", "1"]),
    "two jobs": ({}, ["--no-cache", "--jobs", "2"]),
    "cold": ({}, ["--jobs", "1"]),
    "cached": ({}, ["--jobs", "1"]),
}
"""Ways to analyse a folder that print the same: their environment and options."""


@click.group()
def main() -> None:
    """Guard the values of a corpus of runs."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--only", default="", help="Cases whose name contains this.")
@click.option("--extra", type=click.Path(path_type=Path), help="A folder of traces, each a run of its own.")
@click.option("--jobs", default=2, show_default=True)
def record(folder: Path, only: str, extra: Path | None, jobs: int) -> None:
    """Write the canonical result of each case to FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [case.name for case in cases(extra) if only in case.name]
    with ProcessPoolExecutor(jobs) as pool:
        for name, text in zip(names, pool.map(_recorded, names, [extra] * len(names)), strict=True):
            (folder / f"{name.replace('/', '--')}.json").write_text(text)
    click.echo(f"{len(names)} cases")


def _recorded(name: str, extra: Path | None = None) -> str:
    return text_of(values_of(next(case for case in cases(extra) if case.name == name)))


def values_of(case: ValueCase) -> dict[str, object]:
    """Return the canonical result of a case, or why there is none."""
    try:
        return canonical(case.report())
    except TracekitError as error:
        where = str(case.folder.resolve()) if case.folder is not None else "\0"
        return {"error": str(error).replace(where, "PATH")}


@main.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
@click.option("--examples", default=1, show_default=True)
def diff(before: Path, after: Path, examples: int) -> None:
    """List the fields that differ, with the number of cases, and examples."""
    for field, found in sorted(differences(before, after).items(), key=lambda item: (-len(item[1]), item[0])):
        click.echo(f"{field}: {len(found)} cases")
        for case, old, new in found[:examples]:
            click.echo(f"    {case}: {str(old)[:160]} -> {str(new)[:160]}")


@main.command()
def freeze() -> None:
    """Freeze the values of the cases that the tests look at."""
    chosen = [case.name for case in cases() if case.in_suite]
    with ProcessPoolExecutor(2) as pool:
        frozen = {
            name: digests(json.loads(text)) for name, text in zip(chosen, pool.map(_recorded, chosen), strict=True)
        }
    lines = (f"{json.dumps(name)}: {json.dumps(frozen[name], sort_keys=True)}" for name in sorted(frozen))
    FROZEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    click.echo(f"{len(frozen)} cases")


@main.command()
@click.option("--only", default="", help="Cases whose name contains this.")
def ways(only: str) -> None:
    """Compare ways to analyse each recorded run: decoders, jobs, with and without the cache."""
    apart = 0
    for case in cases():
        if case.folder is None or only not in case.name:
            continue
        plain = _printed(case.folder, {}, ["--no-cache", "--jobs", "1"])
        for way, (environment, options) in WAYS.items():
            if _printed(case.folder, environment, options) != plain:
                apart += 1
                click.echo(f"{case.name}: {way} differs")
    sys.exit(1 if apart else 0)


def _printed(folder: Path, environment: dict[str, str], options: list[str]) -> bytes:
    command = [sys.executable, "-m", "tracekit", "analyze", str(folder), "--json", *options]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False).stdout


if __name__ == "__main__":
    main()
