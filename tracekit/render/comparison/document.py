"""A comparison as JSON, under the rules of the report's, and as one HTML page that opens offline.

JSON: integers in ns, ratios as fractions of 1, null for unknown. The page shares style, charts and tables with that of
a report. Its data block has the JSON result as `result`, and as `page` what only the page shows.
"""

from __future__ import annotations

import json
from typing import Any

import tracekit
from tracekit.analysis.comparison.comparison import Comparison, steps_ns
from tracekit.analysis.comparison.step_verdict import CONFIDENCE
from tracekit.analysis.stats.uncertainty import pseudomedian
from tracekit.analysis.step_time.step_lengths import step_lengths
from tracekit.analysis.table import rows_of
from tracekit.model.run import Run
from tracekit.model.safe_text import unicode_text
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
from tracekit.render.json_result import SCHEMA_VERSION

__all__ = ["comparison_dict", "comparison_html", "comparison_json", "comparison_page_data", "json_text"]

_MANIFEST = "comparison.json"


def comparison_json(comparison: Comparison) -> str:
    """Return the comparison as a JSON document with sorted keys; equal comparisons give equal bytes."""
    head = {"schema_version": SCHEMA_VERSION, "tracekit_version": tracekit.__version__}
    return json_text(head | comparison_dict(comparison))


def json_text(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain values."""
    change, verdict, noise = comparison.change, comparison.verdict, comparison.change.run_noise
    return {
        "baselines": [_run(run) for run in comparison.baselines],
        "candidate": _run(comparison.candidate),
        "change": {
            "verdict": verdict.judgement,
            "baseline_ns": comparison.baseline_ns,
            "candidate_ns": comparison.candidate_ns,
            "change_ns": comparison.candidate_ns - comparison.baseline_ns,
            "ratio": change.ratio,
            "ratio_low": change.low,
            "ratio_high": change.high,
            "confidence": CONFIDENCE,
            "margin": verdict.margin,
            "step_noise": change.step_noise,
            "run_noise": noise.share,
            "run_noise_is_measured": noise.is_measured,
            "steps_needed": verdict.steps_needed,
        },
        "causes_from": "diagnosis" if comparison.basis == "causes" else "breakdown",
        "causes": rows_of(comparison, "causes"),
        "explored": rows_of(comparison, "explored"),
        "differences": rows_of(comparison, "differences"),
    }


def _run(run: Run) -> dict[str, Any]:
    lengths = step_lengths(run)
    return {
        "path": unicode_text(run.path),
        "run_id": run.run_id,
        "attempt": run.attempt,
        "ranks": len(run.ranks),
        "steps": 0 if lengths is None else lengths.count,
        "median_ns": None if lengths is None else lengths.median_ns,
        "typical_ns": None if lengths is None else round(pseudomedian(steps_ns(run))),
    }


def comparison_html(comparison: Comparison) -> str:
    """Return the page of a comparison as text."""
    from tracekit.render.page.write import offline_page, page_code

    data = comparison_page_data(comparison)
    return offline_page(data["page"]["header"]["title"], data, page_code(manifest_name=_MANIFEST))


def comparison_page_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the page consists of, plain values whose texts are inert."""
    from tracekit.render.page.inert import inert

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
