// Numbers as text: times, sizes, bandwidths, shares, and sets of ranks or steps.

const UNKNOWN = "n/a";
const UNITS = {
  ns: [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]],
  bytes: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  "FLOP/s": [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"], [1, "FLOP/s"]],
};

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

/** Return a value with its unit. Units are those of the contract: ns, bytes, B/s, ratio, FLOP/s, or none. */
function valueText(value, unit) {
  if (value == null) return UNKNOWN;
  if (typeof value !== "number") return listText(value);
  if (!Number.isFinite(value)) return UNKNOWN;
  if (unit === "ratio") return percentText(value);
  if (unit === "B/s") return `${valueText(value, "bytes")}/s`;
  if (!UNITS[unit]) return Number.isInteger(value) ? decimal(value, 0) : threeDigits(value);
  const [size, name] = UNITS[unit].find(([least]) => Math.abs(value) >= least * 0.9995) ?? UNITS[unit].at(-1);
  return value === 0 ? "0" : `${threeDigits(value / size)} ${name}`;
}

const timeText = (ns) => valueText(ns, "ns");
const bytesText = (bytes) => valueText(bytes, "bytes");

/** Return a time of a step in milliseconds, for numbers that are compared with each other. */
function msText(ns, decimals = null) {
  const size = Math.abs(ns);
  return isKnown(ns) ? `${decimal(ns / 1e6, decimals ?? (size >= 1e9 ? 0 : size >= 1e7 ? 1 : 2))} ms` : UNKNOWN;
}

function percentText(ratio, decimals = null) {
  return isKnown(ratio) ? `${decimal(ratio * 100, decimals ?? Number(ratio !== 0 && Math.abs(ratio) < 0.0995))}%` : UNKNOWN;
}

/** Return the text of a value that is no number: a list, an object, a truth value, a text. */
function listText(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length > 2 && value.every(Number.isInteger) ? rangesText(value) : value.map((each) => valueText(each, "")).join(", ");
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([key, each]) => `${words(key)} ${valueText(each, unitOf(key))}`).join(", ");
}

/** Return the unit that the end of a name stands for. */
function unitOf(name) {
  if (/(_ns|_ns_per_step)$/.test(name)) return "ns";
  if (/_bytes$/.test(name)) return "bytes";
  if (/_bps$/.test(name)) return "B/s";
  if (/flops_per_s$/.test(name)) return "FLOP/s";
  return /(^|_)(ratio|share|mfu|hfu)$/.test(name) ? "ratio" : "";
}

/** Return a key as words: `caused_delay_ns` is "caused delay". The unit stands at the value. */
function words(key) {
  return key.replace(/_(ns|bytes|bps)$/, "").replaceAll("_", " ");
}

function countText(count, noun) {
  return `${decimal(count, 0)} ${noun}${count === 1 ? "" : /ch$/.test(noun) ? "es" : "s"}`;
}

/** Return `0-3,5` for the numbers 0, 1, 2, 3 and 5; after `most` ranges it ends with an ellipsis. */
function rangesText(numbers, most = 8) {
  const ranges = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (ranges.length && number <= ranges.at(-1)[1] + 1) ranges.at(-1)[1] = number;
    else ranges.push([number, number]);
  }
  const texts = ranges.slice(0, most).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  return texts.join(",") + (ranges.length > most ? ",…" : "");
}

/** Return the numbers of `known` in a text such as `0-3, 5`; null where it names none or all of them. */
function parseRanges(text, known) {
  const wanted = text.split(",").map((part) => /^\s*(\d+)\s*(?:[-–:]\s*(\d+)\s*)?$/.exec(part)).filter(Boolean).map(([, first, last]) => [Number(first), Number(last ?? first)]);
  return someOf(known.filter((number) => wanted.some(([first, last]) => number >= first && number <= last)), known);
}

/** Return `chosen`, or null where it is none or all of `known`. */
function someOf(chosen, known) {
  return chosen.length && chosen.length < known.length ? chosen : null;
}

function ranksText(ranks) {
  return `rank${ranks.length === 1 ? "" : "s"} ${rangesText(ranks)}`;
}
