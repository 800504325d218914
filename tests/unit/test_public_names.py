"""What `tracekit` and `tracekit.integrations` offer, and what it costs to have imported them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tracekit
from tracekit import integrations

HEAVY = ("torch", "numpy", "pandas", "accelerate", "lightning", "pytorch_lightning", "transformers")


@pytest.mark.parametrize("module", [tracekit, integrations])
def test_names_are_sorted_and_have_a_home(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert names == sorted(names)
    assert set(module._HOME) == set(names)  # type: ignore[attr-defined]
    assert set(names) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_of_the_package_can_be_had() -> None:
    assert all(getattr(tracekit, name) is not None for name in tracekit.__all__)


def test_importing_them_imports_nothing_heavy() -> None:
    script = f"import sys, tracekit; tracekit.integrations; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "needless"),
    [
        (["merge", "-o", "run.pftrace"], {"pandas", "rich"}),
        (["analyze"], {"pandas"}),
        (["analyze", "--json", "--actions"], {"pandas"}),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(
    tmp_path: Path, command: list[str], needless: set[str]
) -> None:
    """Pandas is 75 MB, and 40 % of the time that a small run takes."""
    run = Path(__file__).parents[1] / "data" / "ddp_slow_rank"
    name, *options = command
    script = (
        "import sys\n"
        "from tracekit.cli import main\n"
        f"sys.argv = {['tracekit', name, str(run), '--no-cache', *options]}\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"assert not {needless} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
