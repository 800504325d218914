"use strict";
// All ranks at their places of the mesh, coloured by a number. The groups of the rank under the pointer are outlined.

const MAP = { least: 3, most: 46, gap: 1, block: 8, label: 12 };

/** Return the section with the map of the ranks. */
function ranksSection() {
  return section("ranks", "Ranks, by the mesh", [rankMapChart()]);
}

/** Return the index of each rank in the layout: {columns, rows, places: [[column, row] of each rank], blocks, caption}. */
function mapLayout(width) {
  const map = page.rank_map;
  const of = (place) => map.dimensions.map((dimension, at) => ({ ...dimension, at })).filter((dimension) => dimension.place === place);
  const [outerRows, outerColumns, inside] = [of("row"), of("column"), of("inside")];
  const size = (dimensions) => dimensions.reduce((product, dimension) => product * dimension.size, 1);
  const index = (dimensions, rank) => dimensions.reduce((sum, dimension) => (sum === null || map.coordinates[dimension.at][rank] === null ? null : sum * dimension.size + map.coordinates[dimension.at][rank]), 0);
  const insideSize = size(inside);
  const insideColumns = inside.length > 1 ? inside.at(-1).size : squareWidth(insideSize);
  const insideRows = Math.ceil(insideSize / insideColumns);
  let blockColumns = size(outerColumns);
  let blockRows = size(outerRows);
  const isWrapped = outerColumns.length === 0;
  if (isWrapped) {
    blockColumns = wrapWidth(blockRows, insideColumns, insideRows, width);
    blockRows = Math.ceil(blockRows / blockColumns);
  }
  const outside = [];
  const places = map.ranks.map((_, rank) => {
    const [row, column, inner] = [index(outerRows, rank), index(outerColumns, rank), index(inside, rank)];
    if (row === null || column === null || inner === null) {
      outside.push(rank);
      return null;
    }
    const [blockColumn, blockRow] = isWrapped ? [row % blockColumns, Math.floor(row / blockColumns)] : [column, row];
    return { blockColumn, blockRow, x: inner % insideColumns, y: Math.floor(inner / insideColumns) };
  });
  const hasBlocks = insideSize > 1 && blockColumns * blockRows > 1;
  const gap = hasBlocks ? MAP.block : 0;
  const left = !isWrapped && blockRows > 1 ? 54 : 0;
  const top = !isWrapped && blockColumns > 1 ? 18 : 0;
  const cell = Math.min(Math.max((width - left - (blockColumns - 1) * gap) / (blockColumns * insideColumns), MAP.least), MAP.most);
  const blockWidth = cell * insideColumns + gap;
  const blockHeight = cell * insideRows + gap;
  const perLine = Math.max(1, Math.floor((width - left) / cell));
  const bottom = top + blockRows * blockHeight;
  const box = (rank) => {
    const place = places[rank];
    if (place) return [left + place.blockColumn * blockWidth + place.x * cell, top + place.blockRow * blockHeight + place.y * cell];
    const at = outside.indexOf(rank);
    return [left + (at % perLine) * cell, bottom + 22 + Math.floor(at / perLine) * cell];
  };
  const boxes = map.ranks.map((_, rank) => box(rank));
  const height = bottom + (outside.length ? 26 + Math.ceil(outside.length / perLine) * cell : 0);
  return { cell, boxes, height, left, top, bottom, blockWidth, blockHeight, blockColumns, blockRows, isWrapped, outerRows, outerColumns, hasOutside: outside.length > 0 };
}

/** Return the width of the squarest box of whole rows for so many cells. */
function squareWidth(count) {
  for (let width = Math.ceil(Math.sqrt(count)); width <= count; width += 1) if (count % width === 0) return width;
  return count;
}

/** Return how many blocks stand beside each other, so that the map is about twice as wide as high and rows end evenly. */
function wrapWidth(blocks, columns, rows, width) {
  const room = Math.max(1, Math.floor(width / (columns * 14)));
  const wanted = Math.min(Math.max(1, Math.ceil(Math.sqrt((blocks * rows * 2.5) / columns))), room, blocks);
  for (let each = wanted; each > wanted / 2; each -= 1) if (blocks % each === 0) return each;
  return wanted;
}

function mapMetric() {
  const { metrics } = page.rank_map;
  return metrics.find((metric) => metric.key === state.map) ?? metrics[0];
}

