"""Which regular expressions could take too long."""

from __future__ import annotations

import pytest

from tracekit.rank.communication_rules import reason_to_refuse


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(?:a|ab)*x", "(?P<name>a?){50}", "((a*))+", "(a{1,3}){2,}", "(?i:a+)+?", "((?:){1000}){1000}",
        "a{1001}", "(?:){0,4000000000}", "a?" * 30 + "a" * 30, "(a|a)" * 30, "(" * 5000, "(?x)(a+) +",
    ],
)  # fmt: skip
def test_a_pattern_that_could_take_too_long_is_refused(pattern: str) -> None:
    """GIVEN a pattern that has more ways to match a name than can be tried."""
    reason = reason_to_refuse(pattern)
    assert reason is not None
    assert len(reason) < 100


@pytest.mark.parametrize(
    "pattern",
    [
        r"^void my::\w+<.*>\(.*\)$", "(?:void )?my_(ring|tree|mesh|halo|star|line|torus|cube)_v[0-9]+", "(?i)a.*b",
        r"[(+*)+]+\(a\+\)+", "(?<!x)(?:ab){3}", "a{}", "{", "(ab)+", "(?:half2)*",
    ],
)  # fmt: skip
def test_a_pattern_with_few_choices_is_not(pattern: str) -> None:
    assert reason_to_refuse(pattern) is None
