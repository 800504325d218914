// The data of the page (tracekit/render/page/contract.py), and what several sections look up in it.

const { result, page } = JSON.parse(document.getElementById("tracekit-data").textContent);

const RANK_ROWS = result.ranks ?? [];
const record = (keys, valueOf) => Object.fromEntries(keys.map((key) => [key, valueOf(key)]));
const largestFirst = (key) => (a, b) => b[key] - a[key];
const joined = (...texts) => texts.filter(Boolean).join(", ");
const groupOf = (id) => (typeof id === "number" ? result.groups?.[id] : null);

/** Return the name of a process group: its dimension of the mesh, and its ranks. */
function groupText(id) {
  const group = groupOf(id);
  if (!group) return id ?? "unknown group";
  return joined(dimensionOf(id), group.ranks === "world" ? "all ranks" : ranksText(group.ranks));
}

/** Return the dimension of a group, such as dp; without one its description, and null if it is not known. */
function dimensionOf(id) {
  const group = groupOf(id);
  return group?.dimension || group?.parallelism || group?.desc || null;
}

function isInGroup(rank, id) {
  const ranks = groupOf(id)?.ranks;
  return ranks === "world" || Boolean(ranks?.includes(rank));
}

/** Return columns for a table of the result, with the labels, units and meanings of the page's `columns`. */
function resultColumns(name, rows) {
  const present = Object.keys(rows[0] ?? {});
  const described = new Map((page.columns[name] ?? []).map((column) => [column.name, column]));
  const keys = [...[...described.keys()].filter((key) => present.includes(key)), ...present.filter((key) => !described.has(key))];
  return keys.map((key) => ({
    key, label: described.get(key)?.label ?? words(key), unit: described.get(key)?.unit || unitOf(key), meaning: described.get(key)?.meaning,
    value: key === "group" ? (row) => groupText(row.group) : (row) => row[key],
  }));
}

/** Return the least and the greatest of the known values; `otherwise` without any. */
function extent(values, otherwise = null) {
  let least = Infinity;
  let most = -Infinity;
  for (const value of values) {
    if (!isKnown(value)) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return least <= most ? [least, most] : otherwise;
}

function sumOf(rows, value) {
  return rows.reduce((sum, row) => sum + (value(row) ?? 0), 0);
}

/**
 * Return what a table with rows of each rank makes a step: the mean over all ranks, which the page has; of chosen ranks
 * the mean over those with such rows, as far as the rows are in this file.
 *
 * A row is of one combination of `keys`. `sums` are sums over a rank's steps; `means` are not, and are averaged as they are.
 */
function meansOf(name, rows, keys, sums, means = []) {
  if (state.ranks === null) return page.means[name];
  const stepsOf = new Map(RANK_ROWS.map(({ rank, steps }) => [rank, steps]));
  const groups = new Map();
  for (const row of rows ?? []) {
    if (!isRankChosen(row.rank) || !stepsOf.get(row.rank)) continue;
    const key = keys.map((name) => row[name]).join("\u0000");
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].map((members) => {
    const ranks = new Set(members.map(({ rank }) => rank)).size;
    return {
      ...record(keys, (key) => members[0][key]),
      ...record(sums, (key) => (members.every((row) => isKnown(row[key])) ? sumOf(members, (row) => row[key] / stepsOf.get(row.rank)) / ranks : null)),
      ...record(means, (key) => meanOf(members.map((row) => row[key]))),
    };
  });
}

/** Return the mean of the known values; null without any. */
function meanOf(values) {
  const known = values.filter(isKnown);
  return known.length ? sumOf(known, (value) => value) / known.length : null;
}

/** Return the chosen ranks as words; with the name of a table, only those whose rows are in this file. */
function chosenRanksText(name) {
  if (state.ranks === null) return "all ranks";
  const kept = page.cuts.find(({ what }) => what === name)?.ranks ?? state.ranks;
  const shown = state.ranks.filter((rank) => kept.includes(rank));
  return shown.length === state.ranks.length ? ranksText(shown) : `${shown.length ? ranksText(shown) : "no rank"} (this file lacks the other chosen ones)`;
}
