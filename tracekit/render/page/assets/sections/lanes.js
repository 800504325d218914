// What the ranks that matter did in one step: how full each lane was, phase by phase.

const LANE = { left: 92, head: 15, phase: 12, lane: 20, gap: 12 };
const REASONS = { blamed: "named by a finding", critical: "bounds the step", median: "waits as long as the median rank", lowest: "for comparison" };

function lanesSection() {
  return section("lanes", "Lanes of one step", [page.lanes.length ? lanesChart() : remark(`No lanes: ${page.lanes_reason}.`)]);
}

function lanesChart() {
  const views = page.lanes;
  let zoom = null; // [from, to] in nanoseconds; null is the whole step
  let rows = [];
  let toX = null;
  let fromX = null;
  const view = () => views.find(({ kind }) => kind === state.lanes) ?? views.find(({ step }) => isStepChosen(step)) ?? views[0];
  const window_ = () => zoom ?? [0, view().length_ns];
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

  function draw(pen) {
    const shown = view();
    const [from, to] = window_();
    const bin = shown.length_ns / shown.bins;
    bottomAxis(pen, toX, from, to, pen.height - 24, "ns");
    for (const { row, top } of rows) {
      pen.text(`rank ${row.rank}`, 0, top + LANE.head / 2, { weight: 600 });
      pen.small(REASONS[row.reason] ?? "", LANE.left, top + LANE.head / 2);
      const phases = top + LANE.head;
      shown.lanes.forEach((lane, at) => pen.small(lane, LANE.left - 8, phases + LANE.phase + (at + 0.5) * LANE.lane, "right"));
      pen.context.save();
      pen.context.beginPath();
      pen.context.rect(LANE.left, 0, pen.width - LANE.left, pen.height);
      pen.context.clip();
      for (const [start, end, name] of row.phases) {
        const x = toX(start);
        const width = toX(end) - x;
        pen.box(x, phases + 1, width - 1, LANE.phase - 2, { colour: palette.surface, outline: palette.line });
        if (width > 34) pen.text(shown.names[name], Math.max(x, LANE.left) + 4, phases + LANE.phase / 2, { size: 9, colour: palette.muted, most: width - 8 });
      }
      shown.lanes.forEach((lane, at) => drawCover(pen, row.covered[at], lane, bin, phases + LANE.phase + at * LANE.lane));
      drawWaits(pen, row, phases + LANE.phase, shown.lanes.indexOf("communication"));
      drawNames(pen, shown, row, phases + LANE.phase);
      pen.context.restore();
    }
  }

  /** Draw how full a lane was in each bin, as one shape. */
  function drawCover(pen, covered, part, bin, top) {
    const { context } = pen;
    const bottom = top + LANE.lane - 2;
    const [from, to] = window_();
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

  function drawWaits(pen, row, top, lane) {
    if (lane < 0) return;
    const y = top + (lane + 1) * LANE.lane - 1;
    for (const [start, end] of row.waits) if (toX(end) - toX(start) > 1) pen.line(toX(start), y, toX(end), y, palette.delay, 3);
  }

  function drawNames(pen, shown, row, top) {
    const { spans } = row;
    const ends = shown.lanes.map(() => 0); // of what is written in each lane
    for (let at = 0; at < spans.start_ns.length; at += 1) {
      const x = Math.max(toX(spans.start_ns[at]), LANE.left);
      const width = Math.min(toX(spans.end_ns[at]), pen.width) - x;
      if (width < 60 || x < ends[spans.lane[at]]) continue;
      const y = top + (spans.lane[at] + 0.5) * LANE.lane;
      const text = pen.fitted(shown.names[spans.name[at]], (pen.font(10), width - 8));
      pen.opacity = 0.8;
      pen.box(x + 2, y - 6, pen.widthOf(text, 10) + 4, 12, { colour: palette.page });
      pen.opacity = 1;
      pen.text(text, x + 4, y, { size: 10 });
      ends[spans.lane[at]] = x + 10 + pen.widthOf(text, 10);
    }
  }

  function hit(x, y) {
    const found = rows.find(({ top, bottom }) => y >= top && y < bottom);
    if (!found || x < LANE.left) return null;
    const { row, top } = found;
    const shown = view();
    const at = fromX(x);
    const lane = Math.floor((y - top - LANE.head - LANE.phase) / LANE.lane);
    const { spans } = row;
    const under = spans.start_ns.map((_, index) => index).filter((index) => spans.lane[index] === lane && at >= spans.start_ns[index] && at <= spans.end_ns[index]);
    const phase = row.phases.find(([start, end]) => at >= start && at < end);
    const wait = row.waits.find(([start, end]) => at >= start && at < end);
    const bin = Math.min(Math.floor((at / shown.length_ns) * shown.bins), shown.bins - 1);
    return {
      lines: [
        `rank ${row.rank} at ${timeText(at)}`, phase ? shown.names[phase[2]] : null,
        ...shown.lanes.map((name, index) => `${name}: ${row.covered[index][bin] ?? 0}%`),
        ...under.slice(0, 3).map((index) => `${shown.names[spans.name[index]]}: ${timeText(spans.end_ns[index] - spans.start_ns[index])}`),
        wait ? `waits ${timeText(wait[1] - wait[0])}${wait[2] === null ? "" : ` for rank ${wait[2]}`}` : null,
      ],
    };
  }

  const kinds = views.map((each) => [each.kind, `${each.kind === "typical" ? "typical" : "longest"} (${each.step})`]);
  return chart({
    id: "lanes-chart", title: "Lanes", follows: ["ranks", "steps"],
    controls: [kinds.length > 1 ? chooser("Step", kinds, () => view().kind, (key) => { zoom = null; reset.disabled = true; setState({ lanes: key }); }) : null, reset],
    summary: () => `Step ${view().step}, ${view().kind === "typical" ? "of median length" : "the longest"}, on the run's clock. The height is how much of each moment a lane was busy. Drag to enlarge a part.`,
    legend: () => append(legend(view().lanes), view().ranks.some((row) => row.waits.length) ? el("li", null, lineSample(), "Waits for another rank") : null),
    height(width) {
      const [from, to] = window_();
      const right = width - 2;
      toX = (ns) => LANE.left + ((ns - from) / (to - from)) * (right - LANE.left);
      fromX = (x) => from + ((x - LANE.left) / (right - LANE.left)) * (to - from);
      let top = 0;
      rows = shownRanks().map((row) => {
        const place = { row, top, bottom: top + LANE.head + LANE.phase + view().lanes.length * LANE.lane };
        top = place.bottom + LANE.gap;
        return place;
      });
      return top + 24;
    },
    draw, hit,
    brush: ([x0], [x1]) => {
      const [from, to] = [fromX(Math.max(Math.min(x0, x1), LANE.left)), fromX(Math.max(x0, x1))];
      if (to > from) setZoom([from, to]);
    },
    table: () => {
      const shown = view();
      const spans = shownRanks().flatMap((row) => row.spans.start_ns.map((_, at) => ({ rank: row.rank, lane: shown.lanes[row.spans.lane[at]], name: shown.names[row.spans.name[at]], start_ns: row.spans.start_ns[at], length_ns: row.spans.end_ns[at] - row.spans.start_ns[at] })));
      return { rows: spans, columns: ["rank", "lane", "name=operation", "start_ns", "length_ns"] };
    },
  });
}
