"""Stragglers in the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.stragglers.sections import STRAGGLERS_SECTION
from tracekit.analysis.stragglers.stragglers import Stragglers
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

__all__ = ["STRAGGLERS_VIEW", "straggler_table", "stragglers_dict"]

_SHOWN_RANKS = 4


def stragglers_dict(stragglers: Stragglers) -> dict[str, Any]:
    """Return the section of the JSON contract. Times are means a step."""
    verdict = stragglers.verdict
    return {
        "rank": verdict.rank,
        "ranks": list(verdict.ranks),
        "host": verdict.host,
        "cause": verdict.cause,
        "caused_delay_ns": verdict.caused_delay_ns,
        "share_of_step": verdict.share_of_step,
        "significance_ns": verdict.significance_ns,
        "persistence": verdict.persistence,
        "certainty": verdict.certainty,
        "text": verdict.text,
        "links": [
            {
                "from": link.ranks[0] if len(link.ranks) == 2 else None,
                "to": link.ranks[1] if len(link.ranks) == 2 else None,
                "ranks": list(link.ranks),
                "slowdown": link.slowdown,
                "compared_with": link.reference,
            }
            for link in stragglers.links
        ],
        "by_rank": rows_of(stragglers, "by_rank"),
    }


def straggler_table(stragglers: Stragglers) -> list[object]:
    """Return who held up the others and who waited, the worst first; or why no rank is named.

    Nothing without collectives.
    """
    rows = rows_of(stragglers, "by_rank")
    if not any(row["arrivals"] for row in rows):
        return []
    known = [row for row in rows if row["wait_ns"] is not None]
    worst = sorted(known, key=lambda row: (-row["caused_delay_ns"], -row["last_arrivals"], row["rank"]))[:_SHOWN_RANKS]
    title = "Who holds up the others in collectives (ms a step)"
    if len(worst) < len(known):
        title += f"; the worst {len(worst)} of {len(known)} ranks, --json has all"
    cells = [
        (
            str(row["rank"]),
            milliseconds(row["caused_delay_ns"]),
            row["cause"] or "",
            f"{row['last_arrivals']} of {row['arrivals']}",
            milliseconds(row["wait_ns"]),
        )
        for row in worst
    ]
    parts = table(title, ("rank", "delay caused", "by", "came last", "waited"), cells) if cells else []
    if stragglers.verdict.cause is None and stragglers.verdict.text:
        parts += [statement("info", stragglers.verdict.text), ""]
    return parts


STRAGGLERS_VIEW = SectionView(
    section=STRAGGLERS_SECTION,
    json=lambda result: {"stragglers": stragglers_dict(result)},
    text=lambda result, run, width: straggler_table(result) if len(run.ranks) > 1 else [],
)
