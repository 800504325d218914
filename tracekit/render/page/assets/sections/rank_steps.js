"use strict";
// Each rank in each step as one cell. A drag chooses ranks and steps for all charts.

const HEAT = { left: 58, bottom: 24, row: 15, most: 620, least: 40 };

/** Return the section with the heat map of ranks and steps. */
function rankStepsSection() {
  return section("steps", "Every rank in every step", [heatChart()]);
}

/** Return whether a row of the heat map has a rank that the filter lets pass. */
function isRowChosen(row) {
  if (state.ranks === null) return true;
  const { ranks, row_first, row_last } = page.rank_steps;
  for (let place = row_first[row]; place <= row_last[row]; place += 1) if (isRankChosen(ranks[place])) return true;
  return false;
}

function isColumnChosen(column) {
  if (state.steps === null) return true;
  const { steps, column_first, column_last } = page.rank_steps;
  return state.steps.some((step) => step >= steps[column_first[column]] && step <= steps[column_last[column]]);
}

function rowText(row) {
  const { ranks, row_first, row_last } = page.rank_steps;
  return row_first[row] === row_last[row] ? `rank ${ranks[row_first[row]]}` : `ranks ${ranks[row_first[row]]}-${ranks[row_last[row]]}`;
}

function columnText(column) {
  const { steps, column_first, column_last } = page.rank_steps;
  return column_first[column] === column_last[column] ? `step ${steps[column_first[column]]}` : `steps ${steps[column_first[column]]}-${steps[column_last[column]]}`;
}

/** Return the metric to colour by: the chosen one, else lateness where it is known, else the first. */
function heatMetric() {
  const { metrics } = page.rank_steps;
  const known = metrics.find((metric) => metric.key === "lateness_ns" && metric.values.some((value) => value > 0));
  return metrics.find((metric) => metric.key === state.heat) ?? known ?? metrics[0];
}

/** Return the places of the rows in the order that is chosen. */
function heatOrder(metric) {
  const grid = page.rank_steps;
  const rows = grid.row_first.map((_, row) => row);
  if (state.sort === "host") return rows.sort((a, b) => (grid.hosts[grid.row_first[a]] ?? Infinity) - (grid.hosts[grid.row_first[b]] ?? Infinity) || a - b);
  if (state.sort === "rank") return rows;
  const by = state.sort === "lateness" ? grid.metrics.find((each) => each.key === "lateness_ns") : metric;
  if (!by) return rows;
  const width = grid.column_first.length;
  const sums = rows.map((row) => {
    let sum = 0;
    for (let column = 0; column < width; column += 1) sum += by.values[row * width + column] ?? 0;
    return sum;
  });
  return rows.sort((a, b) => sums[b] - sums[a] || a - b);
}

function heatChart() {
  const grid = page.rank_steps;
  const columns = grid.column_first.length;
  if (!columns || !grid.row_first.length) return el("p", { class: "remark" }, "No rank completed a step.");
  let order = [];
  let place = null;

  function plan(width) {
    const inner = width - HEAT.left;
    const count = grid.row_first.length;
    const height = Math.min(Math.max(count * HEAT.row, HEAT.least), HEAT.most);
    place = { inner, height, cellWidth: inner / columns, cellHeight: height / count };
    return height + HEAT.bottom;
  }

  function draw(pen) {
    const metric = heatMetric();
    order = heatOrder(metric);
    const range = extent(metric.values) ?? [0, 1];
    const { inner, height } = place;
    const lines = Math.min(order.length, Math.max(1, Math.floor(height * (window.devicePixelRatio || 1))));
    const image = heatImage(pen.context, metric, order, columns, lines, range);
    pen.context.imageSmoothingEnabled = false;
    pen.context.drawImage(image, HEAT.left, 0, inner, height);
    if (place.cellWidth > 8 && place.cellHeight > 8) gridLines(pen);
    labels(pen);
  }

  function gridLines(pen) {
    for (let column = 1; column < columns; column += 1) pen.line(HEAT.left + column * place.cellWidth, 0, HEAT.left + column * place.cellWidth, place.height, palette.page);
    for (let row = 1; row < order.length; row += 1) pen.line(HEAT.left, row * place.cellHeight, HEAT.left + place.inner, row * place.cellHeight, palette.page);
  }

  function labels(pen) {
    const every = Math.max(1, Math.ceil(14 / place.cellHeight));
    for (let row = 0; row < order.length; row += every) {
      const y = Math.max((row + 0.5) * place.cellHeight, 6);
      pen.text(rowText(order[row]).replace(/^ranks? /, every > 1 || grid.binned ? "" : "rank "), HEAT.left - 6, y, { size: 11, align: "right", colour: palette.muted, most: HEAT.left - 8 });
    }
    const widest = pen.widthOf(columnText(columns - 1), 11) + 14;
    const across = Math.max(1, Math.ceil(widest / place.cellWidth));
    for (let column = 0; column < columns; column += across) {
      const x = HEAT.left + (column + 0.5) * place.cellWidth;
      const half = pen.widthOf(columnText(column), 11) / 2;
      pen.text(columnText(column), Math.min(Math.max(x, HEAT.left + half - 20), pen.width - half), place.height + 12, { size: 11, align: "center", colour: palette.muted });
    }
  }

  const at = (x, y) => ({ column: Math.floor((x - HEAT.left) / place.cellWidth), row: Math.floor(y / place.cellHeight) });
  const inside = (x, y) => x >= HEAT.left && y >= 0 && y < place.height;

  function hit(x, y) {
    if (!inside(x, y)) return null;
    const { column, row: line } = at(x, y);
    const row = order[line];
    if (row === undefined || column >= columns) return null;
    const host = grid.hosts[grid.row_first[row]];
    const shown = heatMetric();
    const lines = [shown, ...grid.metrics.filter((metric) => metric !== shown)].map((metric) => `${metric.title}: ${timeText(metric.values[row * columns + column])}`);
    return { row, column, lines: [`${rowText(row)}, ${columnText(column)}`, ...lines, host === null ? null : `host ${page.rank_map.hosts[host]}`] };
  }

  function brush(from, to) {
    const clamp = (value, most) => Math.min(Math.max(value, 0), most);
    const [a, b] = [at(...from), at(...to)];
    const rows = [a.row, b.row].map((row) => clamp(row, order.length - 1)).sort((x, y) => x - y);
    const across = [a.column, b.column].map((column) => clamp(column, columns - 1)).sort((x, y) => x - y);
    const ranks = order.slice(rows[0], rows[1] + 1).flatMap((row) => grid.ranks.slice(grid.row_first[row], grid.row_last[row] + 1));
    const steps = grid.steps.slice(grid.column_first[across[0]], grid.column_last[across[1]] + 1);
    setState({ ranks: ranks.length === grid.ranks.length ? null : ranks.sort((x, y) => x - y), steps: steps.length === grid.steps.length ? null : steps });
  }

  const hasHosts = grid.hosts.some((host) => host !== null) && new Set(grid.hosts).size > 1;
  const sorts = [["rank", "rank"], ...(hasHosts ? [["host", "host"]] : []), ...(grid.metrics.some((metric) => metric.key === "lateness_ns") ? [["lateness", "lateness"]] : []), ["value", "what is shown"]];
  return chart({
    id: "heat", title: "Ranks and steps",
    controls: [
      chooser("Colour by", grid.metrics.map((metric) => [metric.key, metric.title]), heatMetric().key, (key) => setState({ heat: key })),
      chooser("Order by", sorts, state.sort, (key) => setState({ sort: key })),
    ],
    summary: () => heatText(), legend: () => el("div", { class: "scale-row" }, heatScale(extent(heatMetric().values) ?? [0, 0], "ns")),
    height: plan, draw, hit, brush,
    press: (found) => found && setState({ ranks: grid.ranks.slice(grid.row_first[found.row], grid.row_last[found.row] + 1), steps: grid.steps.slice(grid.column_first[found.column], grid.column_last[found.column] + 1) }),
    table: () => heatTable(columns),
  });
}

