// The page of a comparison (tracekit/render/comparison/document.py): the verdict, what the change consists of, the steps of
// the runs, where to look, and what else differs.

const LONGER = "delay";
const SHORTER = "bubble";
const DIMENSIONS = { phase: "Phases", rank: "Ranks", group: "Groups", operator: "Operators", kernel: "Kernels" };
const EXPLORED_COLUMNS = ["name", "baseline_ns=baseline", "candidate_ns=candidate", "change_ns=change", { key: "adjusted_p_value", label: "adjusted p-value", text: (row) => pValueText(row.adjusted_p_value) }, "stands_out=stands out"];

const signed = (value, text) => `${value < 0 ? "−" : "+"}${text}`;
const signedMs = (ns) => signed(ns, msText(Math.abs(ns), 2));
const signedPercent = (share) => signed(share, percentText(Math.abs(share), 1));

function pValueText(value) {
  if (!isKnown(value)) return UNKNOWN;
  return value < 0.001 ? "below 0.001" : decimal(value, 3);
}

function comparisonHeader() {
  const { change } = result;
  const facts = [
    ["Baseline", msText(change.baseline_ns, 2)], ["Candidate", msText(change.candidate_ns, 2)],
    ["Change", `${signedMs(change.change_ns)} (${signedPercent(change.ratio - 1)})`], ["Noise", page.noise],
  ];
  return el(
    "header", { id: "header" },
    el("p", { class: "brand" }, "tracekit comparison"), el("h1", null, page.header.title),
    page.header.facts.map((fact) => el("p", { class: "subtitle" }, fact)),
    el("dl", { class: "facts" }, facts.map(([term, text]) => el("div", null, el("dt", null, term), el("dd", null, text)))),
  );
}

function verdictSection() {
  const title = page.verdict[0].toUpperCase() + page.verdict.slice(1);
  return section("verdict", title, [page.remark ? el("p", { class: "remark" }, page.remark) : null, page.advice ? el("p", null, page.advice) : null, result.change.ratio_low === null ? null : intervalChart()]);
}

/** Return the change with its interval, beside the margin. */
function intervalChart() {
  const { ratio, ratio_low, ratio_high, margin, confidence } = result.change;
  const row = { change_ratio: ratio - 1, low_ratio: ratio_low - 1, high_ratio: ratio_high - 1, margin_ratio: margin };
  const range = `${signedPercent(row.low_ratio)} to ${signedPercent(row.high_ratio)}`;
  return barChart({
    id: "interval", title: "The change of the step, and how well it is known", unit: "ratio", upTo: 1.2 * margin, list: () => [row],
    columns: ["change_ratio=change", "low_ratio=at least", "high_ratio=at most", "margin_ratio=margin"],
    summary: () => `The bar is the change, ${signedPercent(row.change_ratio)}. The line over it is its ${percentText(confidence, 0)} interval, ${range}. The upright marks are the margin of ${percentText(margin, 1)}: changes inside it do not matter.`,
    bar: () => ({
      label: "Change", error: [row.low_ratio, row.high_ratio], ends: [signedPercent(row.change_ratio)], marks: [-margin, margin].map((at) => ({ at, text: `margin: ${signedPercent(at)}` })),
      segments: [{ part: row.change_ratio < 0 ? SHORTER : LONGER, from: 0, to: row.change_ratio, text: `interval: ${range}` }],
    }),
  });
}

function changeSection() {
  return section("change", "What the change consists of", [waterfallChart()]);
}

/** Return the causes behind each other: each bar begins where the one above it ends, and the last ends at the change. */
function waterfallChart() {
  const { change } = result;
  let end = 0;
  const rows = page.causes.map((cause) => ({ ...cause, from_ns: end, to_ns: (end += cause.change_ns) }));
  const bar = (label, from, to, isStrong = false) => ({ label, isStrong, ends: [signedMs(to - from)], segments: [{ part: to < from ? SHORTER : LONGER, from, to, text: signedMs(to - from) }] });
  return barChart({
    id: "causes", title: page.causes_title, list: () => rows, columns: ["label=cause", "baseline_ns=baseline", "candidate_ns=candidate", "change_ns=change"],
    summary: () => `A step takes ${msText(Math.abs(change.change_ns), 2)} ${change.change_ns < 0 ? "less" : "more"}. Each bar begins where the one above it ends. All rows of the table add up to the change exactly.`,
    legend: () => legend([LONGER, SHORTER], { [LONGER]: "Longer", [SHORTER]: "Shorter" }),
    before: () => [bar("The whole change", 0, change.change_ns, true)],
    bar: (row) => bar(row.label, row.from_ns, row.to_ns),
  });
}

