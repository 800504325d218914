"""What a test needs beyond Python and the core. Where it is missing, the test is skipped, and in CI it fails."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

# CI has everything that can be installed, which hardware and permission to mount cannot.
EXCUSED_IN_CI = {"gpu", "mount"}
REAL_TRACES = "real traces"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def require(component: str, present: object, why: str) -> None:
    """Do nothing if `present` is true; else skip the test, or fail it in CI, with the reason `why`."""
    if present:
        return
    reason = f"needs {component}: {why}"
    if in_ci() and component not in EXCUSED_IN_CI:
        pytest.fail(f"{reason} (a failure because CI must not skip)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require_module(name: str) -> Any:
    """Return the imported module; where it is missing, skip or fail as `require` does."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        require(name.partition(".")[0], False, str(error))
        raise
