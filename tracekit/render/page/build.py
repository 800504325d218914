"""How a report becomes one HTML file that opens offline.

`page_data` makes the object in the page's data block: the JSON result, and what only the page draws. The page also has
the terms of the report in a sentence or two each; docs/definitions.md has the exact definitions.

The file is a template into which three texts are put: a policy, title and styles; the data; the scripts. The policy
lets the page load nothing, run no script and use no style but its own, which it names by hash
(https://www.w3.org/TR/CSP3/#grammardef-hash-source).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from tracekit.errors import InputError
from tracekit.explain.communication.collectives import lateness_by_step, times_of_groups
from tracekit.explain.communication.sections import COLLECTIVES_SECTION, OVERLAP_SECTION
from tracekit.explain.fsdp.units import FSDP_SECTION
from tracekit.explain.model_parallel.sections import TENSOR_SECTION
from tracekit.explain.section import Section
from tracekit.explain.sections import TABLES
from tracekit.explain.step_time.sections import PHASES_SECTION
from tracekit.model.table import rows_of
from tracekit.render.json_result import result_dict
from tracekit.render.output import new_file
from tracekit.render.page.chart_contract import LaneView
from tracekit.render.page.charts import (
    fsdp_ladder,
    message_pairs,
    pipeline_view,
    rank_map,
    rank_steps,
    skews_and_bandwidths,
)
from tracekit.render.page.contract import (
    CONTRACT_VERSION,
    DATA_ID,
    ColumnText,
    Cut,
    Definition,
    Page,
    PageData,
)
from tracekit.render.page.first_screen import finding_views, header, open_command, step_view
from tracekit.render.page.lanes import LaneReader, lane_views, read_again
from tracekit.render.page.picture import picture_view
from tracekit.render.page.size import Amounts, amounts_for, cut_tables, inert, rows_cut, script_json
from tracekit.report.report import Report
from tracekit.report.shown_ranks import reasons_to_show

_MEANS: tuple[tuple[str, Section[Any], str, str], ...] = (
    ("communication", OVERLAP_SECTION, "by_kind", "communication_by_kind"),
    ("phases", PHASES_SECTION, "by_phase", "phases_by_phase"),
    ("fsdp", FSDP_SECTION, "by_module", "fsdp_by_module"),
    ("tensor", TENSOR_SECTION, "by_module", "tensor_by_module"),
)
"""Name in `Page.means`, section, field of its result with the means a step over all ranks, and table of these rows."""

_TEXT = """\
step
    On a CPU rank from the start of a step to that of the next. On a GPU rank it begins when the compute ends that was
    launched before.
step of the job
    From the latest end of the step before to the latest end of this one, over all ranks.
compute
    Time covered by kernels that are not communication; on a CPU rank by operators that do not wait.
communication
    Time covered by communication kernels; on a CPU rank by the spans of Gloo.
exposed communication
    Communication that no compute covers. It includes waiting for ranks that come later.
exposed copies
    Copies that neither compute nor communication cover.
idle
    The rest of a step. Compute, exposed communication, exposed copies and idle add up to it exactly.
overlap
    The share of communication that compute covers.
arrival
    The moment at which a rank is ready for a collective.
skew
    The time from the first to the last arrival at a collective.
lateness
    The time from the first rank's arrival to this rank's. Of a step: the longest of its collectives.
wait
    The time from a rank's arrival to the last one.
transfer
    The time from the last arrival, or from when the stream is free, to the end of a collective.
bus bandwidth
    Size by transfer time, times the factor of nccl-tests that makes kinds of collectives comparable.
caused delay
    What a rank's own slowness adds to a step. What it passes on from others is charged to these.
critical path
    The work and communication over all ranks that bounds a step. Every moment of the step is on it once.
jitter
    Waiting for whichever rank comes last: it is due to none that is named.
bubble
    Time in which a rank of a pipeline has no action, from the first to the last action of its pipeline.
warm-up, drain
    Bubbles at the ends of a step that any pipeline of this schedule has.
uneven stages
    Bubbles because stages take unequal time.
late peers
    Bubbles because single actions of other stages took longer than usual.
host bound
    The device is idle because nothing was launched in time.
kernel gap
    The device is idle although work is queued.
saving
    What the replay of the run with exactly this change saves a step, with the error of the replay. Savings overlap, and
    do not add up.
