// What is missing, repaired or uncertain, how ranks are set, and what the words of the page mean.

function qualitySection() {
  const severities = ["error", "warning", "info"];
  const notes = [...result.notes].sort((a, b) => severities.indexOf(a.severity) - severities.indexOf(b.severity));
  const unavailable = Object.entries(result.unavailable ?? {}).map(([part, reason]) => ({ part, reason }));
  const more = [
    ["clocks", "Clocks of the ranks", result.clock?.ranks, ["rank", "method", "offset_ns=ahead of the reference", "drift_ppm=drift, ppm", "error_ns=uncertainty"]],
    ["configuration", "Settings that were found", result.configuration, ["component", "setting", "value", "modules", "ranks"]],
    ["memory", "Memory of the ranks", result.memory], ["roofline", "FLOP/s of the ranks", result.roofline?.by_rank], ["stragglers", "Delays that ranks cause", result.stragglers?.by_rank],
    ["critical_path", "Critical path", result.critical_path], ["idle_locations", "Where ranks idle", result.idle_locations], ["pauses", "Pauses", result.pauses], ["attempts", "Attempts of the job", result.attempts],
  ];
  return section("quality", "Data quality and definitions", [
    factList(runFacts()),
    notes.length ? tableFigure("notes", "Notes on the recordings", notes, ["severity", "rank", "text", "file", "events_dropped"]) : el("p", null, "Nothing was missing or repaired."),
    page.cuts.length ? tableFigure("cuts", "What this page shows more coarsely", page.cuts, ["text=what", "kept", "total"]) : null,
    unavailable.length ? tableFigure("unavailable", "What cannot be said of this run", unavailable, ["part", "reason"]) : null,
    more.filter(([, , rows]) => rows?.length).map(([id, title, rows, columns]) => tableFigure(`${id}-table`, title, rows, columns ?? resultColumns(id, rows), countText(rows.length, "row"))),
    el("figure", { id: "definitions" }, el("figcaption", null, el("h3", null, "Definitions")), el("dl", null, page.definitions.map(({ term, text }) => el("div", null, el("dt", null, term), el("dd", null, text))))),
    el("p", { class: "quiet" }, `Made by tracekit ${result.tracekit_version}. This file needs no network.`),
  ]);
}
