// Tables: sorted by a press on a column's head, and longer ones shown in pieces. `data-value` of a number's cell is its exact value.

const ROWS_AT_FIRST = 50;
const ROWS_MORE = 500;
const NUMBERED = /(^|_)(rank|step|stage|index|id|version|from|to|source|destination)$/; // written without a thousands separator

/**
 * Return a table of `rows`.
 *
 * columns: {key, label, unit, meaning, value(row), text(row)}; or "key=label" where the key says all, and ["key=label", value]
 * where only the value differs. `value` is by default `row[key]`, and the unit that of the key. A column whose values are numbers is aligned right and has one unit for all of its cells, which its head
 * names. `saves` are [kind of file, what saves it], beside CSV.
 */
function dataTable(caption, columns, rows, saves = []) {
  const body = el("tbody");
  const more = el("p", { class: "more" });
  const prepared = columns.map((column) => prepareColumn(column, rows));
  let shown = rows;
  let sorted = null;
  let count = 0;

  function showMore(wanted) {
    const end = Math.min(count + wanted, shown.length);
    append(body, shown.slice(count, end).map((row) => tableRow(prepared, row)));
    count = end;
    const left = shown.length - count;
    more.replaceChildren();
    if (left) append(more, `${decimal(count, 0)} of ${countText(shown.length, "row")}. `, button(`Show ${decimal(Math.min(ROWS_MORE, left), 0)} more`, () => showMore(ROWS_MORE)));
  }

  function sortBy(column) {
    const isDescending = sorted?.column === column ? !sorted.isDescending : column.isNumeric;
    sorted = { column, isDescending };
    shown = [...rows].sort((a, b) => compare(column.value(a), column.value(b), isDescending));
    for (const each of prepared) each.head.setAttribute("aria-sort", each === column ? (isDescending ? "descending" : "ascending") : "none");
    body.replaceChildren();
    count = 0;
    showMore(ROWS_AT_FIRST);
  }

  for (const column of prepared) {
    column.head = el("th", { scope: "col", class: column.isNumeric && "number", title: column.meaning }, button(column.heading, () => sortBy(column)));
  }
  const head = el("thead", null, el("tr", null, prepared.map((column) => column.head)));
  showMore(ROWS_AT_FIRST);
  const table = rows.length ? el("table", null, el("caption", null, caption), head, body) : el("p", { class: "quiet" }, "No rows.");
  const files = [...saves, ["csv", () => saveFile(caption, "csv", new Blob([csvText(prepared, shown)], { type: "text/csv" }))]];
  const save = el("p", { class: "saves" }, "Save: ", files.map(([kind, press]) => button(kind.toUpperCase(), press)));
  return el("div", null, save, el("div", { class: "table", tabindex: 0, role: "region", "aria-label": caption }, table, more));
}

/** Return an element that opens a table, made when it is opened. `make` returns {columns, rows}; `saves` as in `dataTable`. */
function twin(label, caption, make, saves) {
  const holder = el("div");
  const details = el("details", { class: "twin" }, el("summary", null, label), holder);
  details.refresh = () => {
    if (!details.open) return;
    const { columns, rows } = make();
    holder.replaceChildren(dataTable(caption, columns, rows, saves));
  };
  details.addEventListener("toggle", details.refresh);
  return details;
}

/** Return a figure that is a table; with `label`, one that is opened by it. */
function tableFigure(id, title, rows, columns, label = null) {
  const table = label ? twin(label, title, () => ({ columns, rows })) : dataTable(title, columns, rows);
  return el("figure", { id }, el("figcaption", null, el("h3", null, title)), table);
}

function prepareColumn(given, rows) {
  const [text, of] = [given].flat();
  const [name, label] = typeof text === "string" ? text.split("=") : [];
  const column = name ? { key: name, label: label ?? words(name), value: of } : given;
  const value = column.value ?? ((row) => row[column.key]);
  const unit = column.unit ?? unitOf(column.key);
  const known = rows.map(value).filter((each) => each != null);
  const isNumeric = !column.text && known.length > 0 && known.every(isKnown);
  const scale = isNumeric ? columnScale(unit, known) : null;
  return { ...column, value, unit, isNumeric, scale, heading: scale?.name ? `${column.label} (${scale.name})` : column.label };
}

/** Return {divisor, name, decimals} of a column: one unit for all its cells, with three digits for the greatest. */
function columnScale(unit, values) {
  const most = Math.max(...extent(values, [0, 0]).map(Math.abs));
  const units = unit === "B/s" ? UNITS.bytes : UNITS[unit];
  if (units) {
    const [divisor, name] = units.find(([least]) => most >= least) ?? units.at(-1);
    return { divisor, name: unit === "B/s" ? `${name}/s` : name, decimals: divisor === 1 ? 0 : most / divisor >= 100 ? 1 : 2 };
  }
  if (unit === "ratio") return { divisor: 0.01, name: "%", decimals: 1 };
  return { divisor: 1, name: unit ?? "", decimals: values.every(Number.isInteger) ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : 3 };
}

/** Return a number with the unit and the decimals of its column. */
function scaledText(value, { divisor, name, decimals }) {
  return isKnown(value) ? `${decimal(value / divisor, decimals).replace("-", "−")}${name && name !== "%" ? " " : ""}${name}` : UNKNOWN;
}

function tableRow(columns, row) {
  const cells = columns.map((column) => {
    const { key, unit, scale } = column;
    const value = column.value(row);
    if (column.isNumeric) {
      const text = !isKnown(value) ? UNKNOWN : /(^|_)step$/.test(key) ? `#${value}` : NUMBERED.test(key) ? value : decimal(value / scale.divisor, scale.decimals);
      return el("td", { class: "number", data: isKnown(value) ? { value } : {} }, text);
    }
    const text = column.text ? column.text(row) : valueText(value, unit);
    return el("td", null, text.length > 120 ? el("span", { class: "long", title: text }, text) : text);
  });
  return el("tr", null, cells);
}

/** Return a table as CSV: exact values, in the units that the heads name. No text is a formula to a spreadsheet. */
function csvText(columns, rows) {
  const cellOf = (value) => {
    if (value == null || typeof value === "number") return value ?? "";
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    return `"${/^\s*[=+\-@＝＋－＠']|^[\t\r]/.test(text) ? "'" : ""}${text.replaceAll('"', '""')}"`;
  };
  const heads = columns.map(({ label, unit }) => (unit ? `${label} (${unit})` : label));
  const lines = rows.map((row) => columns.map((column) => (column.text ? column.text(row) : column.value(row))));
  return [heads, ...lines].map((line) => `${line.map(cellOf).join(",")}\n`).join("");
}

/** Save a file, named by the page and by what it shows. */
function saveFile(title, kind, blob) {
  const name = `${document.title} ${title}`.replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(-100);
  const link = el("a", { href: URL.createObjectURL(blob), download: `${name}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Return the order of two values; unknown ones come last either way. */
function compare(a, b, isDescending) {
  if (a == null || b == null) return (a == null) - (b == null);
  const order = isKnown(a) && isKnown(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return isDescending ? -order : order;
}
