"""All tables of a report, by name: those of the run, and those of each section that has a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tracekit.explain.run_tables import FINDINGS, GROUPS, NOTES, RUN
from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.breakdown import capture_overhead
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.findings.finding import Finding
from tracekit.job.clocks.measured import CLOCK
from tracekit.job.messages import message_table
from tracekit.model.run import Run
from tracekit.model.table import FilledTable, tables_of
from tracekit.version import __version__


def report_tables(run: Run, results: Mapping[str, Any], findings: Iterable[Finding]) -> dict[str, FilledTable]:
    """Return the tables by name: first those of every run, then those of the results, in their order."""
    of_run = (run_table(run), finding_table(findings), note_table(run), _group_table(run), clock_table(run))
    of_results = (
        table for result in results.values() if not isinstance(result, Unavailable) for table in tables_of(result)
    )
    return {table.name: table for table in (*of_run, message_table(run), *of_results)}


def run_table(run: Run) -> FilledTable:
    """Return the run in one row."""
    lengths, overhead = step_lengths(run), capture_overhead(run)
    hosts = {summary.host for summary in run.ranks if summary.host is not None}
    row = RUN.row(
        run,
        ranks=len(run.ranks),
        device_names=sorted({s.device_name for s in run.ranks if s.device_name is not None}),
        hosts=len(hosts) or None,
        steps=0 if lengths is None else lengths.count,
        step_median_ns=None if lengths is None else lengths.median_ns,
        step_min_ns=None if lengths is None else lengths.min_ns,
        step_max_ns=None if lengths is None else lengths.max_ns,
        capture_overhead_ratio=None if overhead is None else overhead.ratio,
        tracekit_version=__version__,
    )
    return RUN.fill([row])


def finding_table(findings: Iterable[Finding]) -> FilledTable:
    """Return the findings, the most important first."""
    rows = [
        FINDINGS.row(
            finding,
            ranks=finding.concerned,
            evidence=json.loads(json.dumps(dict(finding.evidence))),  # with lists for tuples, as in every file
        )
        for finding in findings
    ]
    return FINDINGS.fill(rows)


def note_table(run: Run) -> FilledTable:
    """Return what was missing, repaired or left out."""
    return NOTES.fill([NOTES.row(note) for note in run.notes])


def _group_table(run: Run) -> FilledTable:
    rows = [
        GROUPS.row(group, id=index, dimension=group.dimension or group.parallelism)
        for index, group in enumerate(run.groups)
    ]
    return GROUPS.fill(rows)


def clock_table(run: Run) -> FilledTable:
    """Return how the clock of each rank relates to that of the run."""
    return CLOCK.fill([CLOCK.row(clock) for clock in run.clocks])
