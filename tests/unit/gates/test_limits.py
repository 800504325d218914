"""Limits as people write them."""

from __future__ import annotations

import pytest

from tracekit.gates.gates import parse_limit, parse_share
from tracekit.gates.metrics import Unit


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("200ms", "time", 200e6),
        ("1.5 s", "time", 1.5e9),
        ("250us", "time", 250e3),
        ("40GB", "bytes", 40e9),
        ("40 GiB", "bytes", 40 * 2**30),
        ("20%", "ratio", 0.2),
        (0.2, "ratio", 0.2),
        (0, "ratio", 0.0),
    ],
)
def test_a_limit_has_the_unit_of_its_metric(text: object, unit: Unit, expected: float) -> None:
    assert parse_limit(text, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (200, "time"),  # of what unit?
        ("200", "time"),
        ("200 Ms", "time"),
        ("-5ms", "time"),
        ("40", "bytes"),
        ("40gb", "bytes"),
        (20, "ratio"),  # 20 or 20 %?
        ("20", "ratio"),
        ("-1%", "ratio"),
        (True, "ratio"),
        (float("nan"), "ratio"),
        (None, "ratio"),
        ("9" * 400 + "s", "time"),
    ],
)
def test_what_may_mean_something_else_is_refused_with_an_example(text: object, unit: Unit) -> None:
    with pytest.raises(ValueError, match="such as"):
        parse_limit(text, unit)


def test_a_share_may_be_more_than_all_as_a_percentage() -> None:
    assert parse_share("150%") == 1.5