slowdown S
    The replayed step divided by the one in which all ranks and steps are alike.
sure, likely
    Sure: beyond noise and the clocks' uncertainty in enough steps. Likely: the best explanation of what was recorded.
clock uncertainty
    By how much times of two ranks may be off each other. Smaller differences between ranks mean nothing.
cost of recording
    What the profiler and the capture added to a step, as the capture measured it.
exposed time of a kernel
    Compute while nothing communicates, communication while nothing computes, copies while neither runs.
exposed time of an operator
    Self time in which the device is idle; on a CPU rank, in which nothing communicates.
"""

_IMPORTANT_RANKS = 16  # that stay in tables that are cut
_BINS = 600  # of a step in lanes
_OPERATIONS = 100  # of a rank in a step

_OF_REPORT = f'id="{DATA_ID}">{{"result":{{"schema_version":'.encode()
"""The beginning of the data block of a report; that of a comparison goes on otherwise."""

_HEAD, _DATA, _SCRIPT = "<!--tracekit:head-->", "<!--tracekit:data-->", "<!--tracekit:script-->"


def page_data(report: Report, read_lanes: LaneReader | None, amounts: Amounts) -> PageData:
    """Return what the page of a report consists of.

    read_lanes: reads files of the run again; None leaves the lanes out. amounts: how much of what is shown.
    """
    run, result = report.run, result_dict(report)
    cuts = _keep_first_collectives(result, amounts.collectives)
    groups = times_of_groups(run)
    latest_ns = lateness_by_step(groups)
    ranks = rank_map(run, result, latest_ns)
    steps = rank_steps(run, latest_ns, ranks["hosts"], amounts.cells)
    skews, bandwidths = skews_and_bandwidths(groups, result)
    pairs = message_pairs(run, amounts.pairs)
    lanes, lanes_reason = _lanes(report, read_lanes)
    if steps["text"] is not None:
        shown = len(steps["row_first"]) * len(steps["column_first"])
        total = len(steps["ranks"]) * len(steps["steps"])
        cuts.append(Cut(what="ranks and steps", text=steps["text"], total=total, kept=shown, ranks=None))
    if pairs is not None and pairs["ranks_per_cell"] > 1:
        text = f"Messages are counted for {pairs['ranks_per_cell']} ranks together."
        cuts.append(Cut(what="messages", text=text, total=len(run.ranks) ** 2, kept=len(pairs["source"]), ranks=None))
    page = Page(
        version=CONTRACT_VERSION,
        header=header(report, result),
        open_command=open_command(report),
        findings=finding_views(report),
        picture=picture_view(report),
        step=step_view(report, result),
        rank_map=ranks,
        rank_steps=steps,
        means=_means(report, result),
        skew=skews,
        bandwidth=bandwidths,
        communication_reason=None if skews else _no_collectives(report),
        pairs=pairs,
        pipeline=pipeline_view(report),
        fsdp_ladder=fsdp_ladder(report),
        lanes=lanes,
        lanes_reason=lanes_reason,
        cuts=cuts,
        columns=_columns(result),
        definitions=definitions(),
    )
    data = PageData(result=inert(result), page=inert(page))
    important = frozenset(reasons_to_show(report, _IMPORTANT_RANKS))
    data["page"]["cuts"] += cut_tables(data, important, amounts.size_bytes)
    return data


def _keep_first_collectives(result: dict[str, Any], most: int) -> list[Cut]:
    """Cut the table of collectives, to whose rows the page refers by their indices.

    Those with the most time are first.
    """
    rows = result.get("collectives") or []
    if len(rows) <= most:
        return []
    result["collectives"] = rows[:most]
    return [rows_cut("collectives", len(rows), rows[:most])]


def _lanes(report: Report, read: LaneReader | None) -> tuple[list[LaneView], str | None]:
    """Return the lanes, or why there are none."""
    if read is None:
        return [], "they were not asked for"
    try:
        lanes = lane_views(report, read, bins=_BINS, operations=_OPERATIONS)
    except InputError as error:
        return [], f"the traces could not be read again: {error}"
    return lanes, None if lanes else "no step that all ranks completed"


def _means(report: Report, result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return `Page.means`. Those of sections that were not asked for are empty. `result`: the JSON result."""
    means: dict[str, list[dict[str, Any]]] = {}
    for name, section, field, _ in _MEANS:
        of_section = report.result(section)
        means[name] = [] if of_section is None else rows_of(of_section, field)
    return means | {"idle_causes": _idle_means(result)}


