// The data of the page (tracekit/render/page/contract.py), and what several sections look up in it.

const { result, page } = JSON.parse(document.getElementById("tracekit-data").textContent);

const RANK_ROWS = result.ranks ?? [];
const record = (keys, valueOf) => Object.fromEntries(keys.map((key) => [key, valueOf(key)]));
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
  return group ? (group.dimension ?? group.parallelism ?? group.desc) : null;
}

function isInGroup(rank, id) {
  const ranks = groupOf(id)?.ranks;
  return ranks === "world" || Boolean(ranks?.includes(rank));
}

/** Return columns for a table of the result, with the units and meanings of the page's `columns`. */
function resultColumns(name, rows) {
  const present = Object.keys(rows[0] ?? {});
  const described = new Map((page.columns[name] ?? []).map((column) => [column.name, column]));
  const keys = [...[...described.keys()].filter((key) => present.includes(key)), ...present.filter((key) => !described.has(key))];
  return keys.map((key) => ({
    key, label: words(key), unit: described.get(key)?.unit || unitOf(key), meaning: described.get(key)?.meaning,
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
 * Return a row for each combination of `keys` among rows of chosen ranks. Its `values` are `reduce(known, rows)`, of the
 * known values and all the rows that it stands for; null without any.
 */
function grouped(rows, keys, values, reduce) {
  const groups = new Map();
  for (const row of rows) {
    if (!isRankChosen(row.rank)) continue;
    const key = keys.map((name) => row[name]).join("\u0000");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()].map((members) => {
    const sums = values.map((name) => members.map((row) => row[name]).filter(isKnown)).map((known) => (known.length ? reduce(known, members) : null));
    return Object.fromEntries([...keys.map((name) => [name, members[0][name]]), ...values.map((name, at) => [name, sums[at]])]);
  });
}

const meanOf = (known) => sumOf(known, (value) => value) / known.length;

/** Return what makes the sum over the chosen ranks' steps a mean a step. */
function perStep() {
  const steps = sumOf(RANK_ROWS, (row) => (isRankChosen(row.rank) ? row.steps : 0)) || 1;
  return (known) => sumOf(known, (value) => value) / steps;
}