function stepsSection() {
  return section("steps", "The steps of the runs", [stepsChart()]);
}

/** Return the length of each step, in the order in which each run recorded them. */
function stepsChart() {
  const { runs } = page;
  const count = Math.max(...runs.map((run) => run.lengths_ns.length));
  return plotChart({
    id: "lengths", title: "Length of each step",
    summary: () => runs.map((run) => `${run.name}: ${countText(run.lengths_ns.length, "step")} of ${msText(run.typical_ns, 2)}, ${extent(run.lengths_ns).map((ns) => msText(ns, 2)).join(" to ")}.`).join(" "),
    legend: () => samples([[lineSample(palette.compute, [6, 4]), "Baseline"], [lineSample(), "Candidate"]]),
    x: { unit: "#", label: "recorded step", range: () => [0.5, count + 0.5] },
    y: {
      unit: "ns",
      range: (points) => {
        const [low, high] = extent(points.flatMap((point) => point.y), [0, 1]);
        const room = 0.1 * (high - low || high);
        return [low - room, high + room];
      },
    },
    points: () => Array.from({ length: count }, (_, at) => {
      const known = runs.filter((run) => isKnown(run.lengths_ns[at]));
      return { at, x: at + 1, y: known.map((run) => run.lengths_ns[at]), lines: known.map((run) => `${run.name}, step #${run.steps[at]}: ${msText(run.lengths_ns[at], 2)}`) };
    }),
    paint: (pen, points, toX, toY) => runs.forEach((run) => drawSeries(pen, points, ({ at }) => run.lengths_ns[at], toX, toY, run.is_baseline ? { colour: palette.compute, dash: [6, 4], width: 1.5 } : { colour: palette.delay, width: 2.5 })),
    table: () => ({ rows: runs.flatMap((run) => run.steps.map((step, at) => ({ run: run.name, step, step_ns: run.lengths_ns[at] }))), columns: ["run", "step", "step_ns=length"] }),
  });
}

function exploredSection() {
  const tables = Object.entries(DIMENSIONS).map(([dimension, title]) => [dimension, title, result.explored.filter((row) => row.dimension === dimension)]).filter(([, , rows]) => rows.length);
  return section("look", "Where to look (exploratory)", [
    el("p", { class: "quiet" }, "Mean times a step. Among so many rows some differ by chance, so p-values are adjusted (Benjamini-Hochberg). A row that stands out is a hint, no verdict."),
    tables.map(([dimension, title, rows]) => tableFigure(`explored-${dimension}`, title, rows, EXPLORED_COLUMNS)),
    tables.length ? null : el("p", { class: "remark" }, "Nothing takes a thousandth of the step."),
  ]);
}

function differencesSection() {
  const known = (side) => ({ key: side, label: side, text: (row) => row[side] ?? "not recorded" });
  return section("differences", "What else differs", [
    result.differences.length
      ? tableFigure("differences-table", "Settings, hosts, devices, recorded steps", result.differences, ["what", known("baseline"), known("candidate")])
      : el("p", null, "Settings, hosts, devices and recorded steps are the same, as far as they were recorded."),
  ]);
}

function start() {
  readHash();
  applyTheme();
  const sections = [
    ["verdict", "Verdict", verdictSection], ["change", "Change", changeSection], ["steps", "Steps", stepsSection], ["look", "Where to look", exploredSection], ["differences", "What else differs", differencesSection],
  ].map(([id, title, make]) => [id, title, make()]);
  showPage(topBar(sections), el("main", null, comparisonHeader(), sections.map(([, , made]) => made)));
}

start();
