"""A comparison as one HTML page that opens offline.

It shares style, charts and tables with the page of a report. Its data block has the JSON result as `result`, and as
`page` what only the page shows.
"""

from __future__ import annotations

from typing import Any

from tracekit.analysis.comparison.comparison import Comparison, steps_ns
from tracekit.analysis.stats.uncertainty import pseudomedian
from tracekit.model.run import Run
from tracekit.render.comparison.document import comparison_dict
from tracekit.render.comparison.texts import (
    advice_text,
    cause_rows,
    causes_title,
    noise_text,
    remark_text,
    run_text,
    runs_text,
    verdict_text,
)
from tracekit.render.page.inert import inert
from tracekit.render.page.write import offline_page, page_code

__all__ = ["comparison_html", "comparison_page_data"]

_MANIFEST = "comparison.json"


def comparison_html(comparison: Comparison) -> str:
    """Return the page of a comparison as text."""
    data = comparison_page_data(comparison)
    return offline_page(data["page"]["header"]["title"], data, page_code(manifest_name=_MANIFEST))


def comparison_page_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the page consists of, plain values whose texts are inert."""
    baselines, candidate = comparison.baselines, comparison.candidate
    several = len(baselines) > 1
    names = [f"Baseline {number}" if several else "Baseline" for number in range(1, len(baselines) + 1)]
    page = {
        "header": {
            "title": f"{candidate.path} against {baselines[0].path}" + (" and others" if several else ""),
            "facts": [f"Baseline: {runs_text(baselines)}", f"Candidate: {run_text(candidate)}"],
        },
        "verdict": verdict_text(comparison),
        "noise": noise_text(comparison).removeprefix("noise: "),
        "advice": advice_text(comparison),
        "remark": remark_text(comparison),
        "causes_title": causes_title(comparison),
        "causes": cause_rows(comparison),
        "runs": [
            *(_steps(run, name, is_baseline=True) for run, name in zip(baselines, names, strict=True)),
            _steps(candidate, "Candidate", is_baseline=False),
        ],
    }
    return inert({"result": comparison_dict(comparison), "page": page})


def _steps(run: Run, name: str, *, is_baseline: bool) -> dict[str, Any]:
    lengths_ns = steps_ns(run)
    return {
        "name": name,
        "is_baseline": is_baseline,
        "steps": sorted(run.common_steps()),
        "lengths_ns": [round(length_ns) for length_ns in lengths_ns.tolist()],
        "typical_ns": round(pseudomedian(lengths_ns)),
    }
