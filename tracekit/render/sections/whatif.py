"""What each change would save, and where slowness comes from, in the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.table import rows_of
from tracekit.analysis.whatif.sections import WHATIF_SECTION
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.model.quantities import milliseconds
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

_SHOWN = 8

__all__ = ["WHATIF_VIEW", "change_table", "replay_summary", "whatif_dict", "whatif_table"]


def whatif_dict(result: WhatIf) -> dict[str, Any]:
    """Return the section of the JSON contract."""
    return {
        "S": result.slowdown,
        "M_W": result.slowest_ranks_share,
        "M_S": result.last_stage_share,
        "replay_error": result.replay_error,
        "steps": result.steps,
        "measured_step_ns": result.measured_ns,
        "replayed_step_ns": result.replayed_ns,
        "ideal_step_ns": result.ideal_ns,
        "S_by_rank": {str(rank): value for rank, value in result.by_rank.items()},
        "S_by_type": dict(result.by_type),
        "S_by_stage": {str(stage): value for stage, value in result.by_stage.items()},
        "fix": rows_of(result, "fix"),
    }


def whatif_table(result: WhatIf) -> list[object]:
    """Return what each change would save, then where the slowness comes from."""
    parts: list[object] = [f"  {replay_summary(result)}"]
    explained = []
    if result.slowest_ranks_share is not None:
        explained.append(f"the slowest 3 % of the ranks explain {result.slowest_ranks_share:.0%} of the slowdown (M_W)")
    if result.last_stage_share is not None:
        explained.append(f"the last stage explains {result.last_stage_share:.0%} of it (M_S)")
    if explained:
        text = ", ".join(explained)
        parts.append(f"  {text[0].upper()}{text[1:]}.")
    parts.append("")
    parts += (
        change_table(result) if result.changes else ["  No change that was tried saves more than its uncertainty.", ""]
    )
    slow = [
        *((f"rank {rank}", value) for rank, value in result.by_rank.items()),
        *((f"stage {stage}", value) for stage, value in result.by_stage.items()),
        *((name, value) for name, value in result.by_type.items()),
    ]
    rows = [(what, f"{value:.3f}") for what, value in sorted(slow, key=lambda pair: -pair[1])[:_SHOWN]]
    title = "Slowdown S if only this is as measured and all else ideal"
    if len(slow) > _SHOWN:
        title += f"; {_SHOWN} of {len(slow)}, --json has all"
    parts += table(title, ("what", "S"), rows)
    parts += [statement("info", note) for note in result.notes]
    return parts


def replay_summary(result: WhatIf) -> str:
    """Return a sentence on the step as measured, as replayed, and ideal."""
    return (
        f"A step takes {milliseconds(result.measured_ns)} ms; replayed {milliseconds(result.replayed_ns)} ms "
        f"({result.replay_error:+.1%}). If all ranks and steps were alike, it would take "
        f"{milliseconds(result.ideal_ns)} ms: the slowdown S is {result.slowdown:.3f}."
    )


def change_table(result: WhatIf) -> list[object]:
    """Return what each change would save, the largest saving first."""
    rows = [
        (
            change.what,
            f"-{milliseconds(change.saves_ns_per_step)}",
            f"± {milliseconds(change.error_ns)}",
            f"{change.share:.0%}",
        )
        for change in result.changes
    ]
    title = f"What if (ms a step of {milliseconds(result.measured_ns)}; replay error {result.replay_error:+.1%})"
    return table(title, ("change", "saves", "error", "share"), rows)


WHATIF_VIEW = SectionView(
    section=WHATIF_SECTION,
    json=lambda result: {"whatif": whatif_dict(result)},
    text=lambda result, run, width: change_table(result) if result.changes else [],
    title="what if",
    null_keys=("whatif",),
)
