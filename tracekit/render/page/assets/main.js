// The page of a report: its sections in order, the filter, and the keys.

/** Return the filter: its words, which open its fields. */
function filterBox() {
  const summary = el("summary", { id: "filter-text" });
  const fields = {
    ranks: el("input", { placeholder: "all, or 0-7,12" }),
    steps: el("input", { placeholder: "all, or 4-6" }),
  };
  const choices = communicationChoices();
  const choice = (label, key, names) => names.length > 0 && chooser(label, [["", "all"], ...names.map((name) => [name, name])], () => state[key] ?? "", (value) => setState({ [key]: value || null }));
  const clear = button("Show everything", clearFilter, { id: "clear-filter" });
  for (const [key, input] of Object.entries(fields)) {
    input.addEventListener("change", () => setState({ [key]: parseRanges(input.value, LISTS[key]()) }));
  }
  const box = el(
    "details", { class: "filter" }, summary,
    el("div", { class: "fields" }, Object.entries(fields).map(([key, input]) => labelled(key === "ranks" ? "Ranks" : "Steps", input)), choice("Communication in", "dimension", choices.dimensions), choice("Phase", "phase", choices.phases), clear),
  );
  const show = () => {
    summary.textContent = `Shown: ${filterText()}`;
    summary.classList.toggle("active", isFiltered());
    clear.disabled = !isFiltered();
    for (const [key, input] of Object.entries(fields)) if (document.activeElement !== input) input.value = state[key] ? rangesText(state[key], Infinity) : "";
  };
  onState(show);
  show();
  return box;
}

function clearFilter() {
  setState(record(Object.keys(FILTERS), () => null));
}

function pressKey(event) {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") stepFinding(1);
  else if (event.key === "k") stepFinding(-1);
  else if (event.key === "e") showEvidence(state.finding);
  else if (event.key === "Escape") clearFilter();
}

function start() {
  readHash();
  applyTheme();
  openCharts = new Set(["picture", "causes", "waterfall", "rank-map", "actions"]);
  const main = el("main");
  const sections = [
    ["verdict", "Verdict", verdictSection], ["step", "Step", stepSection], ["ranks", "Ranks", ranksSection], ["steps", "Ranks and steps", rankStepsSection],
    ["communication", "Communication", communicationSection], ["parallelism", "Parallelism", parallelismSection], ["lanes", "Lanes", lanesSection],
    ["kernels", "Kernels", kernelsSection], ["quality", "Data quality", qualitySection],
  ].map(([id, title, make]) => [id, title, make()]).filter(([, , made]) => made !== null);
  append(main, headerSection(), sections.map(([, , made]) => made));
  document.addEventListener("keydown", pressKey);
  showPage(topBar(sections, filterBox()), main);
}

start();
