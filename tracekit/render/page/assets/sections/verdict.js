// The diagnosis in words: at most five findings, each with what mending it saves, how sure it is, and what to do.

const SHOWN_FINDINGS = 5;
const PLACE_OF_ANALYSIS = {
  stragglers: "ranks", memory: "ranks", roofline: "ranks", overlap: "communication", collectives: "communication", dimensions: "communication",
  buckets: "parallelism", fsdp: "parallelism", tensor: "parallelism", pipeline: "parallelism", rpc: "parallelism",
}; // all others are about the step

/** Return the section with the findings. */
function verdictSection() {
  const { findings } = result;
  const cards = findings.slice(0, SHOWN_FINDINGS).map(findingCard);
  const mark = () => cards.forEach((card, place) => card.setAttribute("aria-current", place === state.finding));
  onState(mark);
  mark();
  const columns = ["id", "text=finding", "severity", "cause", "ranks", "time_ns=time a step", "saving_ns=saving a step", "saving_error_ns=its error", "certainty", "action=what to do", "evidence"];
  return el(
    "section", { id: "verdict", "aria-labelledby": "verdict-title" },
    el("h2", { id: "verdict-title" }, verdictText()),
    tagList(), heroFigure(),
    el("ol", { class: "findings" }, cards),
    findings.length ? twin(findings.length > SHOWN_FINDINGS ? `All ${findings.length} findings` : "Table", "Findings", () => ({ columns, rows: findings })) : null,
    el("p", { class: "quiet screen-only" }, "Keys: j and k go through the findings, e shows the evidence of one, Esc shows everything again."),
  );
}

/** Return the tags of the findings, each of which goes to its finding. */
function tagList() {
  const tags = result.findings.slice(0, SHOWN_FINDINGS).map(({ tag, ranks, saving_ns: saving }, place) => {
    const whose = ranks.length ? ` ${ranks.length > 1 ? "ranks" : "rank"} ${rangesText(ranks, 3)}` : "";
    return el("li", null, button(`${tag}${whose}${saving > 0 ? ` · saves ${msText(saving, 1)}` : ""}`, () => goToFinding(place), { class: "tag" }));
  });
  return tags.length > 1 ? el("ul", { class: "tags", "aria-label": "Findings" }, tags) : null;
}

/** Return the first sentence: how long a step takes if ranks share one, and what the first finding would save of it. */
function verdictText() {
  const step = isKnown(page.header.step_ns) ? `A step takes ${msText(page.header.step_ns)}. ` : "";
  const first = result.findings[0];
  if (!first) return `${step}Nothing stands out${"diagnosis" in result ? "" : " in the sections that were asked for"}.`;
  if (!(first.saving_ns > 0)) return `${step}What stands out:`;
  const share = page.findings[0].saving_share;
  return `${step && `${step}Of that, `}${msText(first.saving_ns)}${isKnown(share) ? ` (${percentText(share, 0)})` : ""} can be saved:`.replaceAll(" ms", "\u00a0ms");
}

function findingCard(finding, place) {
  const view = page.findings[place];
  const markdown = button("Copy as Markdown", () => copyText(view.markdown, markdown));
  return el(
    "li", { id: `finding-${place + 1}`, class: `finding ${finding.severity}`, tabindex: -1, on: { click: () => place === state.finding || setState({ finding: place }) } },
    el("h3", null, finding.text),
    savingLine(finding, view),
    finding.action ? el("p", null, el("b", null, "What to do: "), finding.action.split("`").map((part, at) => (at % 2 ? el("code", null, part) : part))) : null,
    el(
      "div", { class: "tools" },
      button("Show evidence", (event) => (event.stopPropagation(), showEvidence(place)), { class: "primary" }),
      el("details", null, el("summary", null, "More"), el("div", null, [view.open_command, view.explain_command].map(commandLine), markdown)),
    ),
  );
}

/** Return a command with a button that copies it. */
function commandLine(command) {
  const copy = button("Copy", () => copyText(command, copy), { "aria-label": `Copy ${command}` });
  return el("span", { class: "command" }, el("code", null, command), copy);
}

/** Return what mending a finding saves, as a number and as a bar whose whole is the step. */
function savingLine({ saving_ns, saving_error_ns, certainty, evidence, time_ns }, { saving_share: share, saving_share_text: text }) {
  const grade = certainty ? el("span", { class: `certainty ${certainty}` }, certainty === "sure" ? "sure" : "likely, not sure") : null;
  if (!(saving_ns > 0)) {
    const about = isKnown(time_ns) ? `About ${msText(time_ns)} a step. ` : "";
    return el("p", { class: "saving" }, about, evidence?.no_replay ? `No saving is given: ${evidence.no_replay}.` : null, grade);
  }
  const bar = el("span", { class: "saving-bar", "aria-hidden": "true" }, el("span"));
  bar.firstChild.style.width = `${Math.min(Math.max(share * 100, 0.5), 100)}%`;
  const error = decimal((saving_error_ns ?? 0) / 1e6, saving_ns >= 1e7 ? 1 : 2);
  return el(
    "p", { class: "saving" }, isKnown(share) ? bar : null,
    el("span", { data: { value: saving_ns } }, "saves ", el("b", null, msText(saving_ns).replace(" ", Number(error) ? ` ± ${error} ` : " ")), ` a step${text ? ` (${text})` : ""}`),
    grade,
  );
}

/** Go to another finding, and show it. */
function stepFinding(by) {
  const count = Math.min(result.findings.length, SHOWN_FINDINGS);
  if (!count) return;
  goToFinding(Math.min(Math.max(state.finding + by, 0), count - 1));
}

function goToFinding(place) {
  setState({ finding: place });
  const card = document.getElementById(`finding-${place + 1}`);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

/** Set the filter of all charts to what a finding is about, and go to where its numbers are. */
function showEvidence(place) {
  const finding = result.findings[place];
  if (!finding) return;
  const { ranks, steps, section: analysis } = page.findings[place];
  const { dimensions, phases } = communicationChoices();
  const { group, phase } = finding.evidence ?? {};
  const among = (wanted, known) => someOf(known.filter((number) => wanted.includes(number)), known);
  const dimension = dimensions.includes(group) ? group : null;
  setState({
    finding: place, ranks: among(ranks, page.rank_map.ranks), steps: among(steps, page.rank_steps.steps),
    dimension, phase: phases.includes(phase) ? phase : null,
  });
  const shown = document.getElementById(PLACE_OF_ANALYSIS[analysis] ?? (dimension && "communication"));
  const target = shown ?? document.getElementById("step");
  for (const fold of target.querySelectorAll(".fold")) fold.open = true;
  target.scrollIntoView();
}
