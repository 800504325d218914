"use strict";
// What is missing, repaired or uncertain, how ranks are set, and what the words of the page mean.

/** Return the section on the quality of the data, and the definitions. */
function qualitySection() {
  const notes = [...result.notes].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
  const unavailable = Object.entries(result.unavailable ?? {}).map(([part, reason]) => ({ part, reason }));
  const clocks = result.clock?.ranks ?? [];
  return section("quality", "Data quality and definitions", [
    notes.length ? tableFigure("notes", "Notes on the recordings", notes, ["severity", "rank", "text", "file", "events_dropped"]) : el("p", {}, "Nothing was missing or repaired."),
    page.cuts.length ? tableFigure("cuts", "What this page shows more coarsely", page.cuts, ["text=what", "kept", "total"]) : null,
    unavailable.length ? tableFigure("unavailable", "What cannot be said of this run", unavailable, ["part", "reason"]) : null,
    clocks.length ? tableTwinFigure("clocks", "Clocks of the ranks", clocks, ["rank", "method", "offset_ns=ahead of the reference", "drift_ppm=drift, ppm", "error_ns=uncertainty"]) : null,
    result.configuration?.length ? tableTwinFigure("configuration", "Settings that were found", result.configuration, ["component", "setting", "value", "modules", "ranks"]) : null,
    result.memory?.length ? tableTwinFigure("memory", "Memory of the ranks", result.memory, resultColumns("memory", result.memory)) : null,
    el("figure", { id: "definitions" }, el("figcaption", {}, el("h3", {}, "Definitions")), el("dl", {}, page.definitions.map(({ term, text }) => el("div", {}, el("dt", {}, term), el("dd", {}, text))))),
    el("p", { class: "quiet" }, `Made by tracekit ${result.tracekit_version}. This file needs no network.`),
  ]);
}

const SEVERITIES = ["error", "warning", "info"];

/** Return a figure that is a table. */
function tableFigure(id, title, rows, columns) {
  return el("figure", { id }, el("figcaption", {}, el("h3", {}, title)), dataTable(title, columns, rows));
}

/** Return a figure that is a table, opened on demand. */
function tableTwinFigure(id, title, rows, columns) {
  const holder = el("div");
  const details = el("details", { class: "twin", on: { toggle: () => details.open && holder.replaceChildren(dataTable(title, columns, rows)) } }, el("summary", {}, countText(rows.length, "row")), holder);
  return el("figure", { id }, el("figcaption", {}, el("h3", {}, title)), details);
}
