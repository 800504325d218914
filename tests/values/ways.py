"""Ways to analyse a run that give the same bytes: either decoder, one process or two, with and without a cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tests.values.canonical import exact_text
from tests.values.corpus import ValueCase

WAYS = ("portable decoder", "two jobs", "cold cache", "filled cache")


def differing_ways(case: ValueCase) -> list[str]:
    """Return the ways whose result is not that of the native decoder, one process and no cache, to the byte."""
    with case.at_hand() as path:
        plain = exact_text(path)
        return [way for way, text in zip(WAYS, _other_texts(path), strict=True) if text != plain]


def _other_texts(path: Path) -> Iterator[str]:
    with patch.dict(os.environ, {"TRACEKIT_NATIVE": "0"}):
        yield exact_text(path)
    yield exact_text(path, jobs=2)
    with TemporaryDirectory() as cache:
        yield exact_text(path, cache=Path(cache))
        yield exact_text(path, cache=Path(cache))
