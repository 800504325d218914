// Charts of uPlot, with this page's fonts and colours.

/**
 * Return a figure that uPlot draws. Besides the options of `chart`:
 *
 *   plot()      {options, data} of uPlot
 *   readout(at) what is said of the point under the pointer, its place in the data
 */
function plotChart(options) {
  const readout = el("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  let drawn = null;
  const say = (plot) => (readout.textContent = isKnown(plot.cursor.idx) ? safeText(options.readout(plot.cursor.idx), 200) : "\u00a0");
  return chart({
    ...options, controls: [readout],
    build(holder, width, spoken) {
      drawn?.destroy();
      holder.setAttribute("role", "img");
      holder.setAttribute("aria-label", spoken);
      const { data, options: { hooks, ...wanted } } = options.plot();
      drawn = new uPlot({ width, height: 240, legend: { show: false }, ...wanted, hooks: { ...hooks, setCursor: [say] } }, data, holder);
    },
  });
}

/** Return an axis in the page's style. `unit` is that of its values. */
function plotAxis(unit, more) {
  return {
    stroke: () => palette.muted, font: `11px ${FONT}`, labelFont: `11px ${FONT}`, labelSize: 16, size: 66,
    grid: { stroke: () => palette.line, width: 1 }, ticks: { show: false },
    values: (_, places) => places.map(tickText(places, unit)),
    ...more,
  };
}

/** Return a logarithmic axis from `least` to `most`. */
function logAxis(unit, [least, most], more) {
  return plotAxis(unit, { splits: () => powers(least, most), filter: (_, places) => places, values: (_, places) => places.map((place) => tickText([place], unit)(place)), ...more });
}
