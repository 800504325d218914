"""Puts settings into the form of the metadata: modules with equal values together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tracekit.model.metadata import Settings, SettingValue

__all__ = ["dtype_name", "settings_by_values"]

Values = Mapping[str, SettingValue]


def settings_by_values(component: str, modules: Iterable[tuple[str, Values]]) -> list[Settings]:
    """Return one entry for all modules with equal values, in order of the first of them. modules: names and values."""
    names: dict[tuple[tuple[str, SettingValue], ...], list[str]] = {}
    for name, values in modules:
        names.setdefault(tuple(values.items()), []).append(name)
    return [Settings(component=component, modules=of_values, values=dict(key)) for key, of_values in names.items()]


def dtype_name(dtype: Any) -> str | None:
    """Return `bfloat16` for `torch.bfloat16`; None for None."""
    return None if dtype is None else str(dtype).removeprefix("torch.")
