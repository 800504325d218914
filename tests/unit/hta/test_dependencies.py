"""The extra that brings HTA: it stands alone, as it brings JupyterLab."""

from __future__ import annotations

import tomllib

from tests.places import ROOT


def test_hta_is_an_extra_that_all_leaves_out() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (requirement,) = extras["hta"]
    assert requirement.startswith("holistictraceanalysis>=")
    (of_all,) = extras["all"]
    assert "hta" not in of_all.removeprefix("torch-tracekit[").removesuffix("]").split(",")
