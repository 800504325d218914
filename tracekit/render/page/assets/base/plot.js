// Charts of points over an axis.

const PLOT = { left: 66, right: 14, top: 8, bottom: 210, label: 30, near: 40 };

/**
 * Return a figure of points over an axis. Besides the options of `chart`:
 *
 *   points()    [{x, y: values, lines: texts of the tooltip, ...}], in the order of x
 *   x, y        {unit, range(points), label} of the axes
 *   isLog       whether both are logarithmic
 *   paint(pen, points, toX, toY)   draws the points; toX and toY return pixels
 *   choose(from, to)               a drag chose this range of x
 */
function plotChart(options) {
  const { x, y, isLog } = options;
  let place = null;
  return chart({
    ...options,
    height(width) {
      const points = options.points();
      const [across, up] = [x, y].map((axis) => axis.range(points));
      place = { points, across, up, toX: toPixels(across, PLOT.left, width - PLOT.right, isLog), toY: toPixels(up, PLOT.bottom, PLOT.top, isLog) };
      return PLOT.bottom + PLOT.label + 10;
    },
    draw(pen) {
      const { points, across, up, toX, toY } = place;
      bottomAxis(pen, toX, ...across, PLOT.bottom, x.unit, isLog);
      pen.small(x.label, (PLOT.left + pen.width) / 2, PLOT.bottom + PLOT.label, "center");
      for (const [at, label] of axisPlaces(...up, 5, y.unit, isLog)) {
        pen.line(PLOT.left, toY(at), pen.width, toY(at));
        pen.small(label, PLOT.left - 8, toY(at), "right");
      }
      options.paint(pen, points, toX, toY);
    },
    hit(left, top) {
      const distance = (point) => Math.hypot(place.toX(point.x) - left, Math.min(...point.y.map((value) => Math.abs(place.toY(value) - top))));
      const [nearest] = [...place.points].sort((a, b) => distance(a) - distance(b));
      return nearest && distance(nearest) < PLOT.near ? nearest : null;
    },
    brush: options.choose && (([from], [to]) => {
      const [low, high] = [Math.min(from, to), Math.max(from, to)];
      options.choose(place.points.filter((point) => place.toX(point.x) >= low && place.toX(point.x) <= high));
    }),
  });
}

/** Return what maps the values from `least` to `most` to the pixels between two ends. */
function toPixels([least, most], from, to, isLog = false) {
  const scaled = isLog ? (value) => Math.log(Math.max(value, least)) : (value) => value;
  return (value) => from + ((scaled(value) - scaled(least)) / (scaled(most) - scaled(least) || 1)) * (to - from);
}

/** Draw a line through values that may be unknown, with a dot on each where there is room. */
function drawSeries(pen, points, valueOf, toX, toY, { colour, dash = [], width = 2 }) {
  const { context } = pen;
  const known = points.map((point) => [point.x, valueOf(point)]);
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  known.forEach(([x, value], at) => isKnown(value) && context[isKnown(known[at - 1]?.[1]) ? "lineTo" : "moveTo"](toX(x), toY(value)));
  context.stroke();
  context.setLineDash([]);
  if (points.length < 60) for (const [x, value] of known) if (isKnown(value)) drawPoint(context, 0, toX(x), toY(value), 3);
}
