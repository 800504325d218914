// What the reader has chosen: the filter of all charts, and how each is drawn. It is kept in the hash of the address.
//
//   finding        the current finding, from 0
//   ranks, steps   lists; null is all of them
//   dimension, phase   of communication; null is all of them
//   map, heat, sort, lanes, pairs, look   choices of single charts
//   theme          light or dark; null is that of the system

const DEFAULTS = {
  finding: 0, ranks: null, steps: null, dimension: null, phase: null,
  map: null, heat: null, sort: "rank", lanes: null, pairs: "size_bytes", look: "", theme: null,
};
const FILTERS = { ranks: "rank", steps: "step", dimension: "group", phase: "phase" };
const LISTS = { ranks: () => page.rank_map.ranks, steps: () => page.rank_steps.steps };
const state = { ...DEFAULTS };
const listeners = [];
let isPlanned = false;

/** Call `listener` after each change of the state, once for all that changes together. */
function onState(listener) {
  listeners.push(listener);
}

/** Change the state, write it into the address, and draw again what depends on it, unless the caller does that. */
function setState(changes, isDrawn = false) {
  Object.assign(state, changes);
  const hash = hashOf(state);
  if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : "#");
  if (!isDrawn) announce();
}

function announce() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    for (const listener of listeners) listener();
  });
}

/** Return the hash of what differs from the defaults. */
function hashOf(chosen) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(chosen)) {
    if (value === DEFAULTS[key]) continue;
    query.set(key, key in LISTS ? rangesText(value, Infinity) : key === "finding" ? value + 1 : value);
  }
  return query.toString().replaceAll("%2C", ",");
}

/** Take the state from the address. What is not understood is left at its default. */
function readHash() {
  const query = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, DEFAULTS);
  for (const [key, text] of query) {
    if (!(key in DEFAULTS)) continue;
    if (key in LISTS) state[key] = parseRanges(text, LISTS[key]());
    else if (key === "finding") state.finding = Math.min(Math.max(Math.trunc(Number(text)) - 1 || 0, 0), page.findings.length);
    else state[key] = text;
  }
}

window.addEventListener("hashchange", () => {
  readHash();
  announce();
});

let rankSet = { of: null, set: null };

/** Return whether the filter lets a rank pass. */
function isRankChosen(rank) {
  if (state.ranks === null) return true;
  if (rankSet.of !== state.ranks) rankSet = { of: state.ranks, set: new Set(state.ranks) };
  return rankSet.set.has(rank);
}

function isStepChosen(step) {
  return state.steps === null || state.steps.includes(step);
}

/** Return whether the filter is anything but "all". */
function isFiltered() {
  return Object.keys(FILTERS).some((key) => state[key] !== null);
}

/** Return the filter as words. */
function filterText() {
  const parts = [];
  if (state.ranks) parts.push(ranksText(state.ranks));
  if (state.steps) parts.push(`step${state.steps.length === 1 ? "" : "s"} #${rangesText(state.steps)}`);
  if (state.dimension) parts.push(`communication in ${state.dimension}`);
  if (state.phase) parts.push(state.phase);
  return parts.length ? parts.join(" · ") : "everything";
}
