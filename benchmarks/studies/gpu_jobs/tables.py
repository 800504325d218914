"""What a study found, as tables: checks that are right by group and by topic, false alarms, culprits, savings."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.studies.documents import Row
from benchmarks.studies.gpu_jobs.checks.savings import saving_of_finding, saving_of_whatif
from benchmarks.studies.gpu_jobs.checks.verdicts import cause, culprit, no_false_alarm
from benchmarks.studies.gpu_jobs.scoring import Score


def table_by_group(scores: Sequence[Score]) -> list[Row]:
    """Return a row for each group: its jobs, checks, those that are right, and the statements that matter most."""
    groups = dict.fromkeys(score.group for score in scores)
    heading = (
        *("group", "jobs", "checks", "right", "wrong", "abstained"),
        *("false alarms in healthy jobs", "culprits named", "causes right", "savings right"),
    )
    rows = [_group_row(group, [s for s in scores if s.group == group]) for group in groups]
    return [heading, *rows, _group_row("all", scores)]


def table_by_check(scores: Sequence[Score]) -> list[Row]:
    """Return a row for each check, and a column for each group with how many were right of how many."""
    groups = list(dict.fromkeys(score.group for score in scores))
    checks = dict.fromkeys((score.topic, score.check) for score in scores)
    rows = [
        (
            topic,
            name.replace("_", " "),
            *(_right([s for s in scores if (s.check, s.group) == (name, g)]) for g in groups),
        )
        for topic, name in sorted(checks, key=lambda key: [score.topic for score in scores].index(key[0]))
    ]
    return [("topic", "check", *groups), *rows]


def table_by_defect(scores: Sequence[Score]) -> list[Row]:
    """Return a row for each defect: how often culprit and cause were right, and how often the savings."""
    rows = []
    for defect in dict.fromkeys(score.cause for score in scores if score.cause is not None):
        of_defect = [score for score in scores if score.cause == defect]
        columns = (_named(of_defect, check.__name__) for check in (culprit, cause, saving_of_finding, saving_of_whatif))
        rows.append((defect.replace("_", " "), str(_jobs(of_defect)), *columns))
    return [("defect", "jobs", "culprits named", "causes right", "savings of findings", "savings of what-if"), *rows]


def _group_row(name: str, scores: Sequence[Score]) -> Row:
    counts = [sum(score.verdict == verdict for score in scores) for verdict in ("right", "wrong", "abstained")]
    alarms = [score for score in scores if score.check == no_false_alarm.__name__]
    savings = [s for s in scores if s.check in {saving_of_finding.__name__, saving_of_whatif.__name__}]
    return (
        name,
        str(_jobs(scores)),
        str(len(scores)),
        f"{counts[0]} ({counts[0] / max(len(scores), 1):.1%})",
        str(counts[1]),
        str(counts[2]),
        f"{sum(score.verdict != 'right' for score in alarms)} of {len(alarms)}",
        _named(scores, culprit.__name__),
        _named(scores, cause.__name__),
        _right(savings),
    )


def _jobs(scores: Sequence[Score]) -> int:
    return len({(score.group, score.seed) for score in scores})


def _named(scores: Sequence[Score], check: str) -> str:
    return _right([score for score in scores if score.check == check])


def _right(scores: Sequence[Score]) -> str:
    return f"{sum(score.verdict == 'right' for score in scores)} of {len(scores)}" if scores else ""
