"""Gates of a configuration: what they mean, and that nothing is taken for a gate that is none."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.errors import UsageError
from tracekit.gates.gates import DEFAULT_GATES, parse_gates


def test_a_table_of_gates() -> None:
    gates = parse_gates(
        {
            "allow": ["unavailable"],
            "run_noise": "4%",
            "step_time": {"max": "200ms", "max_increase": "5%"},
            "mfu": {"min": 0.4, "max_decrease": 0.1},
        },
        "tracekit.toml [gates]",
    )
    assert [(gate.name, gate.limit, gate.is_relative) for gate in gates.gates] == [
        ("step_time.max", 200e6, False),
        ("step_time.max_increase", 0.05, True),
        ("mfu.min", 0.4, False),
        ("mfu.max_decrease", 0.1, True),
    ]
    assert (gates.allow, gates.run_noise) == (frozenset({"unavailable"}), 0.04)
    assert gates.sections == {"breakdown", "roofline"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "no gate is in it"),
        ({"allow": ["inconclusive"]}, "no gate is in it"),
        ({"step_tiem": {"max": "1s"}}, "no gate 'step_tiem'"),
        ({"step_time": "200ms"}, "step_time is no table with a limit"),
        ({"step_time": {}}, "step_time is no table with a limit"),
        ({"step_time": {"maximum": "1s"}}, "step_time has no limit 'maximum'"),
        ({"step_time": {"min": "1s"}}, "step_time has no limit 'min'"),
        ({"mfu": {"max": 0.4}}, "mfu has no limit 'max'"),
        ({"step_time": {"max": 200}}, "step_time: max = 200 is not understood"),
        ({"step_time": {"max_increase": "200ms"}}, "step_time: max_increase = '200ms' is not understood"),
        ({"step_time": {"max": "1s"}, "allow": "all"}, "allow = 'all' is not understood"),
        ({"step_time": {"max": "1s"}, "allow": ["failed"]}, r"allow = \['failed'\] is not understood"),
        ({"step_time": {"max": "1s"}, "allow": [["inconclusive"]]}, r"allow = .* is not understood"),
        ({"step_time": {"max": "1s"}, "run_noise": "much"}, "run_noise = 'much' is not understood"),
        ({"step_time": {"max": "1s"}, "run_noise": 0}, "run_noise = 0 is not understood"),
        ({"step_time": {"max": "1s"}, "run_noise": "100%"}, "run_noise = '100%' is not understood"),
    ],
)
def test_what_is_no_gate_is_a_usage_error_that_names_the_place(table: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=rf"^here: {message}"):
        parse_gates(table, "here")


def test_by_default_the_step_may_be_5_percent_longer() -> None:
    (gate,) = DEFAULT_GATES.gates
    assert (gate.name, gate.limit) == ("step_time.max_increase", 0.05)
