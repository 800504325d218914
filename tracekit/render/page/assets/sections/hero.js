// One typical step in time: a line a rank, the last to arrive on top, and an arrow from who waits to whom it waits for.

const HERO = { row: 30, bar: 20, top: 24, bottom: 30, note: 118, narrow: 560 };

/** Return the picture as a figure; null without one. */
function heroFigure() {
  const { picture } = page;
  if (!picture) return null;
  const isPipeline = picture.rows.some((row) => row.stages.length);
  const drawn = picture.rows.reduce((sum, row) => sum + 1 + row.alike, 0);
  const order = isPipeline ? "stages in order" : picture.arrow ? "the last to arrive on top" : "the ranks that matter";
  const times = ["compute_ns=compute", "exposed_comm_ns=exposed communication", "exposed_copy_ns=exposed copies", "idle_ns=idle", "step_ns=step"];
  return chart({
    id: "picture", title: `Step #${picture.step} in time: ${picture.rows.length > 1 ? order : "one rank"}`, follows: ["ranks", "steps", "dimension", "phase"],
    summary: () => [
      arrowText(), drawn < picture.ranks ? `${picture.rows.length} of ${picture.ranks} ranks are drawn.` : "",
      picture.begins && sentence(picture.begins),
    ].filter(Boolean).join(" "),
    legend: () => samples(picture.parts.map((part) => [heroSample(part), part.name])),
    build: (holder, width, spoken) => holder.replaceChildren(heroDrawing(width, `${spoken} ${picture.rows.map(rowText).join(" ")}`)),
    table: () => ({ rows: picture.rows, columns: ["label=rank", ...times] }),
  });
}

function arrowText() {
  const { arrow } = page.picture;
  return arrow ? `Rank ${arrow.waiting_rank} waits ${msText(arrow.end_ns - arrow.start_ns, 1)} for rank ${arrow.late_rank}.` : "";
}

/** Return a row as a sentence. */
function rowText(row) {
  const share = (time) => percentText(time / Math.max(row.step_ns, 1), 0);
  const stage = row.stages.length ? `, stage ${row.stages.join(", ")}` : "";
  return sentence(`${row.label}${stage}: compute ${share(row.compute_ns)}, exposed communication ${share(row.exposed_comm_ns)}, idle ${share(row.idle_ns + row.exposed_copy_ns)} of its step`);
}

function noteOf(row) {
  const { arrow } = page.picture;
  const stage = row.stages.length ? `stage ${row.stages.join(", ")}` : "";
  if (row.rank === arrow?.waiting_rank) return `waits ${msText(arrow.end_ns - arrow.start_ns, 1)}`;
  return row.rank === arrow?.late_rank ? stage || "last" : stage;
}

const looks = ({ colour, is_hollow: isHollow }) => (isHollow ? { fill: "none", stroke: colour, "stroke-width": 1.2, "stroke-dasharray": "3 2" } : { fill: colour });

const heroSample = ({ colour, is_hollow: isHollow }) => sample(18, 12, (pen) => {
  pen.context.setLineDash(isHollow ? [3, 2] : []);
  pen.box(1, 1, 16, 10, isHollow ? { outline: colour } : { colour });
  pen.context.setLineDash([]);
});

/** Return the drawing; `spoken` is its text for screen readers. */
function heroDrawing(width, spoken) {
  const { picture } = page;
  const isNarrow = width < HERO.narrow;
  const left = Math.max(...picture.rows.map(({ label }) => label.length)) * 7 + 12;
  const right = width - (isNarrow ? 0 : HERO.note);
  const perNs = (right - left) / Math.max(picture.length_ns, 1);
  const toX = (ns) => left + ns * perNs;
  const bottom = HERO.top + picture.rows.length * HERO.row;
  const drawing = shape("svg", { width, height: bottom + HERO.bottom, role: "list", "aria-label": safeText(spoken), class: "hero" });
  for (const [ns, label] of axisPlaces(0, picture.length_ns, isNarrow ? 3 : 8, "ns")) {
    append(drawing, shape("line", { x1: toX(ns), x2: toX(ns), y1: HERO.top - 4, y2: bottom, class: "grid" }), shape("text", { x: toX(ns), y: 12, "text-anchor": "middle", class: "quiet" }, label));
  }
  picture.rows.forEach((row, at) => append(drawing, heroRow(row, HERO.top + at * HERO.row, toX, right, isNarrow)));
  return append(drawing, picture.arrow ? heroArrow(toX, right, bottom) : null);
}

function heroRow(row, top, toX, right, isNarrow) {
  const { arrow, parts } = page.picture;
  const middle = top + HERO.row / 2;
  const isLate = row.rank === arrow?.late_rank;
  const paths = parts.map((part, index) => {
    const boxes = row.segments.filter((segment) => segment[2] === index).map(([start, end]) => `M${toX(start).toFixed(1)} ${middle - HERO.bar / 2}H${toX(end).toFixed(1)}v${HERO.bar}H${toX(start).toFixed(1)}z`);
    return boxes.length ? shape("path", { d: boxes.join(""), ...looks(part) }) : null;
  });
  const said = `${rowText(row)} ${noteOf(row)}`.trim();
  return shape(
    "g", { tabindex: 0, role: "listitem", "aria-label": safeText(said), class: isLate ? "late" : "" }, shape("title", {}, said),
    shape("text", { x: 0, y: middle + 4, class: "label" }, row.label), paths,
    isNarrow ? null : shape("text", { x: right + 8, y: middle + 4, class: "note" }, noteOf(row)),
  );
}

/** Return the arrow from the row that waits to the row that is waited for, with what ends the wait. */
function heroArrow(toX, right, bottom) {
  const { arrow, rows } = page.picture;
  const middleOf = (rank) => HERO.top + (rows.findIndex((row) => row.rank === rank) + 0.5) * HERO.row;
  const [from, to, x] = [middleOf(arrow.waiting_rank), middleOf(arrow.late_rank), toX(arrow.end_ns)];
  const head = to < from ? 1 : -1;
  const tip = to + (head * HERO.bar) / 2;
  const isLeft = x > right / 2;
  return shape(
    "g", { class: "arrow" }, shape("line", { x1: x, x2: x, y1: from, y2: tip + head * 6 }), shape("path", { d: `M${x - 6} ${tip + head * 9}L${x} ${tip}L${x + 6} ${tip + head * 9}z` }),
    shape("text", { x, y: bottom + 18, "text-anchor": isLeft ? "end" : "start" }, arrow.text),
  );
}
