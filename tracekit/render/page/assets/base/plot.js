"use strict";
// Charts of uPlot, with this page's fonts and colours.

/**
 * Return a figure that uPlot draws. Besides the options of `chart`:
 *
 *   plot(width)   {options, data} of uPlot
 */
function plotChart(options) {
  let drawn = null;
  return chart({
    ...options,
    build(holder, width) {
      drawn?.destroy();
      holder.replaceChildren();
      const { options: wanted, data } = options.plot(width);
      holder.setAttribute("role", "img");
      holder.setAttribute("aria-label", safeText(`${options.title}. ${options.summary?.() ?? ""} The table below has the numbers.`, 1000));
      drawn = new uPlot({ width, height: 240, legend: { show: false }, ...wanted }, data, holder);
    },
  });
}

/** Return an axis in the page's style. `unit` is that of its values. */
function plotAxis(unit, more) {
  return {
    stroke: () => palette.muted, font: `11px ${FONT}`, labelFont: `11px ${FONT}`, labelSize: 16, size: 62,
    grid: { stroke: () => palette.line, width: 1 }, ticks: { show: false },
    values: (_, places) => {
      const text = tickText(places.filter(isKnown), unit);
      return places.map((place) => (place === null ? "" : text(place)));
    },
    ...more,
  };
}

function logAxis(unit, more) {
  return plotAxis(unit, { values: (_, places) => places.map((place) => (isKnown(place) && Math.abs(Math.log10(place) - Math.round(Math.log10(place))) < 1e-9 ? valueText(place, unit) : "")), ...more });
}

/** Return the length of each step over the ranks: longest, middle and shortest; a press and a drag choose steps. */
function lengthsChart() {
  const grid = page.rank_steps;
  const metric = grid.metrics.find((each) => each.key === "step_ns");
  if (!metric) return null;
  const width = grid.column_first.length;
  const columns = () => grid.column_first.map((_, column) => {
    const values = [];
    for (let row = 0; row < grid.row_first.length; row += 1) {
      if (!isRowChosen(row)) continue;
      const value = metric.values[row * width + column];
      if (value !== null) values.push(value);
    }
    values.sort((a, b) => a - b);
    return { column, step: grid.steps[grid.column_first[column]], least: values[0] ?? null, median: values[values.length >> 1] ?? null, most: values.at(-1) ?? null };
  });
  const text = (place) => (place.most === null ? "" : `${columnText(place.column)}: ${place.least === place.most ? timeText(place.most) : `${timeText(place.least)} to ${timeText(place.most)}`}`);
  const readout = el("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  const figure = plotChart({
    id: "lengths", title: "Length of each step", controls: [readout],
    summary: () => {
      const found = columns();
      const range = extent(found.map((each) => each.most));
      return range ? `Longest and shortest of the ranks, from ${timeText(range[0])} to ${timeText(range[1])}. Drag over steps to choose them.` : "No step was completed.";
    },
    plot: () => {
      const found = columns();
      const line = (label, colour, more) => ({ label, stroke: () => palette[colour], width: 2, points: { show: found.length < 60, size: 6, fill: () => palette[colour] }, ...more });
      return {
        data: [found.map((each) => each.step), found.map((each) => each.most), found.map((each) => each.least)],
        options: {
          height: 200, scales: { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.08 || 1] } },
          axes: [plotAxis("", { label: "step", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], size: 28 }), plotAxis("ns")],
          series: [{}, line("longest", "delay"), line("shortest", "compute", { dash: [6, 4] })],
          cursor: { drag: { x: true, y: false, setScale: false }, y: false },
          hooks: {
            setCursor: [(plot) => (readout.textContent = plot.cursor.idx === null || plot.cursor.idx === undefined ? "\u00a0" : text(found[plot.cursor.idx]))],
            setSelect: [(plot) => {
              if (plot.select.width < 3) return;
              const [from, to] = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
              const steps = grid.steps.filter((step) => step >= from && step <= to);
              if (steps.length) setState({ steps: steps.length === grid.steps.length ? null : steps });
            }],
            drawClear: [(plot) => shadeSteps(plot)],
          },
        },
      };
    },
    legend: () => el("ul", { class: "legend" }, el("li", {}, el("span", { class: "line-sample longest" }), "Longest of the ranks"), el("li", {}, el("span", { class: "line-sample shortest" }), "Shortest")),
    table: () => ({
      rows: columns(),
      columns: [{ key: "step", label: "step", value: (each) => each.step, text: grid.binned ? (each) => columnText(each.column) : undefined }, { key: "least", label: "shortest", unit: "ns" }, { key: "median", label: "median", unit: "ns" }, { key: "most", label: "longest", unit: "ns" }],
    }),
  });
  return figure;
}

function shadeSteps(plot) {
  if (state.steps === null) return;
  const [first, last] = [state.steps[0], state.steps.at(-1)];
  const left = plot.valToPos(first - 0.3, "x", true);
  const right = plot.valToPos(last + 0.3, "x", true);
  plot.ctx.save();
  plot.ctx.globalAlpha = 0.15;
  plot.ctx.fillStyle = palette.accent;
  plot.ctx.fillRect(left, plot.bbox.top, right - left, plot.bbox.height);
  plot.ctx.restore();
}
