"""What a comparison of runs says: its sentences, the JSON result, and one HTML page that opens offline.

The sentences are the same in every output. The JSON result follows the rules of the report's: integers in ns, ratios as
fractions of 1, null for unknown. The page shares style, charts and tables with that of a report. Its data block has the
JSON result as `result`, and as `page` what only the page shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit.comparison.comparison import Comparison, steps_ns
from tracekit.comparison.step_verdict import CONFIDENCE, ENOUGH_STEPS, UNEVEN_STEPS, ChangeEstimate
from tracekit.explain.diagnosis.tables import cause_name
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.model.events import PROFILER_OPTIONS
from tracekit.model.run import Run, ranks_text
from tracekit.model.table import rows_of
from tracekit.model.texts import count_text, milliseconds, percent, shortened, unicode_text
from tracekit.render.json_result import json_document
from tracekit.stats.uncertainty import pseudomedian

_MANIFEST = "comparison.json"

_MOST_OF_NAME = 40  # characters; names of kernels take hundreds


def comparison_json(comparison: Comparison) -> str:
    """Return the comparison as a JSON document with sorted keys; equal comparisons give equal bytes."""
    return json_document(comparison_dict(comparison))


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
    from tracekit.render.page.build import offline_page, page_code

    data = comparison_page_data(comparison)
    return offline_page(data["page"]["header"]["title"], data, page_code(manifest_name=_MANIFEST))


def comparison_page_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the page consists of, plain values whose texts are inert."""
    from tracekit.render.page.size import inert

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


def run_text(run: Run) -> str:
    """Return `10 steps of 184.60 ms (177.20 to 196.30): runs/new, run 2026...`."""
    name = run.path if run.run_id is None or run.run_id in run.path else f"{run.path}, run {run.run_id}"
    lengths = step_lengths(run)
    if lengths is None:
        return name
    extent = f" ({milliseconds(lengths.min_ns)} to {milliseconds(lengths.max_ns)})" if lengths.count > 1 else ""
    return f"{count_text(lengths.count, 'step')} of {milliseconds(pseudomedian(steps_ns(run)))} ms{extent}: {name}"


def runs_text(runs: Sequence[Run]) -> str:
    """Return one run as `run_text` does, and several as their number, steps and names."""
    if len(runs) == 1:
        return run_text(runs[0])
    lengths_ns = [steps_ns(run) for run in runs]
    typical_ns = sorted(map(pseudomedian, lengths_ns))
    names = ", ".join(dict.fromkeys(run.path for run in runs))
    extent = f"{milliseconds(typical_ns[0])} to {milliseconds(typical_ns[-1])} ms"
    return f"{len(runs)} runs, {sum(map(len, lengths_ns))} steps of {extent}: {names}"


def change_range(change: ChangeEstimate) -> str:
    """Return `-1.2% to +4.6%`; "not known" without an interval."""
    if change.low is None or change.high is None:
        return "not known"
    return f"{percent(change.low - 1, 1, '+')} to {percent(change.high - 1, 1, '+')}"


def verdict_text(comparison: Comparison) -> str:
    """Return the verdict, the change and its interval in one sentence."""
    change, verdict = comparison.change, comparison.verdict
    difference_ns = comparison.candidate_ns - comparison.baseline_ns
    longer = "longer" if difference_ns >= 0 else "shorter"
    by = f"{milliseconds(abs(difference_ns))} ms ({abs(change.ratio - 1):.1%}) {longer}" if difference_ns else "as long"
    interval = f"{CONFIDENCE:.0%} interval {change_range(change)}"
    if change.low is None:
        return f"inconclusive: a step takes {by}, and few steps do not show how they differ"
    if verdict.judgement == "equivalent":
        measured = f"{percent(change.ratio - 1, 1, '+')}; {interval}"
        return f"equivalent: a step takes as long, within {verdict.margin:.1%} ({measured})"
    if verdict.judgement == "inconclusive":
        return f"inconclusive: a step takes {by}, but noise leaves open {change_range(change)}"
    return f"{verdict.judgement}: a step takes {by} ({interval})"


def noise_text(comparison: Comparison) -> str:
    """Return what the interval consists of."""
    change, noise = comparison.change, comparison.change.run_noise
    runs = (
        f"as {noise.runs} baseline runs show"
        if noise.is_measured
        else "an assumption, until there are three baseline runs"
    )
    phrases = [] if change.step_noise is None else [f"{change.step_noise:.1%} between steps"]
    return f"noise: {' and '.join([*phrases, f'{noise.share:.1%} between runs'])} ({runs})"


def advice_text(comparison: Comparison) -> str | None:
    """Return what would decide an inconclusive comparison, or why the verdict is no proof; None where all is said."""
    change, verdict = comparison.change, comparison.verdict
    options = [row["what"] for row in rows_of(comparison, "differences") if row["what"] in PROFILER_OPTIONS]
    if options and verdict.judgement in ("slower", "faster"):
        text = f"the options of the profiler differ ({', '.join(options)})"
        return f"{text}: a slower host is no proof; record both runs alike"
    if verdict.judgement != "inconclusive":
        return None
    if verdict.steps_needed is not None:
        few = f"; with fewer than {ENOUGH_STEPS}, only changes of 10% show" if change.steps < ENOUGH_STEPS else ""
        return f"about {verdict.steps_needed} steps in each run would decide{few}"
    if change.run_noise.is_measured:
        return "more steps cannot decide: runs differ too much though nothing is changed; record more runs"
    return "more steps cannot decide: runs may differ by as much though nothing is changed; give three baseline runs"


def remark_text(comparison: Comparison) -> str | None:
    """Return what is missing of the runs or was repaired: the first such note, and how many more there are."""
    remarks = [
        f"{run.path}: {note.text}"
        for run in (*comparison.baselines, comparison.candidate)
        for note in sorted(run.notes, key=lambda note: note.severity != "error")
        if note.severity != "info"
    ]
    more = f" (and {len(remarks) - 1} more: tracekit analyze)" if len(remarks) > 1 else ""
    return f"{remarks[0]}{more}" if remarks else None


def cause_text(row: dict[str, Any]) -> str:
    """Return a cause with its ranks: `slow compute, rank 2`."""
    if row["cause"] == UNEVEN_STEPS:
        return "uneven steps (typical less mean)"
    named = f", {ranks_text(row['ranks'])}" if row["ranks"] else ""
    return f"{cause_name(row['cause'])}{named}"


def cause_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return rows of the causes with what they are called."""
    return [row | {"label": cause_text(row)} for row in rows_of(comparison, "causes")]


def causes_title(comparison: Comparison) -> str:
    """Return what the causes, or the parts that take their place, are divided from."""
    return "what a step consists of" if comparison.basis == "causes" else "where ranks' time goes in a step"


def explored_text(row: dict[str, Any]) -> str:
    """Return `rank 3 +9.10 ms`, or `gemm_kernel +1.20 ms`: kernels, operators and groups say what they are."""
    name = f"{row['dimension']} {row['name']}" if row["dimension"] in {"phase", "rank"} else row["name"]
    return f"{shortened(name, _MOST_OF_NAME)} {milliseconds(row['change_ns'], sign='+')} ms"


def difference_text(row: dict[str, Any]) -> str:
    """Return `ddp.bucket_cap_mb 25 -> 1`."""
    values = ["none" if row[side] is None else row[side] for side in ("baseline", "candidate")]
    is_name = "." in row["what"] or row["what"] in PROFILER_OPTIONS
    return f"{row['what'] if is_name else row['what'].replace('_', ' ')} {values[0]} -> {values[1]}"
