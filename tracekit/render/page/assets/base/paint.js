// Colours and patterns. A part of the step has the same colour and pattern in every chart; either alone tells it apart.

// Name, pattern, and the colour where it is that of another part.
const PARTS = {
  compute: ["Compute", "solid"],
  communication: ["Communication", "rising"],
  exposed_comm: ["Exposed communication, with waiting", "rising", "communication"],
  overlapped_comm: ["Communication under compute", "sparse", "communication"],
  copy: ["Copies", "dots"],
  exposed_copy: ["Exposed copies", "dots", "copy"],
  idle: ["Idle", "empty"],
  delay: ["Delay by a rank or a link", "crossed"],
  bubble: ["Bubbles of the pipeline", "falling"],
  other: ["Other", "upright"],
  step: ["The step", "solid", "other"],
  saving: ["Saved", "falling", "delay"],
  warmup: ["Warm-up", "empty", "overlap"],
  drain: ["Drain", "level", "idle"],
  imbalance: ["Uneven stages", "crossed", "delay"],
  transfer: ["Transfer", "rising", "communication"],
  late_peer: ["Late peers", "dots", "copy"],
  wait: ["Waiting", "dots", "idle"],
  forward: ["Forward", "solid", "compute"],
  backward: ["Backward", "falling", "bubble"],
  weight: ["Backward of weights", "crossed", "overlap"],
};
const MARKS = ["compute", "communication", "bubble", "copy", "delay", "other"]; // parts whose looks tell other things apart

let palette = {};

/** Read the colours of the theme that holds, from the style sheet. */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "surface", "ink", "muted", "line", "accent", "compute", "communication", "copy", "idle", "delay", "bubble", "other", "overlap"];
  palette = record(names, (name) => style.getPropertyValue(`--${name}`).trim());
  palette.heat = style.getPropertyValue("--heat").trim().split(/\s+/).map(rgbOf);
  tiles.clear();
}

function rgbOf(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Return red, green, blue of a share from 0 to 1 on the scale of the heat maps, which gets only darker (or lighter). */
function heatRgb(share) {
  const at = Math.min(Math.max(share, 0), 1) * (palette.heat.length - 1);
  const low = Math.min(Math.floor(at), palette.heat.length - 2);
  return palette.heat[low].map((value, channel) => Math.round(value + (palette.heat[low + 1][channel] - value) * (at - low)));
}

const heatColour = (share) => `rgb(${heatRgb(share)})`;

function colourOf(part) {
  return palette[PARTS[part]?.[2] ?? part] ?? palette.other;
}

const pixelRatio = () => window.devicePixelRatio || 1;
const tiles = new Map();
const TILE = 8; // side of a pattern, in CSS pixels

/** Return what to fill a part with in a canvas: its colour under its pattern. */
function fillOf(context, part) {
  const style = (PARTS[part] ?? PARTS.other)[1];
  if (style === "solid") return colourOf(part);
  if (context.patternOf) return context.patternOf(part, style);
  const scale = pixelRatio();
  const key = `${part} ${scale}`;
  if (!tiles.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(TILE * scale);
    const drawn = tile.getContext("2d");
    drawn.scale(tile.width / TILE, tile.height / TILE);
    drawTile(drawn, style, colourOf(part));
    tiles.set(key, tile);
  }
  const pattern = context.createPattern(tiles.get(key), "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

/** Draw one tile of a pattern. */
function drawTile(context, style, colour) {
  const size = TILE;
  context.fillStyle = colour;
  context.fillRect(0, 0, size, size);
  context.strokeStyle = context.fillStyle = palette.page;
  context.lineWidth = 1.4;
  context.globalAlpha = 0.75;
  const line = (x0, y0, x1, y1) => {
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  };
  const rising = () => [-size, 0, size].forEach((at) => line(at - 1, size + 1, at + size + 1, -1));
  const falling = () => [-size, 0, size].forEach((at) => line(at - 1, -1, at + size + 1, size + 1));
  const dot = (x, y) => context.fillRect(x, y, 1.8, 1.8);
  if (style === "rising" || style === "crossed") rising();
  if (style === "falling" || style === "crossed") falling();
  if (style === "upright") line(size / 2, 0, size / 2, size);
  if (style === "level") line(0, size / 2, size, size / 2);
  if (style === "dots") [[1, 1], [5, 5]].forEach(([x, y]) => dot(x, y));
  if (style === "sparse") {
    context.globalAlpha = 0.5;
    context.fillRect(0, 0, size, size);
    context.globalAlpha = 1;
    context.strokeStyle = colour;
    rising();
  }
  if (style === "empty") {
    context.globalAlpha = 0.55;
    context.fillRect(0, 0, size, size);
  }
}

/** Return a legend: a swatch and a name for each part. `names` may give a part another name here. */
function legend(parts, names = {}) {
  return samples(parts.map((part) => [swatch(part), names[part] ?? PARTS[part][0]]));
}

/** Return a legend of [sample, name]. */
function samples(pairs) {
  return el("ul", { class: "legend" }, pairs.map((pair) => el("li", null, pair)));
}

/** Return a small picture, drawn by `paint(pen)`, which draws it again where the chart is saved. */
function sample(width, height, paint) {
  const scale = pixelRatio();
  const canvas = el("canvas", { class: "sample", "aria-hidden": "true", width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.style.width = `${width}px`;
  canvas.getContext("2d").scale(scale, scale);
  paint(new Pen(canvas.getContext("2d"), width));
  return Object.assign(canvas, { paint });
}

/** Return a sample of a part's colour and pattern. */
const swatch = (part) => sample(14, 14, (pen) => pen.box(0, 0, 14, 14, { part }));

/** Return a sample of a line. */
const lineSample = (colour = palette.delay, dash = []) => sample(22, 12, (pen) => {
  pen.context.setLineDash(dash);
  pen.line(0, 6, 22, 6, colour, 3);
  pen.context.setLineDash([]);
});

const CORNERS = [null, [[-1, -1], [1, -1], [1, 1], [-1, 1]], [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]], [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]]; // null: a disc
const OTHER_MARK = MARKS.length - 1;
const markOf = (kind) => palette[MARKS[kind % MARKS.length]];

/** Draw a point in the shape of the `kind`-th thing. */
function drawPoint(context, kind, x, y, size) {
  const corners = CORNERS[kind % CORNERS.length];
  context.beginPath();
  if (corners) corners.forEach(([dx, dy], at) => context[at ? "lineTo" : "moveTo"](x + dx * size, y + dy * size));
  else context.arc(x, y, size, 0, 2 * Math.PI);
  context.fill();
}

const pointSample = (kind) => sample(14, 14, ({ context }) => {
  context.fillStyle = markOf(kind);
  drawPoint(context, kind, 7, 7, 4.5);
});
