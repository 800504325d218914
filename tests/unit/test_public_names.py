"""What `tracekit` and `tracekit.integrations` offer, and what it costs to have imported them."""

from __future__ import annotations

import subprocess
import sys

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


def test_analysis_and_renderers_import_pandas_only_to_make_tables() -> None:
    """It is 60 MB, which a process would hold while it decodes its traces."""
    modules = "tracekit.analysis.report, tracekit.render.terminal, tracekit.render.json_result"
    script = f"import sys, {modules}; print('pandas' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
