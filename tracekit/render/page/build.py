"""How a report becomes one HTML file that opens offline.

`page_data` makes the object in the page's data block: the JSON result, and what only the page draws. The page also has
the terms of the report in a sentence or two each; docs/definitions.md has the exact definitions.

* Size: `amounts_for` says how large a page may be. `cut_tables` shortens tables of a page that would be larger.
* Safety: `inert` makes the texts of a run harmless for a page: no control characters, no great length, no end of a
  script element.
* The file is a template into which three texts are put: a policy, title and styles; the data; the scripts. The policy
  lets the page load nothing, run no script and use no style but its own, which it names by hash
  (https://www.w3.org/TR/CSP3/#grammardef-hash-source).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from tracekit.errors import InputError
from tracekit.explain.communication.collectives import lateness_by_step, times_of_groups
from tracekit.explain.communication.sections import COLLECTIVES_SECTION, OVERLAP_SECTION
from tracekit.explain.fsdp.units import FSDP_SECTION
from tracekit.explain.model_parallel.sections import TENSOR_SECTION
from tracekit.explain.section import Section
from tracekit.explain.sections import TABLES
from tracekit.explain.step_time.sections import PHASES_SECTION
from tracekit.model.quantities import safe_text, shortened
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
    MOST_CHARACTERS,
    MOST_IN_COMMAND,
    ColumnText,
    Cut,
    Definition,
    Page,
    PageData,
)
from tracekit.render.page.first_screen import finding_views, header, open_command, step_view
from tracekit.render.page.lanes import LaneReader, lane_views, read_again
from tracekit.render.rank_bars import reasons_to_show
from tracekit.report.report import Report

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
longest chain
    The work and communication over all ranks that bounds a step. Every moment of the step is on it once.
ranks late in turns
    Ranks take turns at being late: waiting that is due to no rank in particular.
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

MOST_CODE_BYTES = 200_000
"""Of template, scripts and styles together."""

_FEW_RANKS, _MANY_RANKS = 8, 4096
_FEW_BYTES, _MANY_BYTES = 2_000_000, 8_000_000
_BYTES_A_NUMBER = 10  # in a matrix: nine digits and a comma
_MATRICES = 6
_LEAST_ROWS = 50
_IMPORTANT_RANKS = 16  # that stay in tables that are cut
_BINS = 600  # of a step in lanes
_OPERATIONS = 100  # of a rank in a step
_REFERRED_TO = ("groups", "collectives", "findings")
"""Tables to whose rows other tables refer by their indices."""

T = TypeVar("T")

_WITH_COMMAND = ("open_command", "markdown")
_PLAIN = (int, float, type(None))  # most values are: they are not worth a call

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
class Amounts:
    """How much a page shows.

    Attributes:
        size_bytes: the most that the whole file may have.
        cells: of a matrix of ranks and steps.
        collectives: rows of them, those with the most time.
        pairs: of ranks that exchange messages.
    """

    size_bytes: int
    cells: int
    collectives: int
    pairs: int


def amounts_for(ranks: int) -> Amounts:
    """Return how much the page of a run of so many ranks shows.

    The size grows from 2 MB for 8 ranks to 8 MB for 4096, with the same power of the ranks in between.
    """
    size_bytes = _limit_bytes(ranks)
    return Amounts(
        size_bytes=size_bytes,
        cells=int(0.4 * size_bytes) // (_BYTES_A_NUMBER * _MATRICES),
        collectives=size_bytes // 5_000,
        pairs=size_bytes // 400,
    )


def _limit_bytes(ranks: int) -> int:
    if ranks <= _FEW_RANKS:
        return _FEW_BYTES
    doublings = (min(ranks, _MANY_RANKS) // _FEW_RANKS).bit_length() - 1
    of_all = (_MANY_RANKS // _FEW_RANKS).bit_length() - 1
    growth: float = (_MANY_BYTES / _FEW_BYTES) ** (doublings / of_all)
    return round(_FEW_BYTES * growth)


def cut_tables(data: PageData, important: Collection[int], size_bytes: int) -> list[Cut]:
    """Cut tables of the result, the largest first, until the page with all its code has at most `size_bytes`.

    Of a table with a row a rank or more, the rows of `important` ranks stay; of any other one, or if that is not
    enough, the first rows. Tables that others refer to stay as they are.
    """
    left = size_bytes - MOST_CODE_BYTES - _size(data["page"])
    tables = _tables(data["result"])
    sizes = {name: _size(holder[key]) for name, (holder, key) in tables.items()}
    total = _size(data["result"])
    rows = {name: len(holder[key]) for name, (holder, key) in tables.items()}
    while total > left:
        name = max(
            (n for n in sizes if len(tables[n][0][tables[n][1]]) > _LEAST_ROWS), key=sizes.__getitem__, default=None
        )
        if name is None:
            break
        holder, key = tables[name]
        table = holder[key]
        kept = [row for row in table if row.get("rank") in important] if "rank" in table[0] else []
        holder[key] = kept if 0 < len(kept) < len(table) else table[: max(len(table) // 2, _LEAST_ROWS)]
        total -= sizes[name]
        sizes[name] = _size(holder[key])
        total += sizes[name]
    return [
        rows_cut(name, rows[name], holder[key])
        for name, (holder, key) in tables.items()
        if len(holder[key]) < rows[name]
    ]


def rows_cut(what: str, total: int, kept: Sequence[Mapping[str, Any]]) -> Cut:
    """Return what a table of which only the rows `kept` are left says to the reader."""
    text = f"The table {what} has {len(kept):,} of {total:,} rows; tracekit analyze --json has all."
    ranks = sorted({row["rank"] for row in kept}) if kept and "rank" in kept[0] else None
    return Cut(what=what, text=text, total=total, kept=len(kept), ranks=ranks)


def _tables(result: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the lists of rows in the result, by name: what holds each, and by which key."""
    tables: dict[str, tuple[dict[str, Any], str]] = {}
    for name, value in result.items():
        inner = value.items() if isinstance(value, dict) else ()
        for path, holder, key, rows in ((name, result, name, value), *((f"{name}.{k}", value, k, v) for k, v in inner)):
            if isinstance(rows, list) and rows and isinstance(rows[0], dict) and name not in _REFERRED_TO:
                tables[path] = (holder, key)
    return tables


def _size(value: object) -> int:
    return len(script_json(value))


def inert(value: T) -> T:
    """Return a copy of plain values whose texts have no control or format characters and are not long.

    Line breaks stay. A command may be longer than other texts, as it would be another one if its end were cut off.
    """
    return _inert(value, MOST_CHARACTERS)  # type: ignore[no-any-return]


def _inert(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _inert_text(value, most)
    if isinstance(value, dict):
        return {
            _inert_text(key, MOST_CHARACTERS) if isinstance(key, str) else key: item
            if isinstance(item, _PLAIN)
            else _inert(item, MOST_IN_COMMAND if key in _WITH_COMMAND else most)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if isinstance(item, _PLAIN) else _inert(item, most) for item in value]
    return value


@lru_cache(1 << 16)
def _inert_text(text: str, most: int) -> str:
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    text = "\n".join(safe_text(line) for line in text[: most + 1].split("\n"))
    return shortened(text, most)


def script_json(value: object) -> str:
    """Return JSON that can stand in a script element: it has no `<`, and no character beyond ASCII.

    U+2028 and U+2029, which end a line in old scripts, are escaped as all others are.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


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


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
