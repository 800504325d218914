// A chart: a title, a sentence that says what it shows, a canvas, and the same numbers as a table.
//
// A chart is drawn when it comes near the window, and again when the state, the theme or its width changes.

const charts = new Map();
let openCharts = null; // ids of those that are open at first; of the others one line is shown. null: all are open
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const tooltip = el("div", { class: "tooltip", hidden: true });

/**
 * Return a figure.
 *
 *   id, title
 *   summary()      a sentence: what the chart shows now; it is also the canvas's text for screen readers
 *   follows        which parts of the filter it obeys; where the others are set, it says that they do not hold here
 *   controls       elements above the canvas
 *   legend()       an element below the summary, or null
 *   height(width, pen)   height of the canvas in CSS pixels
 *   draw(pen)      draws it
 *   hit(x, y)      what is there: {lines: [text], ...} or null
 *   leave(), press(hit), brush(from, to)   the pointer left; pressed; dragged from one point to another
 *   build(holder, width, spoken)  instead of a canvas: fills the holder, and gives it the text for screen readers
 *   table()        {columns, rows}, of what is shown
 */
function chart(options) {
  const canvas = options.build ? null : el("canvas", { role: "img" });
  const holder = el("div", { class: "canvas" }, canvas);
  const summary = el("p", { class: "summary" });
  const keys = el("div", { class: "keys" });
  const table = twin("Table, PNG, SVG, CSV", options.title, options.table, ["png", "svg"].map((kind) => [kind, () => saveChart(self, kind)]));
  const [title, controls, body] = [el("h3", null, options.title), el("div", { class: "controls" }, options.controls ?? []), [summary, keys, holder, table]];
  const isFolded = openCharts !== null && !openCharts.has(options.id);
  const line = el("span", { class: "quiet" });
  const fold = isFolded ? el("details", { class: "fold", on: { toggle: () => drawChart(self) } }, el("summary", null, title, line), controls, body) : null;
  const figure = el("figure", { id: options.id }, fold ?? [el("figcaption", null, title, controls), ...body]);
  const self = { options, holder, canvas, summary, keys, table, fold, line, isStale: true, isNear: false, width: 0, pen: null };
  charts.set(options.id, self);
  if (canvas) listenToPointer(self);
  nearness.observe(figure);
  widths.observe(holder);
  return figure;
}

const nearness = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const self = charts.get(entry.target.id);
    self.isNear = entry.isIntersecting;
    if (self.isNear && self.isStale) drawChart(self);
  }
}, { rootMargin: "300px" });

const widths = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const self = charts.get(entry.target.closest("figure").id);
    if (Math.abs(entry.contentRect.width - self.width) < 1) continue;
    self.isStale = true;
    if (self.isNear) drawChart(self);
  }
});

/** Draw all charts again: those near the window now, the others when they come near. */
function drawCharts(everything = false) {
  for (const self of charts.values()) {
    self.isStale = true;
    if (self.isNear || everything) drawChart(self);
  }
}

function drawChart(self) {
  const { options, canvas, holder } = self;
  self.isStale = false;
  self.width = holder.clientWidth;
  const ignored = Object.keys(FILTERS).filter((key) => state[key] !== null && !options.follows?.includes(key));
  const shown = safeText(`${options.summary()}${ignored.length ? ` Not filtered by ${ignored.map((key) => FILTERS[key]).join(", ")}.` : ""}`);
  const spoken = safeText(`${options.title}. ${shown} The table below has the numbers.`);
  self.summary.textContent = shown;
  [self.line.textContent] = shown.split(/(?<=\.) /);
  if (self.fold && !self.fold.open) {
    self.isStale = true;
    return;
  }
  self.keys.replaceChildren(...[options.legend?.()].filter(Boolean));
  self.table.refresh();
  if (options.build) {
    options.build(holder, self.width, spoken);
    return;
  }
  const scale = pixelRatio();
  const context = canvas.getContext("2d");
  const pen = new Pen(context, self.width);
  pen.height = Math.ceil(options.height(self.width, pen));
  canvas.width = Math.round(self.width * scale);
  canvas.height = Math.round(pen.height * scale);
  canvas.style.width = `${self.width}px`;
  canvas.style.height = `${pen.height}px`;
  canvas.setAttribute("aria-label", spoken);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  self.pen = pen;
  options.draw(pen);
}

function listenToPointer(self) {
  const { canvas, options } = self;
  let start = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (start && options.brush) {
      redraw(self);
      self.pen.selection(...start, x, y);
    }
    showHit(self, options.hit?.(x, y), event);
  });
  canvas.addEventListener("pointerleave", () => {
    hideTooltip();
    options.leave?.();
  });
  canvas.addEventListener("pointerdown", (event) => {
    start = at(event);
    if (options.brush) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const end = at(event);
    const moved = start && Math.hypot(end[0] - start[0], end[1] - start[1]) > 4;
    if (moved && options.brush) options.brush(start, end);
    else if (options.press) options.press(options.hit?.(...end) ?? null);
    start = null;
  });
  canvas.addEventListener("pointercancel", () => (start = null));
}

/** Draw a chart again as it is, without its texts: what the pointer is over has changed. */
function redraw(self) {
  self.pen.clear();
  self.options.draw(self.pen);
}

