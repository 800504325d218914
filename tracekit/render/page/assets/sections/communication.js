"use strict";
// Communication: by kind, group and phase; how far apart ranks arrive; bandwidth by size; who sends to whom.

const MOST_ROWS = 14;
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
const SHAPE_COLOURS = ["compute", "communication", "bubble", "copy", "delay", "other"];

/** Return the section on communication, or null without any. */
function communicationSection() {
  const hasAny = (result.communication ?? []).length || page.pairs || page.skew.length;
  if (!hasAny) return null;
  return section("communication", "Communication", [
    dimensionsChart(), kindsChart(), page.skew.length ? skewChart() : null, page.bandwidth.length ? bandwidthChart() : null,
    page.communication_reason ? el("p", { class: "remark" }, `Collectives are not compared over ranks: ${page.communication_reason}.`) : null,
    page.pairs?.source.length ? pairsChart() : null,
  ]);
}

/** Return the dimensions and phases that communication can be filtered by. */
function communicationChoices() {
  const rows = result.communication ?? [];
  const names = (values) => [...new Set(values)].filter(Boolean).sort();
  return { dimensions: names(rows.map((row) => dimensionOf(row.group))), phases: names(rows.map((row) => row.phase)) };
}

function isCommunicationChosen(row) {
  return (state.dimension === null || dimensionOf(row.group) === state.dimension) && (state.phase === null || !("phase" in row) || row.phase === state.phase);
}

function stepsOfChosenRanks() {
  return (result.ranks ?? []).reduce((sum, row) => sum + (isRankChosen(row.rank) ? row.steps : 0), 0) || 1;
}

/** Return the mean a step of each kind, dimension and phase over the chosen ranks, the longest first. */
function communicationMeans() {
  const steps = stepsOfChosenRanks();
  const sums = new Map();
  for (const row of result.communication) {
    if (!isRankChosen(row.rank) || !isCommunicationChosen(row)) continue;
    const dimension = dimensionOf(row.group);
    const key = [row.kind, dimension, row.phase].join("\u0000");
    if (!sums.has(key)) sums.set(key, { kind: row.kind, dimension, phase: row.phase, count: 0, size_bytes: 0, total_ns: 0, exposed_ns: 0 });
    const sum = sums.get(key);
    for (const part of ["count", "total_ns", "exposed_ns"]) sum[part] += row[part] / steps;
    sum.size_bytes = row.size_bytes === null || sum.size_bytes === null ? null : sum.size_bytes + row.size_bytes / steps;
  }
  return [...sums.values()].sort((a, b) => b.total_ns - a.total_ns);
}

const chosenRanksText = () => (state.ranks ? ranksText(state.ranks) : "all ranks");

function kindsChart() {
  if (!(result.communication ?? []).length) return null;
  return barChart({
    id: "kinds", title: "Time by kind, dimension and phase", unit: "ns",
    summary: () => `Mean a step of ${chosenRanksText()}. Exposed is what no compute covers. Rows may overlap.`,
    legend: () => legend(["exposed_comm", "overlapped_comm"], { exposed_comm: "Exposed, with waiting" }),
    rows: () => communicationMeans().slice(0, MOST_ROWS).map((row) => ({
      label: row.kind, note: [row.dimension, row.phase].filter(Boolean).join(", "), ends: timeText(row.total_ns),
      segments: stacked([["exposed_comm", row.exposed_ns, `exposed ${timeText(row.exposed_ns)}`], ["overlapped_comm", Math.max(row.total_ns - row.exposed_ns, 0), `covered ${timeText(row.total_ns - row.exposed_ns)}`]]),
    })),
    table: () => ({ rows: communicationMeans(), columns: ["kind", "dimension", "phase", "count=count a step", "size_bytes=size a step", "total_ns=time a step", "exposed_ns=exposed a step"] }),
  });
}

function dimensionsChart() {
  const rows = result.dimensions_by_name ?? [];
  if (rows.length < 2) return null;
  return barChart({
    id: "dimensions", title: "What each dimension of the mesh costs", unit: "ns",
    summary: () => "Mean time a step that ranks wait for the communication of each dimension.",
    rows: () => rows.map((row) => ({
      label: row.dimension ?? "unknown", strong: row.dimension === state.dimension, name: row.dimension, ends: `${timeText(row.charged_ns)}  ${percentText(row.share)}`,
      segments: [{ part: "exposed_comm", from: 0, to: row.charged_ns }],
    })),
    press: (row) => setState({ dimension: row.name === state.dimension ? null : row.name }),
    table: () => ({ rows, columns: resultColumns("dimensions_by_name", rows) }),
  });
}

function collectiveText(row) {
  return `${row.kind} in ${groupText(row.group)}`;
}

function shownCollectives(list) {
  return list.map((each) => ({ ...each, of: result.collectives[each.row] })).filter(({ of }) => of && isCommunicationChosen(of) && (state.ranks === null || state.ranks.some((rank) => isInGroup(rank, of.group))));
}

