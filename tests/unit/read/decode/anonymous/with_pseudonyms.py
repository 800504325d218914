"""What a function that replaces names returns, after it has collected them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tracekit.model.names.pseudonyms import NameCollector, Namer, Pseudonyms

T = TypeVar("T")


def with_pseudonyms(rename: Callable[[str, Namer], T], text: str) -> T:
    collector = NameCollector()
    rename(text, collector)
    return rename(text, Pseudonyms.of_names(collector.names))