function showHit(self, hit, event) {
  self.canvas.classList.toggle("over", Boolean(hit && self.options.press));
  if (!hit) return hideTooltip();
  tooltip.replaceChildren(...hit.lines.filter(Boolean).map((line, at) => el(at ? "div" : "strong", null, safeText(line, 200))));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(Math.max(event.clientX + 14, 8), document.documentElement.clientWidth - width - 8);
  const below = event.clientY + 18 + height < window.innerHeight;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${below ? event.clientY + 18 : Math.max(event.clientY - height - 12, 4)}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

/** Draws on a canvas in CSS pixels. `width` and `height` are those of the chart. */
class Pen {
  constructor(context, width) {
    this.context = context;
    this.width = width;
    this.height = 0;
  }

  /** How opaque what follows is, from 0 to 1. */
  set opacity(share) {
    this.context.globalAlpha = share;
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
  }

  /** Fill a box with a part's colour and pattern, or with a colour; `outline` is the colour of its edge. */
  box(x, y, width, height, { part, colour, outline, edge = 1 }) {
    const { context } = this;
    context.fillStyle = part ? fillOf(context, part) : (colour ?? "transparent");
    context.fillRect(x, y, width, height);
    if (!outline) return;
    context.strokeStyle = outline;
    context.lineWidth = edge;
    context.strokeRect(x + edge / 2, y + edge / 2, Math.max(width - edge, 0), Math.max(height - edge, 0));
  }

  line(x0, y0, x1, y1, colour = palette.line, width = 1) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }

  font(size = 12, weight = 400) {
    this.context.font = `${weight} ${size}px ${FONT}`;
  }

  /** Write one line. Where it is longer than `most` pixels it ends in an ellipsis. */
  text(text, x, y, { size = 12, weight = 400, colour = palette.ink, align = "left", most = Infinity } = {}) {
    this.font(size, weight);
    this.context.fillStyle = colour;
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillText(most === Infinity ? text : this.fitted(text, most), x, y);
  }

  /** Write a line of the axes and the remarks. */
  small(text, x, y, align = "left", most = Infinity) {
    this.text(text, x, y, { size: 11, colour: palette.muted, align, most });
  }

  widthOf(text, size = 12, weight = 400) {
    this.font(size, weight);
    return this.context.measureText(text).width;
  }

  fitted(text, most) {
    const width = this.context.measureText(text).width;
    if (width <= most) return text;
    let cut = text.slice(0, Math.floor((text.length * most) / width));
    while (cut && this.context.measureText(`${cut}…`).width > most) cut = cut.slice(0, -1);
    return cut && `${cut}…`;
  }

  /** Return a text as at most `count` lines that are `most` pixels wide. */
  wrapped(text, most, size = 12, weight = 400, count = 3) {
    this.font(size, weight);
    const lines = [];
    const rest = text.split(" ");
    while (rest.length) {
      let words = rest.length;
      while (lines.length < count - 1 && words > 1 && this.context.measureText(rest.slice(0, words).join(" ")).width > most) words -= 1;
      lines.push(this.fitted(rest.splice(0, words).join(" "), most));
    }
    return lines;
  }

  selection(x0, y0, x1, y1) {
    const [left, top] = [Math.min(x0, x1), Math.min(y0, y1)];
    this.opacity = 0.25;
    this.box(left, top, Math.abs(x1 - x0), Math.abs(y1 - y0), { colour: palette.accent });
    this.opacity = 1;
  }
}

/** Return round numbers from `least` to `most`, about `count` of them. */
function ticks(least, most, count) {
  const raw = (most - least) / Math.max(count, 1);
  if (!(raw > 0)) return [least];
  const power = 10 ** Math.floor(Math.log10(raw));
  const spacing = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const result = [];
  for (let at = Math.ceil(least / spacing - 1e-9) * spacing; at <= most + spacing * 1e-6; at += spacing) result.push(Math.abs(at) < spacing * 1e-9 ? 0 : at);
  return result;
}

/** Draw an axis below a chart, with lines through it. `toX` maps values to pixels; `unit` is that of the values. */
function bottomAxis(pen, toX, least, most, bottom, unit, isLog = false) {
  for (const [at, label] of axisPlaces(least, most, Math.max(toX(most) - toX(least), 1) / 90, unit, isLog)) {
    const x = Math.round(toX(at)) + 0.5;
    const half = pen.widthOf(label, 11) / 2;
    pen.line(x, 0, x, bottom + 4);
    pen.small(label, Math.min(Math.max(x, half), pen.width - half), bottom + 12, "center");
  }
}

/** Return the places of an axis, about `count` of them, with their texts. Steps, whose unit is "#", are whole. */
function axisPlaces(least, most, count, unit, isLog) {
  const all = isLog ? powers(least, most) : ticks(least, most, count).filter((at) => unit !== "#" || Number.isInteger(at));
  const text = tickText(all, unit);
  return all.map((at) => [at, unit === "#" ? `#${at}` : isLog ? tickText([at], unit)(at) : text(at)]);
}

/** Return the powers of ten from `least` to `most`; where these are few, their double and fivefold as well. */
function powers(least, most) {
  const factors = most / least > 100 ? [1] : [1, 2, 5];
  const result = [];
  for (let power = 10 ** Math.floor(Math.log10(least)); power <= most; power *= 10) result.push(...factors.map((factor) => factor * power));
  return result.filter((value) => value >= least && value <= most);
}

/** Return what writes the places of an axis: all in one unit, with as many decimals as tell them apart. */
function tickText(places, unit) {
  const { divisor, name } = columnScale(unit, places);
  const spacing = places.length > 1 ? (places[1] - places[0]) / divisor : 1;
  const decimals = Math.max(0, Math.ceil(-Math.log10(spacing) - 1e-9));
  return (value) => (value ? `${decimal(value / divisor, decimals)}${unit === "ratio" ? "" : " "}${name}` : "0");
}
