"""What must hold of a part of a rank's summary when two windows are merged."""

from __future__ import annotations

from typing import Any

from benchmarks.exchanges import rank
from tracekit.loading.summarize import merge_recordings
from tracekit.model.summary import Part


def assert_not_lost(part: Part[Any], later: Any) -> None:
    """GIVEN a window where a part is empty, and one where it is not WHEN they are merged THEN the part is not empty."""
    first = rank(0, steps=(5,))
    second = rank(0, steps=(9,), **{part.name: later})

    merged = merge_recordings([first, second])

    assert merged[part] != part.empty()
    assert merged[part] == part.merge([later])


def assert_merged_from_both(part: Part[Any], value: Any) -> None:
    """GIVEN two windows THEN the merged part is what `Part.merge` returns for both, in order of time."""
    windows = [rank(0, steps=(step,), **{part.name: value}) for step in (5, 9)]

    assert merge_recordings(windows)[part] == part.merge([value, value])