function skewChart() {
  const shown = () => shownCollectives(page.skew).sort((a, b) => b.quantiles_ns[3] - a.quantiles_ns[3]);
  return barChart({
    id: "skew", title: "How far apart ranks arrive", unit: "ns", isLog: true,
    summary: () => "The distribution, over instances of a collective, of the time from its first to its last arrival; the line is the median. Ranks that came early wait that long.",
    rows: () => shown().slice(0, MOST_ROWS).map(({ quantiles_ns, edges_ns, counts, of }) => {
      const most = Math.max(...counts);
      return {
        label: `${of.kind}${of.size_bytes === null ? "" : `, ${bytesText(of.size_bytes)}`}`, note: groupText(of.group), ends: timeText(quantiles_ns[3]),
        segments: counts.flatMap((count, bin) => (count ? [{ part: "wait", from: edges_ns[bin], to: edges_ns[bin + 1], tall: 0.15 + (0.85 * count) / most, text: `${countText(count, "instance")} of ${timeText(edges_ns[bin])} to ${timeText(edges_ns[bin + 1])}` }] : [])),
        marks: [{ at: quantiles_ns[3], text: `median ${timeText(quantiles_ns[3])}, longest ${timeText(quantiles_ns[6])}` }],
      };
    }),
    table: () => ({
      rows: shown(),
      columns: [
        { key: "kind", label: "collective", value: ({ of }) => collectiveText(of) }, { key: "size_bytes", label: "size", value: ({ of }) => of.size_bytes }, { key: "count", label: "instances", value: ({ of }) => of.count },
        ...["least", "5 %", "25 %", "median", "75 %", "95 %", "most"].map((label, at) => ({ key: "skew_ns", label, value: (row) => row.quantiles_ns[at] })), "error_ns=clocks' error",
      ],
    }),
  });
}

function bandwidthChart() {
  const readout = el("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  const shown = () => shownCollectives(page.bandwidth).filter((point) => point.size_bytes > 0 && point.busbw_bps > 0).sort((a, b) => a.size_bytes - b.size_bytes);
  const kinds = [...new Set(page.bandwidth.map((point) => result.collectives[point.row]?.kind))].filter(Boolean);
  const style = (point) => kinds.indexOf(point.of.kind);
  const text = (point) => `${collectiveText(point.of)}, ${bytesText(point.size_bytes)}: ${bandwidthText(point.busbw_bps)}${point.ceiling_bps ? `, ${percentText(point.busbw_bps / point.ceiling_bps)} of ${bandwidthText(point.ceiling_bps)} (${point.ceiling_source})` : ""}`;
  return plotChart({
    id: "bandwidth", title: "Bandwidth by size", controls: [readout],
    summary: () => `Bus bandwidth of each collective at its median time; the line spans from the slowest to the fastest tenth of its instances. ${page.bandwidth.some((point) => point.ceiling_bps) ? "A dash above is what the idle link reaches." : "What the links can reach is not known: tracekit links measures it."}`,
    legend: () => el("ul", { class: "legend" }, kinds.map((kind, at) => el("li", {}, shapeSample(at), kind))),
    plot: () => {
      const points = shown();
      const values = points.flatMap((point) => [point.low_bps, point.high_bps, point.ceiling_bps]).filter((value) => value > 0);
      const range = ([low, high]) => [low / 2, high * 2];
      return {
        data: [points.map((point) => point.size_bytes), points.map((point) => point.busbw_bps)],
        options: {
          height: 280, scales: { x: { time: false, distr: 3, range: range(extent(points.map((point) => point.size_bytes)) ?? [1, 10]) }, y: { distr: 3, range: range(extent(values) ?? [1, 10]) } },
          axes: [logAxis("bytes", { label: "size of the full array", size: 30 }), logAxis("B/s", { size: 70 })],
          series: [{}, { paths: () => null, points: { show: false } }], cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
          hooks: {
            setCursor: [(plot) => (readout.textContent = isKnown(plot.cursor.idx) && points[plot.cursor.idx] ? safeText(text(points[plot.cursor.idx])) : "\u00a0")],
            draw: [(plot) => points.forEach((point) => drawBandwidth(plot, point, style(point)))],
          },
        },
      };
    },
    table: () => ({
      rows: shown(),
      columns: [{ key: "kind", label: "collective", value: ({ of }) => collectiveText(of) }, "size_bytes=size", "busbw_bps=bus bandwidth", "low_bps=slowest tenth", "high_bps=fastest tenth", "ceiling_bps=of the idle link", "ceiling_source=source"],
    }),
  });
}

function drawBandwidth(plot, point, style) {
  const context = plot.ctx;
  const scale = window.devicePixelRatio || 1;
  const x = plot.valToPos(point.size_bytes, "x", true);
  const y = (value) => plot.valToPos(value, "y", true);
  context.save();
  context.strokeStyle = context.fillStyle = palette[SHAPE_COLOURS[style % SHAPE_COLOURS.length]];
  context.lineWidth = 1.5 * scale;
  const line = (x0, y0, x1, y1) => (context.beginPath(), context.moveTo(x0, y0), context.lineTo(x1, y1), context.stroke());
  if (point.low_bps > 0) line(x, y(point.low_bps), x, y(point.high_bps));
  if (point.ceiling_bps) line(x - 7 * scale, y(point.ceiling_bps), x + 7 * scale, y(point.ceiling_bps));
  drawShape(context, style, x, y(point.busbw_bps), 4.5 * scale);
  context.restore();
}

function drawShape(context, style, x, y, size) {
  const shape = SHAPES[style % SHAPES.length];
  const corners = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], triangle: [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]], diamond: [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]], cross: [[-1, -0.35], [-0.35, -0.35], [-0.35, -1], [0.35, -1], [0.35, -0.35], [1, -0.35], [1, 0.35], [0.35, 0.35], [0.35, 1], [-0.35, 1], [-0.35, 0.35], [-1, 0.35]] }[shape];
  context.beginPath();
  if (!corners) context.arc(x, y, size, 0, 2 * Math.PI);
  else corners.forEach(([dx, dy]) => context.lineTo(x + dx * size, y + dy * size));
  context.closePath();
  context.fill();
}

