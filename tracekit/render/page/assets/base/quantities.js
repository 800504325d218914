"use strict";
// Numbers as text: times, sizes, bandwidths, shares, and sets of ranks or steps.

const UNKNOWN = "n/a";

function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Return a number with a fixed number of decimals, and thousands separated. */
function decimal(value, decimals) {
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** Return a number with about three digits. */
function threeDigits(value) {
  const size = Math.abs(value);
  return decimal(value, size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2);
}

function scaled(value, units) {
  const size = Math.abs(value);
  const found = units.find(([least]) => size >= least * 0.9995) ?? units.at(-1);
  return `${threeDigits(value / found[0])} ${found[1]}`;
}

const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const BYTE_UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const FLOPS_UNITS = [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]];

/** Return a time in the unit that suits it. */
function timeText(ns) {
  return isKnown(ns) ? (ns === 0 ? "0" : scaled(ns, TIME_UNITS)) : UNKNOWN;
}

/** Return a time of a step as the verdict has it: milliseconds, for numbers that are compared with each other. */
function millisecondsText(ns, decimals = null) {
  if (!isKnown(ns)) return UNKNOWN;
  const size = Math.abs(ns);
  return `${decimal(ns / 1e6, decimals ?? (size >= 1e9 ? 0 : size >= 1e7 ? 1 : 2))} ms`;
}

function bytesText(bytes) {
  return isKnown(bytes) ? (bytes === 0 ? "0 B" : scaled(bytes, BYTE_UNITS)) : UNKNOWN;
}

function bandwidthText(bps) {
  return isKnown(bps) ? `${bytesText(bps)}/s` : UNKNOWN;
}

function percentText(ratio, decimals = null) {
  if (!isKnown(ratio)) return UNKNOWN;
  const size = Math.abs(ratio);
  return `${decimal(ratio * 100, decimals ?? (size > 0 && size < 0.0995 ? 1 : 0))} %`;
}

/** Return a value with its unit. Units are those of the contract: ns, bytes, B/s, ratio, FLOP/s, or none. */
function valueText(value, unit) {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value !== "number") return listText(value);
  switch (unit) {
    case "ns": return timeText(value);
    case "bytes": return bytesText(value);
    case "B/s": return bandwidthText(value);
    case "ratio": return percentText(value);
    case "FLOP/s": return value === 0 ? "0" : scaled(value, FLOPS_UNITS);
    default: return Number.isInteger(value) ? decimal(value, 0) : threeDigits(value);
  }
}

/** Return the text of a value that is no number: a list, an object, a truth value, a text. */
function listText(value) {
  if (value === true) return "yes";
  if (value === false) return "no";
  if (Array.isArray(value)) {
    const allNumbers = value.length > 2 && value.every(Number.isInteger);
    return allNumbers ? rangesText(value) : value.map((each) => valueText(each, "")).join(", ");
  }
  if (typeof value === "object") {
    return Object.entries(value).map(([key, each]) => `${words(key)} ${valueText(each, unitOf(key))}`).join(", ");
  }
  return String(value);
}

/** Return the unit that the end of a name stands for. */
function unitOf(name) {
  if (name.endsWith("_ns") || name === "saves_ns_per_step") return "ns";
  if (name.endsWith("_bytes")) return "bytes";
  if (name.endsWith("_bps")) return "B/s";
  if (name.endsWith("flops_per_s")) return "FLOP/s";
  return /(_ratio|_share|^share|^ratio|^mfu|^hfu)$/.test(name) ? "ratio" : "";
}

/** Return a key as words: `caused_delay_ns` is "caused delay". The unit stands at the value. */
function words(key) {
  return key.replace(/_(ns|bytes|bps)$/, "").replaceAll("_", " ");
}

function countText(count, noun) {
  return `${decimal(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return `0-3,5` for the numbers 0, 1, 2, 3 and 5; after `most` ranges it ends with an ellipsis. */
function rangesText(numbers, most = 8) {
  const ranges = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last && number <= last[1] + 1) last[1] = number;
    else ranges.push([number, number]);
  }
  const texts = ranges.slice(0, most).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  return texts.join(",") + (ranges.length > most ? ",…" : "");
}

/** Return the numbers of `known` in a text such as `0-3, 5`; null where it is empty or says nothing of the kind. */
function parseRanges(text, known) {
  const wanted = [];
  for (const part of text.split(",")) {
    const found = /^\s*(\d+)\s*(?:[-–:]\s*(\d+)\s*)?$/.exec(part);
    if (found) wanted.push([Number(found[1]), Number(found[2] ?? found[1])]);
  }
  const chosen = known.filter((number) => wanted.some(([first, last]) => number >= first && number <= last));
  return chosen.length ? chosen : null;
}

/** Return "rank 5" or "ranks 0-3,5". */
function ranksText(ranks) {
  return `rank${ranks.length === 1 ? "" : "s"} ${rangesText(ranks)}`;
}
