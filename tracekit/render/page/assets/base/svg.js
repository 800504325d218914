// Drawings as SVG: elements, a context that a pen draws on as on a canvas, and a chart with all its texts as one file.

const SVG = "http://www.w3.org/2000/svg";
const ANCHORS = { left: "start", center: "middle", right: "end" };
const ruler = document.createElement("canvas").getContext("2d"); // measures texts
const numbers = (...values) => values.map((number) => Math.round(number * 100) / 100).join(" ");

/** Return a new SVG element; see `el`. */
function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return append(element, ...children);
}

/** Has what the charts use of a canvas's context, and appends an element to `into` for each thing drawn. */
class SvgContext {
  constructor(root) {
    Object.assign(this, { root, into: root, outer: [], path: "", dash: "", globalAlpha: 1, font: "" });
  }

  add(tag, attributes, ...children) {
    const opacity = this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {};
    this.into.append(shape(tag, { ...attributes, ...opacity }, ...children));
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${numbers(x, y)}`;
  }

  lineTo(x, y) {
    this.path += `${this.path ? "L" : "M"}${numbers(x, y)}`;
  }

  rect(x, y, width, height) {
    this.path += `M${numbers(x, y)}h${numbers(width)}v${numbers(height)}h${numbers(-width)}z`;
  }

  /** Add a whole circle. */
  arc(x, y, radius) {
    for (const side of [-1, 1]) this.path += `${side < 0 ? `M${numbers(x - radius, y)}` : ""}a${numbers(radius, radius)} 0 0 1 ${numbers(-side * 2 * radius)} 0`;
  }

  fill() {
    if (this.fillStyle !== "transparent") this.add("path", { d: this.path, fill: this.fillStyle });
  }

  stroke() {
    this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...(this.dash && { "stroke-dasharray": this.dash }) });
  }

  fillRect(...box) {
    this.beginPath();
    this.rect(...box);
    this.fill();
  }

  strokeRect(...box) {
    this.beginPath();
    this.rect(...box);
    this.stroke();
  }

  setLineDash(lengths) {
    this.dash = lengths.join(" ");
  }

  /** Write a text whose middle is at `y`, as `Pen` does. */
  fillText(text, x, y) {
    const [weight, size] = this.font.split(" ");
    this.add("text", { x: numbers(x), y: numbers(y + 0.35 * parseFloat(size)), "font-size": size, "font-weight": weight, "text-anchor": ANCHORS[this.textAlign], fill: this.fillStyle }, text);
  }

  measureText(text) {
    ruler.font = this.font;
    return ruler.measureText(text);
  }

  drawImage(canvas, x, y, width, height) {
    this.add("image", { href: canvas.toDataURL(), x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  }

  save() {
    this.outer.push(this.into);
  }

  restore() {
    this.into = this.outer.pop();
  }

  /** Draw only inside of the path, until `restore`. */
  clip() {
    const id = `clip-${this.root.querySelectorAll("clipPath").length}`;
    this.root.append(shape("clipPath", { id }, shape("path", { d: this.path })));
    this.group({ "clip-path": `url(#${id})` });
  }

  /** Draw into a new group, until `restore`. */
  group(attributes) {
    const group = shape("g", attributes);
    this.into.append(group);
    this.into = group;
  }

  /** Return what to fill a part with: its colour under its pattern. */
  patternOf(part, style) {
    if (!this.root.querySelector(`#${part}`)) {
      const tile = shape("pattern", { id: part, width: TILE, height: TILE, patternUnits: "userSpaceOnUse" });
      drawTile(new SvgContext(tile), style, colourOf(part));
      this.root.append(tile);
    }
    return `url(#${part})`;
  }
}

/** Return a copy of a drawing that looks the same without the style sheet. */
function withLooks(drawing) {
  const copy = drawing.cloneNode(true);
  const copies = copy.querySelectorAll("*");
  drawing.querySelectorAll("*").forEach((element, at) => {
    const looks = getComputedStyle(element);
    for (const name of ["fill", "stroke", "stroke-width", "font-size", "font-weight"]) copies[at].setAttribute(name, looks.getPropertyValue(name));
  });
  return copy;
}

/** Return a chart as an SVG element: its title, what it shows, its keys, the drawing, and the name of the run. */
function svgOf({ options, holder, summary, keys, width }) {
  const margin = 16;
  const root = shape("svg", { "font-family": FONT });
  const context = new SvgContext(root);
  const pen = new Pen(context, width);
  context.fillStyle = palette.page;
  context.add("rect", { width: "100%", height: "100%", fill: palette.page });
  context.group({ transform: `translate(${margin} ${margin})` });
  pen.text(options.title, 0, 8, { size: 15, weight: 600 });
  let top = 30;
  for (const line of pen.wrapped(summary.textContent, width, 13, 400, 12)) pen.text(line, 0, (top += 20) - 20, { size: 13, colour: palette.muted });
  const from = keys.getBoundingClientRect();
  const draw = (x, y, paint) => {
    context.save();
    context.group({ transform: `translate(${numbers(x, y)})` });
    paint();
    context.restore();
  };
  const shown = document.createTreeWalker(keys, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = shown.nextNode(); node; node = shown.nextNode()) {
    const box = document.createRange();
    box.selectNode(node);
    const { left, top: above, height } = box.getBoundingClientRect();
    const [x, y] = [left - from.left, top - 6 + above - from.top];
    if (node.paint) draw(x, y, () => node.paint(new Pen(context, 0)));
    else if (node.nodeType === Node.TEXT_NODE) pen.text(node.data, x, y + height / 2, { size: 12.5, colour: palette.muted });
  }
  top += from.height ? from.height + 8 : 0;
  const drawing = holder.querySelector("svg");
  const height = drawing ? Number(drawing.getAttribute("height")) : (pen.height = Math.ceil(options.height(width, pen)));
  draw(0, top, () => (drawing ? context.into.append(withLooks(drawing)) : options.draw(pen)));
  pen.small(document.title, width, top + height + 14, "right", width);
  const size = { width: width + 2 * margin, height: top + height + 24 + 2 * margin };
  for (const [name, value] of Object.entries({ ...size, viewBox: `0 0 ${size.width} ${size.height}` })) root.setAttribute(name, value);
  return root;
}

/** Save a chart as SVG, or as PNG with two pixels for each of the page. */
async function saveChart(self, kind) {
  const root = svgOf(self);
  const text = new XMLSerializer().serializeToString(root);
  if (kind === "svg") return saveFile(self.options.title, kind, new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = el("canvas", { width: 2 * root.getAttribute("width"), height: 2 * root.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toBlob((blob) => saveFile(self.options.title, kind, blob));
}
