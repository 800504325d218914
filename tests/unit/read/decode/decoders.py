"""Decode with both decoders: they agree, or the native one leaves the file to the portable one."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.components import require
from tracekit.errors import TracekitError
from tracekit.model.events import DecodedTrace
from tracekit.read.decode import portable


def native_decoder() -> Any:
    """Return the module `tracekit.read.decode.native`; skip the test where there was no compiler."""
    try:
        return importlib.import_module("tracekit.read.decode.native")
    except ImportError as error:
        require("the native decoder", False, str(error))
        raise


def decode(path: Path, *, extra_args: bool = False) -> DecodedTrace:
    """Return what the portable decoder reads, after checking that the native one reads the same or nothing."""
    try:
        native = importlib.import_module("tracekit.read.decode.native")
    except ImportError:
        return portable.decode(path, extra_args=extra_args)
    actual = outcome(native.decode, path, extra_args=extra_args)
    if actual is not None:
        assert differences(actual, outcome(portable.decode, path, extra_args=extra_args)) == []
    return portable.decode(path, extra_args=extra_args)


def outcome(decoder: Any, path: Path, **options: bool) -> Any:
    """Return what a decoder returns, or the text of its error."""
    try:
        return decoder(path, **options)
    except TracekitError as error:
        return f"{type(error).__name__}: {error}"


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return the fields in which two decoded traces differ, in bits or in dtype."""
    if type(one) is not type(other):
        return [where or "type"]
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return [d for name in names for d in differences(getattr(one, name), getattr(other, name), f"{where}.{name}")]
    if isinstance(one, np.ndarray):
        return [] if one.dtype == other.dtype and np.array_equal(one, other) else [where]
    return [] if one == other else [where or "value"]
