"""The first screen of the HTML report: what ran, what to do about it, and what its step consists of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal

from tracekit.explain.diagnosis.tables import cause_name
from tracekit.explain.step_time.step_lengths import different_paces_ns, mean_step_ns, step_lengths, typical_step
from tracekit.findings.finding import Finding
from tracekit.model.run import Run, clocks_are_comparable, format_ranges, largest_pair_error_ns
from tracekit.model.texts import duration, milliseconds, safe_text
from tracekit.render.answer import finding_text, saving_share_text
from tracekit.render.console import headline
from tracekit.render.page.contract import FindingView, Header, StepCause, StepView, WaterfallRow
from tracekit.render.sections.lines import overhead_text
from tracekit.render.sections.text import where_text
from tracekit.report.report import Report
from tracekit.report.shown_ranks import SHOWN_RANKS, evidence_ranks, ranks_to_show

_WIDTH = 200  # of the headline, in characters
_PART: dict[str, Literal["compute", "communication", "bubble", "other"]] = {
    "compute": "compute",
    "transfer": "communication",
    "copy": "communication",
    "warmup": "bubble",
    "drain": "bubble",
    "imbalance": "bubble",
    "late_peer": "bubble",
    "other": "other",
}


def header(report: Report, result: dict[str, Any]) -> Header:
    """Return the first lines of the page. `result`: the JSON result."""
    run = report.run
    path, *facts = headline(run, _WIDTH).plain.split("\n")
    name = safe_text(PurePath(run.path).name) or path
    title = f"{name}, attempt {run.attempt}" if run.attempt else name
    steps, lengths = sorted(run.common_steps()), step_lengths(run)
    unmeasured = [row["rank"] for row in result["run"]["unmeasured_ranks"]]
    comparable = clocks_are_comparable(run.ranks, run.clocks)
    error_ns = largest_pair_error_ns(run.clocks) if comparable else None
    return Header(
        title=title,
        facts=facts if title == path else [*facts, path],
        rank_count=len(run.ranks),
        missing=format_ranges(run.missing_ranks) if run.missing_ranks else None,
        unmeasured=format_ranges(unmeasured) if unmeasured else None,
        step_count=len(steps),
        steps=format_ranges(steps) if steps else None,
        step_ns=None if lengths is None or different_paces_ns(run) else lengths.median_ns,
        clock_text=_clock_text(run, error_ns),
        overhead_text=overhead_text(run),
    )


_HOW_ALIGNED = {
    "probe": "measured while recording",
    "host": "one host",
    "wall": "wall clocks agree",
    "collectives": "fitted to collectives",
    "messages": "bound by messages",
}


def _clock_text(run: Run, error_ns: int | None) -> str:
    if len(run.ranks) == 1:
        return "there is one rank, and so one clock"
    if error_ns is None:
        return "the clocks of these ranks cannot be compared: times of different ranks are not"
    reference = run.reference_rank
    methods = sorted({clock.method for clock in run.clocks if clock.rank != reference} - {"none"})
    by = f" ({', '.join(_HOW_ALIGNED[method] for method in methods)})" if methods else ""
    if not error_ns:
        return f"the clocks of these ranks agree{by}"
    return f"times of two ranks may be off each other by {duration(error_ns)}{by}"


def finding_views(report: Report) -> list[FindingView]:
    """Return what the page adds to each finding, in their order."""
    step_ns = mean_step_ns(report.run)
    return [_finding_view(report, finding, step_ns) for finding in report.findings]


def _finding_view(report: Report, finding: Finding, step_ns: int) -> FindingView:
    run = report.run
    ranks = evidence_ranks(report, finding)
    steps = [step for step in (_step_of(finding),) if step is not None and step in run.common_steps()]
    text = finding_text(finding, step_ns)
    command = open_command(report, ranks, steps)
    saving_ns = finding.saving_ns
    return FindingView(
        text=text,
        saving_share=None if saving_ns is None or not step_ns else saving_ns / step_ns,
        saving_share_text=None if saving_ns is None or not step_ns else saving_share_text(finding, step_ns),
        ranks=ranks,
        steps=steps,
        groups=_groups_of(run, finding.evidence.get("group")),
        kind=_text_of(finding, "kind"),
        phase=_text_of(finding, "phase"),
        section=_text_of(finding, "section"),
        open_command=command,
        explain_command=safe_text(shlex.join(["tracekit", "explain", finding.id, *run.arguments])),
        markdown=_markdown(finding, text, command, step_ns),
    )


def _groups_of(run: Run, group: object) -> list[int]:
    """Return the indices of the groups that evidence means: one by its index, or those of a name."""
    if isinstance(group, int):
        return [group] if 0 <= group < len(run.groups) else []
    return [i for i, key in enumerate(run.groups) if group is not None and key.label == group]


def _text_of(finding: Finding, name: str) -> str | None:
    value = finding.evidence.get(name)
    return value if isinstance(value, str) else None


def _step_of(finding: Finding) -> int | None:
    """Return the step that a finding is about, or in which its evidence is."""
    wait = finding.evidence.get("longest_wait")
    step = wait.get("step") if isinstance(wait, dict) else None
    return finding.step if finding.step is not None else step


def open_command(report: Report, ranks: Sequence[int] = (), steps: Sequence[int] = ()) -> str:
    """Return what shows these ranks and a step in Perfetto, as a shell takes it.

    Of many ranks those are opened that the finding names, and others to compare them with.
    """
    run, options = report.run, list[str]()
    if run.selected_ranks is None and len(run.ranks) > SHOWN_RANKS:
        others = [rank for rank in ranks_to_show(report, SHOWN_RANKS) if rank not in ranks]
        chosen = [*ranks[: SHOWN_RANKS - 1], *others][:SHOWN_RANKS]
        options += ["--ranks", format_ranges(sorted(chosen)).replace(" ", "")]
    step = steps[0] if steps else typical_step(run)
    if step is not None and len(run.common_steps()) > 1:
        options += ["--steps", str(step)]
    return safe_text(shlex.join(["tracekit", "open", *run.arguments, *options]))


def _markdown(finding: Finding, text: str, command: str, step_ns: int) -> str:
    """Return a finding as a line for a pull request, with the command below it."""
    ran = f" (step {milliseconds(step_ns)} ms)" if step_ns else ""
    mark = {"error": "**Error**", "warning": "**Finding**", "info": "Note"}[finding.severity]
    fence = "```"
    return f"{mark}{ran}: {_literal(text)}\n\n{fence}sh\n{command.replace(fence, '')}\n{fence}\n"


def _literal(text: str) -> str:
    """Return text that Markdown shows as it is."""
    escaped = "".join(f"\\{character}" if character in "\\`*_[]<>#|~" else character for character in safe_text(text))
    return escaped.replace("\\<", "&lt;").replace("@", "&#64;")


def step_view(report: Report, result: dict[str, Any]) -> StepView:
    """Return what the mean step consists of, by cause, and what changes would save."""
    diagnosis, whatif = result.get("diagnosis"), result.get("whatif")
    return StepView(
        step_ns=None if diagnosis is None else diagnosis["step_ns"],
        reason=None if diagnosis is not None else _reason(report, "diagnosis", "no step that all ranks completed"),
        causes=[] if diagnosis is None else [_cause(row, diagnosis["step_ns"]) for row in diagnosis["causes"]],
        waterfall=[] if whatif is None else list(_waterfall(whatif)),
        waterfall_reason=None if whatif is not None else _reason(report, "whatif", "no step could be replayed"),
    )


def _reason(report: Report, section: str, otherwise: str) -> str:
    if section not in report.results:
        return "it was not asked for (--section)"
    return report.unavailable.get(section, otherwise)


def _cause(row: dict[str, Any], step_ns: int) -> StepCause:
    cause = row["cause"]
    is_delay = cause.startswith("slow_") or cause == "variation"
    return StepCause(
        label=cause_name(cause),
        where=where_text(row),
        part="delay" if is_delay else _PART.get(cause, "idle"),
        time_ns=row["time_ns"],
        share=row["time_ns"] / max(step_ns, 1),
        ranks=row["ranks"],
    )


def _waterfall(whatif: dict[str, Any]) -> list[WaterfallRow]:
    measured_ns, replayed_ns = round(whatif["measured_step_ns"]), round(whatif["replayed_step_ns"])

    def row(
        kind: Literal["measured", "replayed", "ideal"], label: str, to_ns: int, saving_ns: int | None = None
    ) -> WaterfallRow:
        return WaterfallRow(
            kind=kind, label=label, from_ns=0, to_ns=to_ns, saving_ns=saving_ns, error_ns=None, ranks=[]
        )

    changes = [
        WaterfallRow(
            kind="change",
            label=change["what"],
            from_ns=replayed_ns,
            to_ns=replayed_ns - change["saves_ns_per_step"],
            saving_ns=change["saves_ns_per_step"],
            error_ns=change["error_ns"],
            ranks=change["ranks"],
        )
        for change in whatif["fix"]
    ]
    ideal_ns = round(whatif["ideal_step_ns"])
    return [
        row("measured", "measured step", measured_ns),
        row("replayed", "replayed step", replayed_ns),
        *changes,
        row("ideal", "all ranks and steps alike", ideal_ns, replayed_ns - ideal_ns),
    ]
