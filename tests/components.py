"""What a test needs beyond Python and the core: skipped with the reason on a developer's machine, failed in CI."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

# CI has everything that can be installed; hardware and the right to mount cannot.
EXCUSED_IN_CI = {"gpu", "mount"}
REAL_TRACES = "real traces"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def require(component: str, present: object, why: str) -> None:
    """Go on if `present` is true; else skip the test, or fail it in CI, saying `why`."""
    if present:
        return
    reason = f"needs {component}: {why}"
    if in_ci() and component not in EXCUSED_IN_CI:
        pytest.fail(f"{reason} (a failure because CI must not skip)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require_module(name: str) -> Any:
    """The module of this name, which a component brings; `require` for what can be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        require(name.partition(".")[0], False, str(error))
        raise
