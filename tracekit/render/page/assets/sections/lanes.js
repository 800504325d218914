// What the ranks that matter did in one step: how full each lane was, phase by phase.

const LANE = { left: 98, head: 15, phase: 12, lane: 20, gap: 12 };
const REASONS = { blamed: "named by a finding", waits: "waits longest for a named rank", critical: "bounds the step", median: "waits as long as the median rank", lowest: "for comparison" };

function lanesSection() {
  return section("lanes", "Lanes of one step", [page.lanes.length ? lanesChart() : remark(`No lanes: ${page.lanes_reason}.`)]);
}

function lanesChart() {
  const views = page.lanes;
  let zoom = null; // [from, to] in nanoseconds; null is the whole step
  let rows = []; // {row, top, bottom} of each rank
  let scale = null; // {from, to, toX(ns), toNs(x)}
  const view = () => views.find(({ kind }) => kind === state.lanes) ?? views.find(({ step }) => isStepChosen(step)) ?? views[0];
  const reset = button("Whole step", () => setZoom(null), { disabled: true });

  function setZoom(wanted) {
    zoom = wanted;
    reset.disabled = wanted === null;
    drawChart(charts.get("lanes-chart"));
  }

  /** Return the chosen ranks among those that there are; where there are none of them, all. */
  function shownRanks() {
    const chosen = view().ranks.filter((row) => isRankChosen(row.rank));
    return chosen.length ? chosen : view().ranks;
  }

  function height(width) {
    const [from, to] = zoom ?? [0, view().length_ns];
    const perNs = (width - 2 - LANE.left) / (to - from);
    scale = { from, to, toX: (ns) => LANE.left + (ns - from) * perNs, toNs: (x) => from + (x - LANE.left) / perNs };
    let top = 0;
    rows = shownRanks().map((row) => {
      const place = { row, top, bottom: top + LANE.head + LANE.phase + view().lanes.length * LANE.lane };
      top = place.bottom + LANE.gap;
      return place;
    });
    return top + 24;
  }

  const kinds = views.map((each) => [each.kind, `${each.kind === "typical" ? "typical" : "longest"} #${each.step}`]);
  return chart({
    id: "lanes-chart", title: "Lanes", follows: ["ranks", "steps"],
    controls: [kinds.length > 1 ? chooser("Step", kinds, () => view().kind, (key) => { zoom = null; reset.disabled = true; setState({ lanes: key }); }) : null, reset],
    summary: () => `Step #${view().step}, ${view().kind === "typical" ? "of median length" : "the longest"}, on the run's clock. The height is how much of each moment a lane was busy. Drag to enlarge a part.`,
    legend: () => append(legend(view().lanes), view().ranks.some((row) => row.waits.length) ? el("li", null, lineSample(), "Waits for another rank") : null),
    height,
    draw(pen) {
      bottomAxis(pen, scale.toX, scale.from, scale.to, pen.height - 24, "ns");
      for (const { row, top } of rows) drawRankLanes(pen, view(), row, top, scale);
    },
    hit(x, y) {
      const found = rows.find(({ top, bottom }) => y >= top && y < bottom);
      if (!found || x < LANE.left) return null;
      return { lines: laneLines(view(), found.row, scale.toNs(x), Math.floor((y - found.top - LANE.head - LANE.phase) / LANE.lane)) };
    },
    brush: ([x0], [x1]) => {
      const [from, to] = [scale.toNs(Math.max(Math.min(x0, x1), LANE.left)), scale.toNs(Math.max(x0, x1))];
      if (to > from) setZoom([from, to]);
    },
    table: () => {
      const shown = view();
      const spans = shownRanks().flatMap((row) => row.spans.start_ns.map((_, at) => ({ rank: row.rank, lane: shown.lanes[row.spans.lane[at]], name: shown.names[row.spans.name[at]], start_ns: row.spans.start_ns[at], length_ns: row.spans.end_ns[at] - row.spans.start_ns[at] })));
      return { rows: spans, columns: ["rank", "lane", "name=operation", "start_ns", "length_ns"] };
    },
  });
}

