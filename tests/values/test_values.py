"""No value of the guarded runs changes unseen. README.md says what to do about a difference."""

from __future__ import annotations

import pytest

from tests.components import REAL_TRACES
from tests.values.canonical import digests, values_of
from tests.values.corpus import cases
from tests.values.frozen import read_frozen
from tests.values.ways import differing_ways

FROZEN = read_frozen()
IN_REACH = {case.name: case for case in cases() if case.is_frozen}
READ_IN_OTHER_WAYS = [
    *(name for name in IN_REACH if name.startswith(("data/", "made/"))),
    *(f"job/{group}/3" for group in ("ddp", "pipeline-action", "lost-kernels")),
    "damaged/a clock that is set back",
]
"""Other runs are read so in tests/unit/cli/test_damaged_runs.py."""


def _as_parameters() -> list[object]:
    long = {name for name, case in IN_REACH.items() if case.is_long}
    return [pytest.param(name, marks=[pytest.mark.long] * (name in long)) for name in sorted(FROZEN.keys() | IN_REACH)]


@pytest.mark.parametrize("name", _as_parameters())
def test_values_are_as_frozen(name: str) -> None:
    if name not in IN_REACH:
        pytest.skip(f"needs {REAL_TRACES}: set TRACEKIT_REAL_TRACES to the folder that holds them")
    expected, actual = FROZEN.get(name, {}), digests(values_of(IN_REACH[name]))
    changed = sorted(part for part in expected.keys() | actual.keys() if expected.get(part) != actual.get(part))
    assert not changed, f"{name}: other values in {', '.join(changed)}; tests/values/README.md says what to do"


@pytest.mark.parametrize("name", READ_IN_OTHER_WAYS)
def test_every_way_to_read_a_run_gives_the_same_bytes(name: str) -> None:
    assert differing_ways(IN_REACH[name]) == []
