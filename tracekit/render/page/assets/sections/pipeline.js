"use strict";
// A pipeline as it ran, and its bubbles by cause.

const BUBBLES = ["warmup", "drain", "imbalance", "transfer", "late_peer", "other"];
const ACTIONS = { F: "forward", B: "backward", I: "backward", W: "weight" };

function pipelineCharts() {
  return [page.pipeline ? actionsChart() : null, bubblesChart(), stagesChart()];
}

function bubblesChart() {
  const { pipeline } = result;
  const rows = () => pipeline.by_rank.filter((row) => isRankChosen(row.rank));
  const known = pipeline.by_rank.some((row) => row.causes);
  const steps = Math.max(pipeline.steps ?? 1, 1);
  return barChart({
    id: "bubbles", title: "Bubbles by cause", unit: "ns",
    summary: () => `${pipeline.schedule}, ${countText(pipeline.stages, "stage")}, ${countText(pipeline.microbatches, "microbatch").replace("batchs", "batches")}. Bubbles take ${percentText(pipeline.bubble_ratio)} of the pipeline's time${isKnown(pipeline.ideal_bubble_ratio) ? `; the least for this order is ${percentText(pipeline.ideal_bubble_ratio)}` : ""}. A cause left of zero made the bubble smaller.`,
    legend: () => (known ? legend(BUBBLES) : null),
    rows: () => rows().slice(0, 32).map((row) => {
      const parts = known && row.causes ? BUBBLES.map((cause) => [cause, row.causes[`${cause}_ns`] / steps]) : [["idle", row.bubble_ns / steps]];
      const labelled = parts.map(([part, size]) => [part, size, `${PARTS[part][0]}: ${timeText(size)}`]);
      const below = labelled.filter(([, size]) => size < 0);
      return { label: `rank ${row.rank}`, note: `stage ${row.stages.join(", ")}`, ends: `${timeText(row.bubble_ns / steps)}  ${percentText(row.bubble_ratio)}`, rank: row.rank, segments: [...stacked(labelled.filter(([, size]) => size >= 0)), ...stacked(below)] };
    }),
    press: (row) => setState({ ranks: [row.rank] }),
    table: () => ({
      rows: rows(),
      columns: ["rank", "stages", "busy_ns=busy, all steps", "bubble_ns=bubble, all steps", "bubble_ratio=share", ...(known ? BUBBLES.map((cause) => ({ key: `${cause}_ns`, label: PARTS[cause][0], value: (row) => row.causes?.[`${cause}_ns`] ?? null })) : [])],
    }),
  });
}

function stagesChart() {
  const rows = result.pipeline.by_stage ?? [];
  if (!rows.length) return null;
  return barChart({
    id: "stages", title: "Time of an action by stage", unit: "ns",
    summary: () => "Mean time of one microbatch in each stage. Stages that take longer than the others make these wait.",
    legend: () => legend([...new Set(rows.map((row) => ACTIONS[row.kind] ?? "other"))]),
    rows: () => [...new Set(rows.map((row) => row.stage))].sort((a, b) => a - b).map((stage) => {
      const of = rows.filter((row) => row.stage === stage);
      return { label: `stage ${stage}`, ends: timeText(of.reduce((sum, row) => sum + row.mean_ns, 0)), segments: stacked(of.map((row) => [ACTIONS[row.kind] ?? "other", row.mean_ns, `${row.kind}: ${timeText(row.mean_ns)}`])) };
    }),
    table: () => ({ rows, columns: resultColumns("by_stage", rows).map((column) => (column.key === "mean_ns" ? { ...column, unit: "ns" } : column)) }),
  });
}

/** Return the actions of one step on a line a rank; what is between them is a bubble, coloured by its cause. */
function actionsChart() {
  const view = page.pipeline;
  const row = 26;
  const left = 58;
  let toX = null;
  const lineOf = new Map(view.ranks.map((rank, line) => [rank, line]));
  const name = (at) => `${view.kind[at]}${view.microbatch[at] ?? ""}`;
  const gaps = view.gaps;
  return chart({
    id: "actions", title: "The pipeline as it ran",
    summary: () => `Step ${view.step}, ${timeText(view.length_ns)}: one line a rank, the number is the microbatch.${gaps ? " Between the actions are bubbles, coloured by their cause." : ""}${view.text ? ` ${view.text}` : ""}`,
    legend: () => legend([...new Set(view.kind.map((kind) => ACTIONS[kind] ?? "other")), ...(gaps ? BUBBLES.filter((cause) => gaps.cause.includes(cause)) : [])]),
    height: (width) => {
      toX = (ns) => left + (ns / view.length_ns) * (width - left - 2);
      return view.ranks.length * row + 24;
    },
    draw(pen) {
      bottomAxis(pen, toX, 0, view.length_ns, view.ranks.length * row, { unit: "ns" });
      view.ranks.forEach((rank, line) => pen.text(`rank ${rank}`, left - 6, (line + 0.5) * row, { size: 11, align: "right", colour: palette.muted, most: left - 8 }));
      const bar = (list, at, part, inset) => {
        pen.context.globalAlpha = isRankChosen(list.rank[at]) ? 1 : 0.25;
        const x = toX(list.start_ns[at]);
        const width = Math.max(toX(list.end_ns[at]) - x, 0.7);
        pen.box(x, lineOf.get(list.rank[at]) * row + inset, width, row - 2 * inset, { part });
        return [x, width];
      };
      gaps?.rank.forEach((_, at) => bar(gaps, at, gaps.cause[at], 9));
      view.rank.forEach((rank, at) => {
        const [x, width] = bar(view, at, ACTIONS[view.kind[at]] ?? "other", 3);
        const text = String(view.microbatch[at] ?? "");
        if (width > pen.widthOf(text, 10, 600) + 5) {
          pen.box(x + width / 2 - 6, lineOf.get(rank) * row + row / 2 - 6, 12, 12, { colour: palette.page });
          pen.text(text, x + width / 2, lineOf.get(rank) * row + row / 2 + 0.5, { size: 10, weight: 600, align: "center" });
        }
      });
      pen.context.globalAlpha = 1;
    },
    hit(x, y) {
      const rank = view.ranks[Math.floor(y / row)];
      const find = (list) => list.rank.findIndex((each, at) => each === rank && x >= toX(list.start_ns[at]) && x < toX(list.end_ns[at]));
      const at = find(view);
      if (at >= 0) return { rank, lines: [`rank ${rank}: ${name(at)}`, `stage ${view.stage[at]}, microbatch ${view.microbatch[at] ?? UNKNOWN}`, timeText(view.end_ns[at] - view.start_ns[at])] };
      const gap = gaps ? find(gaps) : -1;
      return gap >= 0 ? { rank, lines: [`rank ${rank}: bubble`, PARTS[gaps.cause[gap]]?.[0], timeText(gaps.end_ns[gap] - gaps.start_ns[gap])] } : null;
    },
    press: (found) => found && setState({ ranks: [found.rank] }),
    table: () => ({
      rows: view.rank.map((_, at) => at).filter((at) => isRankChosen(view.rank[at])),
      columns: ["rank", "stage", "microbatch", "kind", "start_ns", "end_ns"].map((key) => ({ key, label: words(key), value: (at) => view[key][at] })),
    }),
  });
}
