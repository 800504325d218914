"""What programs call: results have the methods that show them, and so have the results inside."""

from __future__ import annotations

import tracekit
from tests.places import DATA

RUN = DATA / "ddp_slow_rank"


def test_results_have_the_methods_that_users_call() -> None:
    report = tracekit.analyze(RUN)
    comparison = tracekit.compare(RUN, report)

    assert type(tracekit.load(RUN)) is type(report.run) is tracekit.Run
    assert [type(run) for run in (*comparison.baselines, comparison.candidate)] == [tracekit.Run, tracekit.Run]
    assert comparison.to_json() == tracekit.compare(report, RUN).to_json()
