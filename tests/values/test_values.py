"""No value of the guarded runs changes unseen. README.md says what to do about a difference."""

from __future__ import annotations

import json

import pytest

from tests.values.__main__ import FROZEN, values_of
from tests.values.canonical import digests
from tests.values.corpus import ValueCase, cases

CASES = [case for case in cases() if case.in_suite]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_as_frozen(case: ValueCase) -> None:
    expected, actual = json.loads(FROZEN.read_text())[case.name], digests(values_of(case))
    changed = sorted(part for part in expected.keys() | actual.keys() if expected.get(part) != actual.get(part))
    assert not changed, f"{case.name}: see tests/values/README.md"
