"use strict";
// What ran, how much of it was found, and how far its numbers can be trusted.

/** Return the header of the page. */
function headerSection() {
  const { header } = page;
  const { run } = result;
  const [title, ...lines] = header.title.split("\n");
  const facts = [
    ["Ranks", `${decimal(header.rank_count, 0)} found${isKnown(run.world_size) ? ` of ${decimal(run.world_size, 0)}` : ""}`, null],
    header.missing ? ["Missing", `${plural(header.missing)} ${header.missing}`, "bad"] : null,
    header.unmeasured ? ["Without device records", `${plural(header.unmeasured)} ${header.unmeasured}`, "bad"] : null,
    ["Steps", header.steps === null ? "none that all ranks completed" : `${decimal(header.step_count, 0)} (${header.steps})`, header.steps === null ? "bad" : null],
    ["Clocks", header.clock_text, null],
    ["Cost of recording", header.overhead_text ?? "not measured", null],
  ];
  return el(
    "header", { id: "header" },
    el("p", { class: "brand" }, "tracekit report"),
    el("h1", {}, title),
    lines.map((line) => el("p", { class: "subtitle" }, line)),
    el("dl", { class: "facts" }, facts.filter(Boolean).map(([term, text, kind]) => el("div", { class: kind }, el("dt", {}, term), el("dd", {}, text)))),
    page.cuts.length ? el("p", { class: "remark" }, "Shortened for size: ", page.cuts.map((cut) => `${cut.text} `)) : null,
  );
}

function plural(ranges) {
  return /[-,…]/.test(ranges) ? "ranks" : "rank";
}
