// A pipeline as it ran, its bubbles by cause, and the time of its stages.

const BUBBLES = ["warmup", "drain", "imbalance", "transfer", "late_peer", "other"];
const PART_OF_ACTION = { F: "forward", B: "backward", I: "backward", W: "weight" };
const ACTION = { row: 26, left: 58 };

function bubblesChart() {
  const { pipeline } = result;
  const steps = Math.max(pipeline.steps ?? 1, 1);
  const isDivided = pipeline.by_rank.some((row) => row.causes);
  const partsOf = (row) => (row.causes ? BUBBLES.map((cause) => [cause, row.causes[`${cause}_ns`] / steps]) : [["idle", row.bubble_ns / steps]]);
  const ideal = isKnown(pipeline.ideal_bubble_ratio) ? `; the least for this order is ${percentText(pipeline.ideal_bubble_ratio)}` : "";
  return barChart({
    id: "bubbles", title: "Bubbles by cause", follows: ["ranks"], most: 32, ranksOf: (row) => [row.rank], list: () => pipeline.by_rank.filter((row) => isRankChosen(row.rank)),
    columns: ["rank", "stages", "busy_ns=busy, all steps", "bubble_ns=bubble, all steps", "bubble_ratio=share", ...BUBBLES.filter(() => isDivided).map((cause) => [`${cause}_ns=${PARTS[cause][0]}`, (row) => row.causes?.[`${cause}_ns`]])],
    summary: () => `Schedule ${pipeline.schedule}, ${countText(pipeline.stages, "stage")}, ${countText(pipeline.microbatches, "microbatch")}. Bubbles take ${percentText(pipeline.bubble_ratio)} of the pipeline's time${ideal}. What is left of zero made a bubble smaller. Means a step.`,
    legend: () => (isDivided ? legend(BUBBLES) : null),
    bar: (row) => ({ label: `rank ${row.rank}`, note: `stage${row.stages.length > 1 ? "s" : ""} ${row.stages.join(", ")}`, ends: [row.bubble_ns / steps, [row.bubble_ratio, "ratio"]], segments: [1, -1].flatMap((sign) => stacked(partsOf(row).filter(([, size]) => size * sign > 0))) }),
  });
}

function stagesChart() {
  const rows = result.pipeline.by_stage;
  const list = () => [...new Set(rows.map((row) => row.stage))].sort((a, b) => a - b).map((stage) => ({ stage, actions: rows.filter((row) => row.stage === stage) }));
  const kinds = [...new Set(rows.map((row) => row.kind))];
  return barChart({
    id: "stages", title: "Time of a microbatch by stage", most: 32, list,
    columns: ["stage", ...kinds.map((kind) => ([`mean_ns=${kind}`, (row) => row.actions.find((action) => action.kind === kind)?.mean_ns]))],
    summary: () => "Means. Stages that take longer make the others wait.",
    legend: () => legend([...new Set(kinds.map((kind) => PART_OF_ACTION[kind] ?? "other"))]),
    bar: ({ stage, actions }) => ({ label: `stage ${stage}`, ends: [sumOf(actions, (action) => action.mean_ns)], segments: stacked(actions.map((action) => [PART_OF_ACTION[action.kind] ?? "other", action.mean_ns, `${action.kind}: ${timeText(action.mean_ns)}`])) }),
  });
}

/** Return the actions of one step on a line a rank; what is between them is a bubble, coloured by its cause if that is known. */
function actionsChart() {
  const view = page.pipeline;
  const { gaps, ranks } = view;
  const lineOf = new Map(ranks.map((rank, line) => [rank, line]));
  const partOf = (at) => PART_OF_ACTION[view.kind[at]] ?? "other";
  let toX = null;
  return chart({
    id: "actions", title: "The pipeline as it ran", follows: ["ranks"],
    summary: () => `Step #${view.step}, ${timeText(view.length_ns)}. Numbers are microbatches.${gaps ? " Between the actions are bubbles, by their cause." : ""} ${view.text ?? ""}`,
    legend: () => legend([...new Set(view.kind.map((_, at) => partOf(at))), ...BUBBLES.filter((cause) => gaps?.cause.includes(cause))]),
    height: (width) => {
      toX = (ns) => ACTION.left + (ns / view.length_ns) * (width - ACTION.left - 2);
      return ranks.length * ACTION.row + 24;
    },
    draw(pen) {
      bottomAxis(pen, toX, 0, view.length_ns, ranks.length * ACTION.row, "ns");
      ranks.forEach((rank, line) => pen.small(`rank ${rank}`, ACTION.left - 6, (line + 0.5) * ACTION.row, "right", ACTION.left - 8));
      const box = (list, at, part, inset) => {
        pen.opacity = isRankChosen(list.rank[at]) ? 1 : 0.25;
        const x = toX(list.start_ns[at]);
        const width = Math.max(toX(list.end_ns[at]) - x, 0.7);
        pen.box(x, lineOf.get(list.rank[at]) * ACTION.row + inset, width, ACTION.row - 2 * inset, { part });
        return [x + width / 2, width];
      };
      gaps?.rank.forEach((_, at) => box(gaps, at, gaps.cause[at], 9));
      view.rank.forEach((rank, at) => {
        const [x, width] = box(view, at, partOf(at), 3);
        const y = (lineOf.get(rank) + 0.5) * ACTION.row;
        const text = String(view.microbatch[at] ?? "");
        const room = pen.widthOf(text, 10, 600) + 5;
        const isPlain = partOf(at) === "forward";
        if (width < room + (isPlain ? 0 : 8)) return;
        if (!isPlain) pen.box(x - room / 2, y - 6, room, 12, { colour: palette.page });
        pen.text(text, x, y + 0.5, { size: 10, weight: 600, align: "center", colour: isPlain ? palette.page : palette.ink });
      });
      pen.opacity = 1;
    },
    hit(x, y) {
      const rank = ranks[Math.floor(y / ACTION.row)];
      const at = (list) => list?.rank.findIndex((each, index) => each === rank && x >= toX(list.start_ns[index]) && x < toX(list.end_ns[index])) ?? -1;
      const lengthOf = (list, index) => timeText(list.end_ns[index] - list.start_ns[index]);
      const [action, gap] = [at(view), at(gaps)];
      if (action >= 0) return { rank, lines: [`rank ${rank}: ${PARTS[partOf(action)][0].toLowerCase()} of microbatch ${view.microbatch[action] ?? UNKNOWN}`, `stage ${view.stage[action]}`, lengthOf(view, action)] };
      return gap < 0 ? null : { rank, lines: [`rank ${rank}: bubble`, PARTS[gaps.cause[gap]]?.[0], lengthOf(gaps, gap)] };
    },
    press: (found) => found && setState({ ranks: [found.rank] }),
    table: () => ({
      rows: view.rank.map((_, at) => at).filter((at) => isRankChosen(view.rank[at])),
      columns: ["rank", "stage", "microbatch", "kind", "start_ns", "end_ns"].map((key) => [key, (at) => view[key][at]]),
    }),
  });
}
