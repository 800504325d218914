// What ran, what of it is missing, and how far its numbers can be trusted.

/** Return the header of the page. */
function headerSection() {
  const { header } = page;
  return el(
    "header", { id: "header" },
    el("p", { class: "brand" }, "tracekit report"), el("h1", null, header.title),
    el("p", { class: "subtitle" }, header.facts.join(" · ")), factList(runFacts().filter(([, , kind]) => kind)),
  );
}

const factList = (facts) => el("dl", { class: "facts" }, facts.map(([term, text, kind]) => el("div", { class: kind }, el("dt", null, term), el("dd", null, text))));

/** Return what is known of the recording, as [term, text, "bad" if it must be seen at once]. */
function runFacts() {
  const { header } = page;
  const facts = [
    header.missing ? ["Missing", `ranks ${header.missing}`, "bad"] : ["Ranks", `all ${decimal(header.rank_count, 0)} found`],
    header.unmeasured ? ["No device records", `ranks ${header.unmeasured}`, "bad"] : null,
    header.step_count ? ["Steps", `#${header.steps}`] : ["Steps", "none that all ranks completed", "bad"],
    ["Clocks", header.clock_text], ["Recording", header.overhead_text ?? "what it cost was not measured"],
    page.cuts.length ? ["This file", "shortened: Data quality says what it leaves out"] : null,
  ];
  return facts.filter(Boolean);
}
