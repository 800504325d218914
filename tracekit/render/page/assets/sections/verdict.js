"use strict";
// The diagnosis in words: at most five findings, each with what mending it saves, how sure it is, and what to do.

const SHOWN_FINDINGS = 5;
const SECTION_OF_ANALYSIS = {
  breakdown: "step", diagnosis: "step", critical_path: "step", whatif: "step", idle: "step", phases: "step", pauses: "step",
  stragglers: "ranks", memory: "ranks", roofline: "ranks", overlap: "communication", collectives: "communication",
  dimensions: "communication", buckets: "parallelism", fsdp: "parallelism", tensor: "parallelism", pipeline: "parallelism", rpc: "parallelism",
};

/** Return the section with the findings. */
function verdictSection() {
  const shown = result.findings.slice(0, SHOWN_FINDINGS);
  const cards = shown.map((finding, place) => findingCard(finding, page.findings[place], place));
  onState(() => cards.forEach((card, place) => card.setAttribute("aria-current", String(place === state.finding))));
  cards.forEach((card, place) => card.setAttribute("aria-current", String(place === state.finding)));
  const rest = result.findings.length - shown.length;
  return el(
    "section", { id: "verdict", "aria-label": "Verdict" },
    el("h2", {}, verdictText()),
    el("ol", { class: "findings" }, cards),
    shown.length ? null : el("p", {}, "Nothing stands out."),
    allFindings(rest),
    el("p", { class: "quiet screen-only" }, "Keys: ", el("kbd", {}, "j"), " and ", el("kbd", {}, "k"), " go through the findings, ", el("kbd", {}, "e"), " shows the evidence of one, ", el("kbd", {}, "Esc"), " shows everything again."),
  );
}

/** Return the first sentence: how long a step takes, and what the first finding would save of it. */
function verdictText() {
  const lengths = result.run.step_ns;
  const first = result.findings[0];
  const step = lengths ? `A step takes ${millisecondsText(lengths.median)}.` : "No step was completed by all ranks.";
  if (!first || !(first.saving_ns > 0)) return step;
  const share = page.findings[0].saving_share;
  return `${step} ${millisecondsText(first.saving_ns)}${isKnown(share) ? ` (${percentText(share, 0)})` : ""} of it can be saved:`;
}

function findingCard(finding, view, place) {
  const copy = button("Copy as Markdown", () => copyText(view.markdown, copy));
  const copyCommand = button("Copy", () => copyText(view.open_command, copyCommand), { "aria-label": "Copy the command" });
  return el(
    "li", { id: `finding-${place + 1}`, class: `finding ${finding.severity}`, tabindex: -1, on: { click: () => choose(place) } },
    el("h3", {}, finding.text),
    savingLine(finding, view),
    finding.action ? el("p", { class: "action" }, el("b", {}, "What to do: "), finding.action) : null,
    el(
      "div", { class: "tools" },
      button("Show evidence", (event) => (event.stopPropagation(), showEvidence(place)), { class: "primary" }), copy,
      view.open_command ? el("span", { class: "command" }, el("code", {}, view.open_command), copyCommand) : null,
    ),
  );
}

/** Return how much mending a finding saves, as a number and as a bar whose whole is the step. */
function savingLine(finding, view) {
  const certainty = finding.certainty ? el("span", { class: `certainty ${finding.certainty}` }, finding.certainty === "sure" ? "sure" : "likely, not sure") : null;
  if (!(finding.saving_ns > 0)) {
    const why = finding.evidence?.no_replay ? `No saving is given: ${finding.evidence.no_replay}.` : null;
    const about = isKnown(finding.time_ns) ? `It is about ${millisecondsText(finding.time_ns)} a step. ` : "";
    return certainty || why || about ? el("p", { class: "saving" }, about, why, " ", certainty) : null;
  }
  const share = view.saving_share;
  const bar = el("span", { class: "saving-bar", "aria-hidden": "true" }, el("span"));
  bar.firstChild.style.width = `${Math.min(Math.max((share ?? 0) * 100, 0.5), 100)}%`;
  const error = finding.saving_error_ns > 0 ? ` ± ${decimal(finding.saving_error_ns / 1e6, finding.saving_ns >= 1e7 ? 1 : 2)}` : "";
  const saving = millisecondsText(finding.saving_ns).replace(" ms", `${error} ms`);
  return el(
    "p", { class: "saving" },
    isKnown(share) ? bar : null,
    el("span", { data: { value: finding.saving_ns } }, "saves ", el("b", {}, saving), ` a step${isKnown(share) ? ` (${percentText(share, 0)})` : ""}`),
    certainty,
  );
}

function allFindings(rest) {
  if (!result.findings.length) return null;
  const columns = [
    { key: "text", label: "finding" }, { key: "severity", label: "severity" }, { key: "cause", label: "cause" },
    { key: "ranks", label: "ranks", text: (row) => (row.ranks?.length ? rangesText(row.ranks) : "") },
    { key: "time_ns", label: "time a step", unit: "ns" }, { key: "saving_ns", label: "saving a step", unit: "ns" },
    { key: "saving_error_ns", label: "its error", unit: "ns" }, { key: "certainty", label: "certainty" }, { key: "action", label: "what to do" },
    { key: "evidence", label: "evidence", text: (row) => listText(row.evidence ?? {}) },
  ].map((column) => ({ text: undefined, ...column }));
  const holder = el("div");
  const label = rest > 0 ? `All ${decimal(result.findings.length, 0)} findings, as a table` : "Table";
  const details = el("details", { class: "twin", id: "findings-table", on: { toggle: () => details.open && holder.replaceChildren(dataTable("Findings", columns, result.findings)) } }, el("summary", {}, label), holder);
  return details;
}

function choose(place) {
  if (place !== state.finding) setState({ finding: place });
}

/** Go to another finding, and show it. */
function stepFinding(by) {
  const count = Math.min(result.findings.length, SHOWN_FINDINGS);
  if (!count) return;
  const place = Math.min(Math.max(state.finding + by, 0), count - 1);
  setState({ finding: place });
  const card = document.getElementById(`finding-${place + 1}`);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

/** Set the filter of all charts to what a finding is about, and go to where its numbers are. */
function showEvidence(place) {
  const finding = result.findings[place];
  const view = page.findings[place];
  if (!finding) return;
  const known = parseList(view.ranks, page.rank_map.ranks);
  const dimensions = communicationChoices().dimensions;
  setState({
    finding: place, ranks: known, steps: parseList(view.steps, page.rank_steps.steps),
    dimension: dimensions.includes(finding.evidence?.group) ? finding.evidence.group : null,
    phase: communicationChoices().phases.includes(finding.evidence?.phase) ? finding.evidence.phase : null,
  });
  const target = document.getElementById(SECTION_OF_ANALYSIS[view.section]) ?? document.getElementById("step");
  target.scrollIntoView({ block: "start" });
}

function parseList(wanted, known) {
  const found = known.filter((number) => wanted.includes(number));
  return found.length && found.length < known.length ? found : null;
}