function rankMapChart() {
  const map = page.rank_map;
  let layout = null;
  let hovered = null;
  const caption = () => map.dimensions.map((dimension) => `${dimension.name} ${dimension.size}`).join(" × ");
  const layoutText = { mesh: `Laid out by the mesh ${caption()}`, hosts: "Laid out by host", ranks: "In order of rank; no mesh was recorded" }[map.source];

  function draw(pen) {
    const metric = mapMetric();
    const range = metric ? extent(metric.values) : null;
    const { cell, boxes } = layout;
    const blamed = new Set(result.findings[state.finding]?.ranks ?? []);
    const mates = hovered === null ? null : matesOf(hovered);
    const inner = Math.max(cell - MAP.gap, 1);
    layoutLabels(pen, layout);
    boxes.forEach(([x, y], place) => {
      const rank = map.ranks[place];
      const value = metric?.values[place] ?? null;
      const faded = !isRankChosen(rank);
      pen.context.globalAlpha = faded ? 0.22 : 1;
      const share = value === null ? null : shareOf(value, range, metric.worse);
      if (map.state[place] === "missing" || map.state[place] === "unmeasured") pen.box(x, y, inner, inner, { part: "idle" });
      else pen.box(x, y, inner, inner, { colour: share === null ? palette.surface : `rgb(${heatRgb(share)})`, outline: share === null ? palette.line : null });
      if (cell >= 24) {
        const missing = map.state[place] === "missing" ? "×" : "";
        pen.text(`${rank}${missing}`, x + inner / 2, y + inner / 2 + 0.5, { size: cell >= 34 ? 11 : 10, align: "center", colour: share === null ? palette.muted : inkOn(heatRgb(share)) });
      }
      pen.context.globalAlpha = 1;
      if (blamed.has(rank) && blamed.size < map.ranks.length) markBlamed(pen, x, y, inner);
      if (mates?.has(rank)) pen.box(x - 1, y - 1, inner + 2, inner + 2, { outline: palette.accent });
    });
    if (hovered !== null) {
      const [x, y] = boxes[hovered];
      pen.context.lineWidth = 2;
      pen.box(x - 1.5, y - 1.5, inner + 3, inner + 3, { outline: palette.ink });
      pen.context.lineWidth = 1;
    }
  }

  /** Return the ranks that share a group with a rank, of each group but that of all ranks. */
  function matesOf(place) {
    const ids = map.groups[place] ?? [];
    return new Set(ids.flatMap((id) => (Array.isArray(result.groups[id]?.ranks) ? result.groups[id].ranks : [])));
  }

  function hit(x, y) {
    const { cell, boxes } = layout;
    const place = boxes.findIndex(([left, top]) => x >= left && x < left + cell && y >= top && y < top + cell);
    if (place !== hovered && !(place < 0 && hovered === null)) {
      hovered = place < 0 ? null : place;
      redraw(charts.get("rank-map"));
    }
    if (place < 0) return null;
    const metric = mapMetric();
    const at = map.dimensions.map((dimension, index) => (map.coordinates[index][place] === null ? null : `${dimension.name} ${map.coordinates[index][place]}`)).filter(Boolean);
    const ids = map.groups[place] ?? [];
    return {
      rank: map.ranks[place],
      lines: [
        `Rank ${map.ranks[place]}${map.state[place] === "present" ? "" : `, ${map.state[place]}`}`,
        metric ? `${metric.title}: ${valueText(metric.values[place], metric.unit)}` : null,
        map.source === "mesh" ? at.join(", ") : null,
        map.host[place] === null ? null : `host ${map.hosts[map.host[place]]}`,
        ...ids.slice(0, 6).map((id) => `group ${groupText(id)}`),
      ],
    };
  }

  const metrics = map.metrics.map((metric) => [metric.key, metric.title]);
  return chart({
    id: "rank-map", title: "Rank map",
    controls: metrics.length ? [chooser("Colour by", metrics, state.map ?? metrics[0][0], (key) => setState({ map: key }))] : [],
    summary: () => mapText(layoutText),
    legend: () => mapLegend(),
    height: (width) => (layout = mapLayout(width)).height,
    draw, hit,
    leave: () => { if (hovered !== null) { hovered = null; redraw(charts.get("rank-map")); } },
    press: (found) => setState({ ranks: found ? [found.rank] : null }),
    table: () => ({
      rows: map.ranks.map((rank, place) => ({ rank, place })).filter((row) => isRankChosen(row.rank)),
      columns: [
        { key: "rank", label: "rank" }, { key: "state", label: "state", text: (row) => map.state[row.place], value: (row) => map.state[row.place] },
        ...map.dimensions.filter((dimension) => map.source !== "ranks").map((dimension) => ({ key: "index", label: dimension.name, value: (row) => map.coordinates[map.dimensions.indexOf(dimension)][row.place] })),
        ...(map.hosts.length ? [{ key: "host", label: "host", value: (row) => (map.host[row.place] === null ? null : map.hosts[map.host[row.place]]) }] : []),
        ...map.metrics.map((metric) => ({ key: metric.key, label: metric.title, unit: metric.unit, meaning: metric.meaning, value: (row) => metric.values[row.place] })),
      ],
    }),
  });
}