def _idle_means(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the idle time a step by cause, in ns, the mean over the ranks with steps. `result`: the JSON result."""
    steps = {row["rank"]: row["steps"] for row in result.get("ranks") or [] if row["steps"]}
    sums_ns: dict[str, float] = {}
    for row in result.get("idle_causes") or []:
        if row["rank"] in steps:
            sums_ns[row["cause"]] = sums_ns.get(row["cause"], 0) + row["total_ns"] / steps[row["rank"]]
    return [{"cause": cause, "total_ns": sum_ns / len(steps)} for cause, sum_ns in sums_ns.items()]


def _no_collectives(report: Report) -> str:
    name = COLLECTIVES_SECTION.name
    if name not in report.results:
        return f"they were not asked for (--section {name})"
    return report.unavailable.get(name, "no collective of two recorded ranks was matched")


def _columns(result: dict[str, Any]) -> dict[str, list[ColumnText]]:
    """Return unit and meaning of the columns of all tables that the result has at its top, and of the page's own."""
    means = {table for *_, table in _MEANS}
    return {
        table.name: [ColumnText(name=c.name, label=c.heading, unit=c.unit, meaning=c.meaning) for c in table.columns]
        for table in TABLES
        if table.name in result or table.name in means
    }


def definitions() -> list[Definition]:
    """Return the terms in the order in which the page uses them."""
    found: list[Definition] = []
    for line in _TEXT.splitlines():
        if line.startswith(" "):
            found[-1]["text"] = f"{found[-1]['text']} {line.strip()}".strip()
        else:
            found.append(Definition(term=line, text=""))
    return found


@dataclass(frozen=True, kw_only=True)
class PageCode:
    """The code of the page.

    Attributes:
        template: HTML with one marker each for head, data and script, in this order.
        style: all styles.
        script: all scripts.
    """

    template: str
    style: str
    script: str


def page_code(manifest_name: str = "manifest.json") -> PageCode:
    """Return the code of the package.

    The manifest names the template, and the styles and scripts in the order in which they are joined.
    """
    folder = files("tracekit.render.page") / "assets"
    manifest = json.loads((folder / manifest_name).read_text("utf-8"))
    return PageCode(
        template=(folder / manifest["template"]).read_text("utf-8"),
        style="\n".join((folder / name).read_text("utf-8") for name in manifest["styles"]),
        script="\n;\n".join((folder / name).read_text("utf-8") for name in manifest["scripts"]),
    )


def html_page(data: PageData, code: PageCode) -> str:
    """Return the page of a report as text."""
    return offline_page(data["page"]["header"]["title"], data, code)


def offline_page(title: str, data: object, code: PageCode) -> str:
    """Return a page as text. data: plain values for its data block, whose texts are `inert`."""
    before, rest = code.template.split(_HEAD)
    between, rest = rest.split(_DATA)
    gap, after = rest.split(_SCRIPT)
    policy = (
        f"default-src 'none'; script-src '{_hash(code.script)}'; style-src '{_hash(code.style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{code.style}</style>"
    )
    block = f'<script type="application/json" id="{DATA_ID}">{script_json(data)}</script>'
    return f"{before}{head}{between}{block}{gap}<script>{code.script}</script>{after}"


def report_html(report: Report, read_lanes: LaneReader | None = read_again) -> str:
    """Return the page of a report as text.

    read_lanes: reads the files of some ranks again; None leaves the lanes out.
    """
    return html_page(page_data(report, read_lanes, amounts_for(len(report.run.ranks))), page_code())


def write_page(path: Path, report: Report, read_lanes: LaneReader | None = read_again, *, force: bool = False) -> None:
    """Write `report_html` to a file, which is there completely or not at all.

    Raises OutputError when the file exists already and `force` is False, is a recording, or cannot be written.
    """
    with new_file(path, force=force) as stream:
        stream.write(report_html(report, read_lanes).encode())


def is_page(path: Path) -> bool:
    """Return whether a file is the page of a report, of any run. Raises OSError."""
    return path.is_file() and _OF_REPORT in path.read_bytes()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