function heatText() {
  const grid = page.rank_steps;
  const metric = heatMetric();
  const range = extent(metric.values);
  if (!range) return `${metric.title} is not known.`;
  const most = metric.values.indexOf(range[1]);
  const width = grid.column_first.length;
  const where = `${rowText(Math.floor(most / width))} in ${columnText(most % width)}`;
  return `${metric.title}: ${metric.meaning} The most is ${timeText(range[1])}, ${where}. Drag over cells to choose ranks and steps for all charts.${grid.text ? ` ${grid.text}` : ""}`;
}

function heatTable(columns) {
  const grid = page.rank_steps;
  const rows = [];
  for (let row = 0; row < grid.row_first.length; row += 1) {
    if (!isRowChosen(row)) continue;
    for (let column = 0; column < columns; column += 1) if (isColumnChosen(column)) rows.push({ row, column });
  }
  const number = (row) => grid.ranks[grid.row_first[row.row]];
  const step = (row) => grid.steps[grid.column_first[row.column]];
  return {
    rows,
    columns: [
      { key: "rank", label: grid.binned ? "ranks" : "rank", value: number, text: grid.binned ? (row) => rowText(row.row) : undefined },
      { key: "step", label: grid.binned ? "steps" : "step", value: step, text: grid.binned ? (row) => columnText(row.column) : undefined },
      ...grid.metrics.map((metric) => ({ key: metric.key, label: metric.title, unit: "ns", meaning: metric.meaning, value: (row) => metric.values[row.row * columns + row.column] })),
    ],
  };
}

/** Return a canvas with a pixel a cell; where rows share one of `lines`, it has the greatest of them. */
function heatImage(context, metric, order, columns, lines, range) {
  const image = new ImageData(columns, lines);
  const empty = rgbOf(palette.surface);
  const rowsOf = order.length / lines;
  const chosenColumns = Array.from({ length: columns }, (_, column) => isColumnChosen(column));
  const page_ = rgbOf(palette.page);
  for (let line = 0; line < lines; line += 1) {
    const members = order.slice(Math.floor(line * rowsOf), Math.max(Math.floor((line + 1) * rowsOf), Math.floor(line * rowsOf) + 1));
    const isChosen = members.some(isRowChosen);
    for (let column = 0; column < columns; column += 1) {
      let value = null;
      for (const row of members) {
        const each = metric.values[row * columns + column];
        if (each !== null && (value === null || each > value)) value = each;
      }
      let colour = value === null ? empty : heatRgb(shareOf(value, range));
      if (!isChosen || !chosenColumns[column]) colour = colour.map((channel, at) => Math.round(channel * 0.25 + page_[at] * 0.75));
      image.data.set([...colour, 255], (line * columns + column) * 4);
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = lines;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
