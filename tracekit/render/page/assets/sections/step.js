// Where the time of a step goes: its causes, its length over time, and what changes would save.

const STEP_PARTS = ["compute", "exposed_comm", "exposed_copy", "idle"];
const PART_COLUMNS = STEP_PARTS.map((part) => `${part}_ns=${PARTS[part][0].toLowerCase()}`);
const stepLegend = () => legend(STEP_PARTS.filter((part) => part !== "exposed_copy" || RANK_ROWS.some((row) => row.exposed_copy_ns > 0)));
const partSegments = (row) => stacked(STEP_PARTS.map((part) => [part, row[`${part}_ns`]]));

/** Return the section on the step. */
function stepSection() {
  const { step } = page;
  return section("step", "Where the step goes", [
    step.causes.length ? causesChart() : remark(`The step is not divided among causes: ${step.reason}.`),
    page.rank_steps.steps.length > 1 ? lengthsChart() : null,
    step.waterfall.length ? waterfallChart() : remark(`What changes would save is not known: ${step.waterfall_reason}.`),
    phasesChart(), idleChart(),
  ]);
}

function causesChart() {
  const { causes, step_ns } = page.step;
  const name = (cause) => (cause.where ? `${cause.label}, ${cause.where}` : cause.label);
  const ends = (time) => [time, [time / step_ns, "ratio"]];
  return barChart({
    id: "causes", title: "The step, divided among its causes", most: Math.min(12, causes.filter(({ share }) => share >= 0.005).length), ranksOf: (cause) => cause.ranks, list: () => causes,
    columns: ["label=cause", "where", "part=counts as", "time_ns=time a step", "share=share of the step"],
    summary: () => `The mean step of ${msText(step_ns, 2)}, along the critical path over all ranks. All rows add up to it exactly. The largest: ${name(causes[0])}, ${percentText(causes[0].share)}.`,
    legend: () => legend([...new Set(causes.map((cause) => cause.part))]),
    before: () => [{ label: "The whole step", isStrong: true, segments: stacked(causes.map((cause) => [cause.part, cause.time_ns, `${name(cause)}: ${timeText(cause.time_ns)}`])), ends: ends(step_ns) }],
    bar: (cause) => ({ label: cause.label, note: cause.where, segments: [{ part: cause.part, from: 0, to: cause.time_ns }], ends: ends(cause.time_ns) }),
  });
}

/** Return the length of each step: the longest and the shortest of the ranks; a drag chooses steps. */
function lengthsChart() {
  const grid = page.rank_steps;
  const metric = grid.metrics.find((each) => each.key === "step_ns");
  const width = grid.column_first.length;
  const rows = () => grid.column_first.map((first, column) => {
    const lengths = grid.row_first.map((_, row) => (isRowChosen(row) ? metric.values[row * width + column] : null));
    const [least, most] = extent(lengths, [null, null]);
    return { column, step: grid.steps[first], least, most };
  });
  const range = ({ least, most }) => (least === most ? timeText(most) : `${timeText(least)} to ${timeText(most)}`);
  return plotChart({
    id: "lengths", title: "Length of each step", follows: ["ranks", "steps"],
    summary: () => `Longest and shortest of ${chosenRanksText()}, ${range({ least: extent(rows().map((row) => row.least), [null])[0], most: extent(rows().map((row) => row.most), [null, null])[1] })}. Drag over steps to choose them.`,
    legend: () => samples([[lineSample(), "Longest"], [lineSample(palette.compute, [6, 4]), "Shortest"]]),
    x: { unit: "#", label: "step", range: () => [grid.steps[0] - 0.5, grid.steps.at(-1) + 0.5] },
    y: { unit: "ns", range: (points) => [0, extent(points.flatMap((point) => point.y), [0, 1])[1] * 1.08] },
    points: () => rows().map((row) => ({ ...row, x: row.step, y: [row.most, row.least].filter(isKnown), lines: [columnText(row.column), range(row)] })),
    paint: (pen, points, toX, toY) => {
      if (state.steps) {
        const [left, right] = [toX(state.steps[0] - 0.3), toX(state.steps.at(-1) + 0.3)];
        pen.opacity = 0.15;
        pen.box(left, PLOT.top, right - left, PLOT.bottom - PLOT.top, { colour: palette.accent });
        pen.opacity = 1;
      }
      drawSeries(pen, points, (point) => point.most, toX, toY, { colour: palette.delay });
      drawSeries(pen, points, (point) => point.least, toX, toY, { colour: palette.compute, dash: [6, 4] });
    },
    choose: (points) => points.length && setState({ steps: someOf(points.flatMap(({ column }) => stepsOfColumns(column, column)), grid.steps) }),
    table: () => ({ rows: rows(), columns: [{ key: "step", label: "step", text: (row) => columnText(row.column) }, ["least_ns=shortest", (row) => row.least], ["most_ns=longest", (row) => row.most]] }),
  });
}

function waterfallChart() {
  const { waterfall } = page.step;
  const best = waterfall.filter((row) => row.kind === "change").sort(largestFirst("saving_ns"))[0];
  return barChart({
    id: "waterfall", title: "What changes would save", list: () => waterfall, ranksOf: (row) => row.ranks,
    columns: ["label=change", "kind", "from_ns", "to_ns", "saving_ns=saving a step", "error_ns=error", "ranks"],
    summary: () => `Replays of this run, each with one change alone. Savings overlap, so they do not add up. ${best ? `The most: ${best.label}, ${msText(best.saving_ns)} a step.` : "No change saves more than its error."}`,
    legend: () => legend(["step", "saving"]),
    bar: (row) => {
      const [low, high] = extent([row.from_ns, row.to_ns]);
      if (row.kind !== "change") return { label: row.label, isStrong: row.kind === "measured", segments: [{ part: "step", from: 0, to: high }], ends: [high] };
      return {
        label: row.label, ends: [-row.saving_ns], error: [low - row.error_ns, low + row.error_ns],
        segments: [{ part: "step", from: 0, to: low }, { part: "saving", from: low, to: high, text: `saves ${timeText(row.saving_ns)} ± ${timeText(row.error_ns)}` }],
      };
    },
  });
}

function phasesChart() {
  if (!page.means.phases.length) return null;
  return barChart({
    id: "phases", title: "Phases of the step", follows: ["ranks"], columns: ["phase", "total_ns=time a step", ...PART_COLUMNS],
    list: () => meansOf("phases", result.phases?.parts, ["phase"], ["total_ns", ...STEP_PARTS.map((part) => `${part}_ns`)]).filter((row) => row.total_ns > 0),
    summary: () => `Mean time a step in each phase by device (of a CPU rank by host), and what it consists of, of ${chosenRanksText("phases.parts")}.`,
    legend: stepLegend,
    bar: (row) => ({ label: row.phase, segments: partSegments(row), ends: [row.total_ns] }),
  });
}

function idleChart() {
  if (!page.means.idle_causes.some((row) => row.total_ns > 0)) return null;
  return barChart({
    id: "idle", title: "Why ranks idle", follows: ["ranks"], columns: ["cause", "total_ns=mean a step"],
    list: () => meansOf("idle_causes", result.idle_causes, ["cause"], ["total_ns"]).filter((row) => row.total_ns > 0).sort(largestFirst("total_ns")),
    summary: () => `Idle time a step by its cause, mean of ${chosenRanksText("idle_causes")}.`,
    bar: (row) => ({ label: words(row.cause), segments: [{ part: "idle", from: 0, to: row.total_ns }], ends: [row.total_ns] }),
  });
}