function mapText(layoutText) {
  const metric = mapMetric();
  if (!metric) return `${layoutText}.`;
  const range = extent(metric.values);
  if (!range) return `${layoutText}. ${metric.title} is not known.`;
  const low = page.rank_map.ranks[metric.values.indexOf(range[0])];
  const high = page.rank_map.ranks[metric.values.indexOf(range[1])];
  const spread = range[0] === range[1] ? `${valueText(range[0], metric.unit)} on every rank` : `from ${valueText(range[0], metric.unit)} (rank ${low}) to ${valueText(range[1], metric.unit)} (rank ${high})`;
  return `${layoutText}. ${metric.title}: ${spread}. ${metric.meaning}`;
}

function mapLegend() {
  const metric = mapMetric();
  const range = metric ? extent(metric.values) : null;
  const items = [];
  if (range) items.push(heatScale(range, metric.unit, metric.worse));
  if (page.rank_map.state.some((each) => each === "missing" || each === "unmeasured")) items.push(el("span", { class: "key" }, swatch("idle"), "missing, or without device records"));
  if ((result.findings[state.finding]?.ranks ?? []).length) items.push(el("span", { class: "key" }, el("span", { class: "blamed-sample" }), `named by finding ${state.finding + 1}`));
  return el("div", { class: "scale-row" }, items);
}

/** Return the scale of a heat map: its colours, with the least and the greatest value. */
function heatScale(range, unit, worse = "high") {
  const canvas = el("canvas", { class: "scale", "aria-hidden": "true" });
  canvas.width = 120;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let x = 0; x < 120; x += 1) {
    context.fillStyle = `rgb(${heatRgb(worse === "low" ? 1 - x / 119 : x / 119)})`;
    context.fillRect(x, 0, 1, 1);
  }
  return el("span", { class: "key" }, valueText(range[0], unit), canvas, valueText(range[1], unit));
}

/** Return where a value is on the scale, from 0 to 1 (what stands out). */
function shareOf(value, range, worse = "high") {
  const share = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 0;
  return worse === "low" ? 1 - share : share;
}

/** Return black or white, whichever can be read on a colour. */
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

function markBlamed(pen, x, y, size) {
  const { context } = pen;
  context.lineWidth = size >= 12 ? 2 : 1;
  pen.box(x, y, size, size, { outline: palette.delay });
  context.lineWidth = 1;
  const corner = Math.min(size * 0.4, 9);
  context.fillStyle = palette.delay;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + corner, y);
  context.lineTo(x, y + corner);
  context.fill();
}

/** Write the coordinates of the outer dimensions beside the rows and above the columns. */
function layoutLabels(pen, layout) {
  const { outerRows, outerColumns, blockWidth, blockHeight, blockColumns, blockRows, left, top, bottom } = layout;
  const name = (dimensions, at) => {
    const parts = [];
    for (const dimension of [...dimensions].reverse()) {
      parts.unshift(`${dimension.name} ${at % dimension.size}`);
      at = Math.floor(at / dimension.size);
    }
    return parts.join(" ");
  };
  const each = (count, room, least) => Math.max(1, Math.ceil(least / room));
  if (left) {
    const spacing = each(blockRows, blockHeight, 14);
    for (let row = 0; row < blockRows; row += spacing) pen.text(name(outerRows, row), 0, top + row * blockHeight + Math.max(layout.cell / 2, 5), { size: 11, colour: palette.muted, most: left - 4 });
  }
  if (top) {
    const spacing = each(blockColumns, blockWidth, pen.widthOf(name(outerColumns, blockColumns - 1), 11) + 10);
    for (let column = 0; column < blockColumns; column += spacing) pen.text(name(outerColumns, column), left + column * blockWidth, 7, { size: 11, colour: palette.muted });
  }
  if (layout.hasOutside) pen.text("Outside of the mesh", left, bottom + 12, { size: 11, colour: palette.muted });
}
