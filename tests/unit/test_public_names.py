"""The public names of `tracekit` and `tracekit.integrations`, and what they and the commands import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tracekit
from tracekit import integrations

RUN = Path(__file__).parents[1] / "data" / "ddp_slow_rank"
HEAVY = ("torch", "numpy", "pandas", "accelerate", "lightning", "pytorch_lightning", "transformers")


@pytest.mark.parametrize("module", [tracekit, integrations])
def test_names_are_sorted_and_have_a_module(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    assert set(module._HOME) == set(names)  # type: ignore[attr-defined]
    assert set(names) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_of_the_package_can_be_imported() -> None:
    assert all(getattr(tracekit, name) is not None for name in tracekit.__all__)


def test_importing_them_imports_nothing_heavy() -> None:
    script = f"import sys, tracekit; tracekit.integrations; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


NEVER = {"asyncio", "fsspec", "rich.progress", "ssl", "torch", "zipfile"}
"""Modules that no command needs for a run on a disk when stderr is not a terminal."""
ONLY_WRITERS = {"difflib", "pandas", "perfetto", "tracekit.render.output"}
"""Modules that a command needs only to write a trace or a file, or for tables of pandas."""


@pytest.mark.parametrize(
    ("command", "needless"),
    [
        (["merge", "-o", "run.pftrace"], {"pandas", "rich"}),
        (["analyze"], ONLY_WRITERS),
        (["analyze", "--json", "--actions"], ONLY_WRITERS),
        (["info"], ONLY_WRITERS),
        (["compare", str(RUN)], ONLY_WRITERS),
        (["check", "--baseline", str(RUN), "--allow", "inconclusive"], ONLY_WRITERS),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(
    tmp_path: Path, command: list[str], needless: set[str]
) -> None:
    """Pandas is 75 MB, and 40 % of the time that a small run takes."""
    name, *options = command
    assert not imported_by(name, str(RUN), "--no-cache", *options, folder=tmp_path) & (needless | NEVER)


def test_a_terminal_whose_run_is_in_the_cache_imports_no_progress_bar(tmp_path: Path) -> None:
    """GIVEN stderr is a terminal WHEN a run is analysed twice THEN only the first time there is a bar to import."""
    command = ["analyze", str(RUN), "--cache-dir", str(tmp_path)]
    first, second = (imported_by(*command, folder=tmp_path, stderr_is_terminal=True) for _ in range(2))
    assert "rich.progress" in first
    assert not second & (NEVER | ONLY_WRITERS | {"multiprocessing.connection", "concurrent.futures.process"})


def imported_by(*command: str, folder: Path, stderr_is_terminal: bool = False) -> set[str]:
    """Run a command in a new process; return the names of all modules that are imported at its end."""
    script = (
        "import sys\n"
        "from tracekit.cli import main\n"
        f"sys.stderr.isatty = lambda: {stderr_is_terminal}\n"
        f"sys.argv = {['tracekit', *command]}\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print('imported:', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    *output, modules = done.stdout.splitlines()
    assert output
    return set(modules.split()[1:])
