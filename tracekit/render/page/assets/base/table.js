"use strict";
// Tables: sorted by a press on a column's head, and longer ones shown in pieces. `data-value` of a cell is its exact value.

const ROWS_AT_FIRST = 50;
const ROWS_MORE = 500;
const NUMBERED = /(^|_)(rank|step|stage|index|id|version|from|to|source|destination)$/; // written without a thousands separator

/**
 * Return a table of `rows`.
 *
 * columns: {key, label, unit, meaning, value(row), text(row)}, or "key=label" where the key says all; `value` is by default
 * `row[key]`. A column whose values are numbers is aligned right and has one unit for all of its cells, which its head
 * names.
 */
function dataTable(caption, columns, rows, attributes = {}) {
  const body = el("tbody");
  const more = el("p", { class: "more" });
  const table = el("table", attributes, el("caption", {}, caption));
  const prepared = columns.map((column) => prepareColumn(column, rows));
  let shown = rows;
  let sorted = { column: null, descending: false };
  let count = 0;

  function showMore(wanted) {
    const end = Math.min(count + wanted, shown.length);
    const fragment = document.createDocumentFragment();
    for (; count < end; count += 1) fragment.append(tableRow(prepared, shown[count]));
    body.append(fragment);
    more.replaceChildren();
    if (count < shown.length) {
      append(more, `${decimal(count, 0)} of ${countText(shown.length, "row")}. `, button(`Show ${decimal(Math.min(ROWS_MORE, shown.length - count), 0)} more`, () => showMore(ROWS_MORE)));
    }
  }

  function sortBy(column) {
    const descending = sorted.column === column ? !sorted.descending : column.isNumeric;
    sorted = { column, descending };
    shown = [...rows].sort((a, b) => compare(column.value(a), column.value(b), descending));
    for (const each of prepared) each.head.setAttribute("aria-sort", each === column ? (descending ? "descending" : "ascending") : "none");
    body.replaceChildren();
    count = 0;
    showMore(ROWS_AT_FIRST);
  }

  const heads = prepared.map((column) => {
    const title = column.meaning ? { title: column.meaning } : {};
    column.head = el("th", { scope: "col", class: column.isNumeric ? "number" : null, ...title }, button(column.heading, () => sortBy(column)));
    return column.head;
  });
  append(table, el("thead", {}, el("tr", {}, heads)), body);
  showMore(ROWS_AT_FIRST);
  return el("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption }, rows.length ? table : el("p", { class: "quiet" }, "No rows."), more);
}

/** Return columns for a table of the result, described by the page's `columns`. `omitted` names are left out. */
function resultColumns(name, rows, omitted = []) {
  return columnsOf(name, rows)
    .filter(([key]) => !omitted.includes(key))
    .map(([key, unit, meaning]) => ({
      key, unit, meaning, label: words(key),
      ...(key === "group" ? { text: (row) => groupCell(row.group) } : {}),
    }));
}

function groupCell(group) {
  return typeof group === "number" ? groupText(group) : (group ?? "unknown");
}

function prepareColumn(given, rows) {
  const [key, label] = typeof given === "string" ? given.split("=") : [];
  const column = key ? { key, label: label ?? words(key) } : given;
  const value = column.value ?? ((row) => row[column.key]);
  const unit = column.unit ?? unitOf(column.key);
  const values = rows.map(value);
  const isNumeric = !column.text && values.some(isKnown) && values.every((each) => each === null || each === undefined || isKnown(each));
  const scale = isNumeric ? columnScale(unit, values) : null;
  const heading = scale?.name ? `${column.label} (${scale.name})` : column.label;
  return { ...column, value, unit, isNumeric, scale, heading };
}

/** Return {divisor, name, decimals} of a column: one unit for all its cells, with three digits for the greatest. */
function columnScale(unit, values) {
  const most = Math.max(...(extent(values) ?? [0, 0]).map(Math.abs));
  const units = { ns: TIME_UNITS, bytes: BYTE_UNITS, "B/s": BYTE_UNITS, "FLOP/s": FLOPS_UNITS }[unit];
  if (units) {
    const [divisor, name] = units.find(([least]) => most >= least) ?? units.at(-1);
    return { divisor, name: unit === "B/s" ? `${name}/s` : name, decimals: divisor === 1 ? 0 : most / divisor >= 100 ? 1 : 2 };
  }
  if (unit === "ratio") return { divisor: 0.01, name: "%", decimals: 1 };
  const isWhole = values.every((value) => !isKnown(value) || Number.isInteger(value));
  return { divisor: 1, name: unit, decimals: isWhole ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : 3 };
}

function tableRow(columns, row) {
  return el("tr", {}, columns.map((column) => {
    const value = column.value(row);
    if (column.isNumeric) {
      const number = () => decimal(value / column.scale.divisor, column.scale.decimals);
      const text = !isKnown(value) ? UNKNOWN : NUMBERED.test(column.key) ? String(value) : number();
      return el("td", { class: "number", data: isKnown(value) ? { value } : {} }, text);
    }
    const text = column.text ? column.text(row) : valueText(value, column.unit);
    return el("td", { data: typeof value === "number" || typeof value === "string" ? { value: safeText(value) } : {} }, text);
  }));
}

/** Return the order of two values; unknown ones come last either way. */
function compare(a, b, descending) {
  const aUnknown = a === null || a === undefined;
  const bUnknown = b === null || b === undefined;
  if (aUnknown || bUnknown) return Number(aUnknown) - Number(bUnknown);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}