function shapeSample(style) {
  const canvas = el("canvas", { class: "swatch", "aria-hidden": "true" });
  canvas.width = canvas.height = 28;
  const context = canvas.getContext("2d");
  context.fillStyle = palette[SHAPE_COLOURS[style % SHAPE_COLOURS.length]];
  drawShape(context, style, 14, 14, 9);
  return canvas;
}

function pairsChart() {
  const { pairs } = page;
  const metrics = [["size_bytes", "size", "bytes"], ["count", "messages", ""], ["mean_bps", "bandwidth", "B/s"], ["transfer_ns", "transfer time", "ns"]].filter(([key]) => pairs[key].some(isKnown));
  const metric = () => metrics.find(([key]) => key === state.pairs) ?? metrics[0];
  const ends = [...new Set([...pairs.source, ...pairs.destination])].sort((a, b) => a - b);
  const placeOf = new Map(ends.map((rank, place) => [rank, place]));
  const cellText = (rank) => (pairs.ranks_per_cell > 1 ? `ranks ${rank}-${rank + pairs.ranks_per_cell - 1}` : `rank ${rank}`);
  const isShown = (at) => isRankChosen(pairs.source[at]) || isRankChosen(pairs.destination[at]);
  const label = 46;
  let cell = 1;
  const at = (x, y) => pairs.source.findIndex((source, index) => placeOf.get(pairs.destination[index]) === Math.floor((x - label) / cell) && placeOf.get(source) === Math.floor((y - 20) / cell));
  return chart({
    id: "pairs", title: "Messages from rank to rank",
    controls: [chooser("Colour by", metrics.map(([key, name]) => [key, name]), metric()[0], (key) => setState({ pairs: key }))],
    summary: () => `A row is the sender, a column the receiver. ${countText(pairs.source.length, "pair")} exchanged messages.`,
    legend: () => el("div", { class: "scale-row" }, heatScale(extent(pairs[metric()[0]]) ?? [0, 0], metric()[2])),
    height: (width) => (cell = Math.min(Math.max((Math.min(width, 620) - label) / ends.length, 1), 34)) * ends.length + 24,
    draw(pen) {
      const values = pairs[metric()[0]];
      const range = extent(values) ?? [0, 1];
      const side = cell * ends.length;
      pen.box(label, 20, side, side, { colour: palette.surface, outline: palette.line });
      const every = Math.ceil(28 / cell);
      ends.forEach((rank, place) => {
        if (place % every) return;
        pen.text(String(rank), label - 6, 20 + (place + 0.5) * cell, { size: 11, align: "right", colour: palette.muted });
        pen.text(String(rank), label + (place + 0.5) * cell, 10, { size: 11, align: "center", colour: palette.muted });
      });
      pairs.source.forEach((source, index) => {
        pen.context.globalAlpha = isShown(index) ? 1 : 0.2;
        const value = values[index];
        pen.box(label + placeOf.get(pairs.destination[index]) * cell, 20 + placeOf.get(source) * cell, Math.max(cell - 1, 1), Math.max(cell - 1, 1), value === null ? { part: "idle" } : { colour: `rgb(${heatRgb(0.15 + 0.85 * shareOf(value, range))})` });
      });
      pen.context.globalAlpha = 1;
    },
    hit(x, y) {
      const index = at(x, y);
      if (index < 0) return null;
      return { lines: [`${cellText(pairs.source[index])} to ${cellText(pairs.destination[index])}`, ...metrics.map(([key, name, unit]) => `${name}: ${valueText(pairs[key][index], unit)}`)] };
    },
    table: () => ({
      rows: pairs.source.map((_, index) => index).filter(isShown),
      columns: ["source", "destination"].map((key) => ({ key, label: key, value: (index) => pairs[key][index] })).concat(metrics.map(([key, name, unit]) => ({ key, label: name, unit, value: (index) => pairs[key][index] }))),
    }),
  });
}
