"""Checks of simulated runs, with a gate of each outcome."""

from __future__ import annotations

from tests.unit.comparison.compared_runs import STEADY, longer, run_of_steps
from tracekit.api import analyze
from tracekit.comparison.comparison import SECTIONS_READ
from tracekit.gates.evaluation import check
from tracekit.gates.gates import parse_gates

_GATES = parse_gates(
    {
        "allow": ["unavailable"],
        "step_time": {"max": "200ms", "max_increase": "5%"},
        "exposed_comm_ratio": {"max": "5%"},
        "peak_memory": {"max": "40GB"},
    },
    "tracekit.toml [gates]",
)
_BASELINE, _CANDIDATE = (
    analyze(run_of_steps(steps, path=path), only=SECTIONS_READ)
    for steps, path in ((STEADY, "main"), (longer(5), "branch"))
)
CHECK = check(_GATES, _CANDIDATE, [_BASELINE])
"""Of four gates one passes, one is inconclusive, one fails, and one is unavailable, which is allowed."""

_OTHER_JOB = analyze(run_of_steps(STEADY, ranks=4, path="<x>&\x1b[31m\n@me,%0A"), only=SECTIONS_READ)
HOSTILE_CHECK = check(parse_gates({"step_time": {"max_increase": "5%"}}, "a:b,c%"), _OTHER_JOB, [_BASELINE])
"""A gate that is incomparable, of a run with a hostile name."""
