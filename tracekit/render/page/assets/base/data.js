"use strict";
// The data of the page (tracekit/render/page/contract.py), and what several sections look up in it.

const { result, page } = JSON.parse(document.getElementById("tracekit-data").textContent);

const STEPS_OF_RANK = new Map((result.ranks ?? []).map((row) => [row.rank, row.steps]));
const PLACE_OF_RANK = new Map(page.rank_map.ranks.map((rank, place) => [rank, place]));

/** Return the name of a process group: its dimension of the mesh, and its ranks. */
function groupText(id) {
  const group = id === null || id === undefined ? null : result.groups?.[id];
  if (!group) return "unknown group";
  const purpose = group.dimension ?? group.parallelism ?? group.desc;
  return `${purpose}, ${group.ranks === "world" ? "all ranks" : ranksText(group.ranks)}`;
}

/** Return the dimension of a group, such as dp; without one its description. */
function dimensionOf(id) {
  const group = id === null || id === undefined ? null : result.groups?.[id];
  return group ? (group.dimension ?? group.parallelism ?? group.desc) : "unknown group";
}

/** Return whether a rank belongs to a group. */
function isInGroup(rank, id) {
  const group = result.groups?.[id];
  return Boolean(group) && (group.ranks === "world" || group.ranks.includes(rank));
}

/** Return [name, unit, meaning] of the columns of a table of the result that its rows have. */
function columnsOf(table, rows) {
  const present = rows.length ? Object.keys(rows[0]) : [];
  const described = new Map((page.columns[table] ?? []).map((column) => [column.name, column]));
  const names = [...[...described.keys()].filter((name) => present.includes(name)), ...present.filter((name) => !described.has(name))];
  return names.map((name) => [name, described.get(name)?.unit || unitOf(name), described.get(name)?.meaning ?? ""]);
}

/** Return the middle of numbers (the upper one of two), or null without any. */
function upperMedian(values) {
  const sorted = values.filter(isKnown).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

/** Return the sums of `value(row)` by `key(row)`, in the order in which keys come. */
function sumsBy(rows, key, value) {
  const sums = new Map();
  for (const row of rows) sums.set(key(row), (sums.get(key(row)) ?? 0) + value(row));
  return sums;
}

/** Return the least and the greatest of the known values; null without any. */
function extent(values) {
  let least = Infinity;
  let most = -Infinity;
  for (const value of values) {
    if (!isKnown(value)) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return least <= most ? [least, most] : null;
}