/** Draw the phases and lanes of a rank below `top`. */
function drawRankLanes(pen, view, row, top, scale) {
  const { context } = pen;
  const phases = top + LANE.head;
  const lanes = phases + LANE.phase;
  pen.text(`rank ${row.rank}`, 0, top + LANE.head / 2, { weight: 600 });
  pen.small(REASONS[row.reason] ?? "", LANE.left, top + LANE.head / 2);
  view.lanes.forEach((lane, at) => pen.small(lane, LANE.left - 8, lanes + (at + 0.5) * LANE.lane, "right"));
  context.save();
  context.beginPath();
  context.rect(LANE.left, 0, pen.width - LANE.left, pen.height);
  context.clip();
  for (const [start, end, name] of row.phases) {
    const x = scale.toX(start);
    const width = scale.toX(end) - x;
    pen.box(x, phases + 1, width - 1, LANE.phase - 2, { colour: palette.surface, outline: palette.line });
    if (width > 34) pen.text(view.names[name], Math.max(x, LANE.left) + 4, phases + LANE.phase / 2, { size: 9, colour: palette.muted, most: width - 8 });
  }
  view.lanes.forEach((lane, at) => drawCover(pen, row.covered[at], lane, view.length_ns / view.bins, lanes + at * LANE.lane, scale));
  const waits = lanes + (view.lanes.indexOf("communication") + 1) * LANE.lane - 1;
  for (const [from, to] of row.waits.map(([start, end]) => [scale.toX(start), scale.toX(end)])) if (to - from > 1) pen.line(from, waits, to, waits, palette.delay, 3);
  drawNames(pen, view, row, lanes, scale);
  context.restore();
}

/** Draw how full a lane was in each bin, as one shape. */
function drawCover(pen, covered, part, bin, top, { from, to, toX }) {
  const { context } = pen;
  const bottom = top + LANE.lane - 2;
  const first = Math.max(Math.floor(from / bin), 0);
  const last = Math.min(Math.ceil(to / bin), covered.length);
  pen.line(LANE.left, bottom + 0.5, pen.width, bottom + 0.5);
  context.beginPath();
  context.moveTo(toX(first * bin), bottom);
  for (let at = first; at < last; at += 1) {
    const y = bottom - (covered[at] / 100) * (LANE.lane - 4);
    context.lineTo(toX(at * bin), y);
    context.lineTo(toX((at + 1) * bin), y);
  }
  context.lineTo(toX(last * bin), bottom);
  context.fillStyle = fillOf(context, part);
  context.fill();
}

/** Write the names of the longest operations where there is room. */
function drawNames(pen, view, { spans }, top, { toX }) {
  const ends = view.lanes.map(() => 0); // of what is written in each lane
  for (let at = 0; at < spans.start_ns.length; at += 1) {
    const x = Math.max(toX(spans.start_ns[at]), LANE.left);
    const width = Math.min(toX(spans.end_ns[at]), pen.width) - x;
    if (width < 60 || x < ends[spans.lane[at]]) continue;
    const y = top + (spans.lane[at] + 0.5) * LANE.lane;
    pen.font(10);
    const text = pen.fitted(view.names[spans.name[at]], width - 8);
    pen.opacity = 0.8;
    pen.box(x + 2, y - 6, pen.widthOf(text, 10) + 4, 12, { colour: palette.page });
    pen.opacity = 1;
    pen.text(text, x + 4, y, { size: 10 });
    ends[spans.lane[at]] = x + 10 + pen.widthOf(text, 10);
  }
}

/** Return what a rank does at a moment: its phase, how full its lanes are, the operations of one lane, and its wait. */
function laneLines(view, row, at_ns, lane) {
  const { spans } = row;
  const covers = ([start, end]) => at_ns >= start && at_ns < end;
  const phase = row.phases.find(covers);
  const wait = row.waits.find(covers);
  const under = spans.start_ns.map((_, at) => at).filter((at) => spans.lane[at] === lane && covers([spans.start_ns[at], spans.end_ns[at]]));
  const bin = Math.min(Math.floor((at_ns / view.length_ns) * view.bins), view.bins - 1);
  return [
    `rank ${row.rank} at ${timeText(at_ns)}`, phase ? `host in ${view.names[phase[2]]}` : null,
    ...view.lanes.map((name, at) => `${name}: ${row.covered[at][bin] ?? 0}%`),
    ...under.slice(0, 3).map((at) => `${view.names[spans.name[at]]}: ${timeText(spans.end_ns[at] - spans.start_ns[at])}`),
    wait ? `waits ${timeText(wait[1] - wait[0])}${wait[2] === null ? "" : ` for rank ${wait[2]}`}` : null,
  ];
}
