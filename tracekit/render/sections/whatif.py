"""What a run would save without its stragglers, in the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.whatif.sections import WHATIF_SECTION
from tracekit.analysis.whatif.whatif import WhatIf
from tracekit.render.console import statement, table
from tracekit.render.quantities import milliseconds
from tracekit.render.section_view import SectionView

_SHOWN = 8

__all__ = ["WHATIF_VIEW", "fix_table", "whatif_dict", "whatif_table"]


def whatif_dict(result: WhatIf) -> dict[str, Any]:
    """Return the section of the JSON contract."""
    return {
        "S": result.slowdown,
        "M_W": result.m_w,
        "M_S": result.m_s,
        "replay_error": result.replay_error,
        "steps": result.steps,
        "measured_step_ns": result.measured_ns,
        "replayed_step_ns": result.replayed_ns,
        "ideal_step_ns": result.ideal_ns,
        "S_by_rank": {str(rank): value for rank, value in result.by_rank.items()},
        "S_by_type": dict(result.by_type),
        "S_by_stage": {str(stage): value for stage, value in result.by_stage.items()},
        "fix": [
            {
                "what": fix.what,
                "rank": fix.rank,
                "saves_ns_per_step": fix.saves_ns_per_step,
                "error_ns": fix.error_ns,
                "share": fix.share,
            }
            for fix in result.fixes
        ],
    }


def whatif_table(result: WhatIf) -> list[object]:
    """Return what each change would save, then where the slowness comes from."""
    summary = (
        f"  A step takes {milliseconds(result.measured_ns)} ms; replayed {milliseconds(result.replayed_ns)} ms "
        f"({result.replay_error:+.1%}); were all ranks and steps alike, {milliseconds(result.ideal_ns)} ms: "
        f"S = {result.slowdown:.3f}."
    )
    parts: list[object] = [summary]
    explained = []
    if result.m_w is not None:
        explained.append(f"the worst 3 % of the ranks explain {result.m_w:.0%} of that (M_W)")
    if result.m_s is not None:
        explained.append(f"the last stage {result.m_s:.0%} (M_S)")
    if explained:
        text = ", ".join(explained)
        parts.append(f"  {text[0].upper()}{text[1:]}.")
    parts.append("")
    parts += fix_table(result) if result.fixes else ["  No change that was tried saves more than its uncertainty.", ""]
    slow = [
        *((f"rank {rank}", value) for rank, value in result.by_rank.items()),
        *((f"stage {stage}", value) for stage, value in result.by_stage.items()),
        *((name, value) for name, value in result.by_type.items()),
    ]
    rows = [(what, f"{value:.3f}") for what, value in sorted(slow, key=lambda pair: -pair[1])[:_SHOWN]]
    title = "Slowdown S if only this were as measured and all else ideal"
    if len(slow) > _SHOWN:
        title += f"; {_SHOWN} of {len(slow)}, --json has all"
    parts += table(title, ("what", "S"), rows)
    parts += [statement("info", note) for note in result.notes]
    return parts


def fix_table(result: WhatIf) -> list[object]:
    """Return what each change would save, the largest saving first."""
    rows = [
        (fix.what, f"-{milliseconds(fix.saves_ns_per_step)}", f"± {milliseconds(fix.error_ns)}", f"{fix.share:.0%}")
        for fix in result.fixes
    ]
    title = f"What if (ms a step of {milliseconds(result.measured_ns)}; replay error {result.replay_error:+.1%})"
    return table(title, ("change", "saves", "error", "share"), rows)


WHATIF_VIEW = SectionView(
    section=WHATIF_SECTION,
    json=lambda result: {"whatif": whatif_dict(result)},
    text=lambda result, run, width: fix_table(result) if result.fixes else [],
    title="what if",
    null_keys=("whatif",),
)
