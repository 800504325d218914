"use strict";
// Where the time of a step goes: its causes, ranks beside each other, its length over time, and what changes would save.

/** Return the section on the step. */
function stepSection() {
  const { step } = page;
  return section("step", "Where the step goes", [
    step.causes.length ? causesChart() : el("p", { class: "remark" }, `The step is not divided among causes: ${step.reason ?? "no diagnosis was made"}.`),
    barsChart(),
    page.rank_steps.steps.length > 1 ? lengthsChart() : null,
    step.waterfall.length ? waterfallChart() : el("p", { class: "remark" }, `What changes would save is not known: ${step.waterfall_reason ?? "no replay was made"}.`),
    idleChart(), phasesChart(),
  ]);
}

function causeName(cause) {
  return cause.where ? `${cause.label} · ${cause.where}` : cause.label;
}

function causesChart() {
  const { causes, step_ns } = page.step;
  const few = 12;
  const shown = causes.length > few + 1 ? causes.slice(0, few) : causes;
  const rest = causes.slice(shown.length);
  const parts = [...new Set(causes.map((cause) => cause.part))];
  const restTime = rest.reduce((sum, cause) => sum + cause.time_ns, 0);
  return barChart({
    id: "causes", title: "The step, divided among its causes", unit: "ns",
    summary: () => `The mean step of ${millisecondsText(step_ns, 2)}, along the longest chain over all ranks. The rows add up to it exactly. The largest: ${causeName(causes[0])}, ${percentText(causes[0].share)}.`,
    legend: () => legend(parts),
    rows: () => [
      { label: "The whole step", strong: true, segments: stacked(causes.map((cause) => [cause.part, cause.time_ns, `${causeName(cause)}: ${timeText(cause.time_ns)}`])), ends: millisecondsText(step_ns, 2) },
      ...shown.map((cause) => ({
        label: cause.label, note: cause.where, ranks: cause.ranks, strong: cause.ranks.length > 0 && cause.ranks.every(isRankChosen) && state.ranks !== null,
        segments: [{ part: cause.part, from: 0, to: cause.time_ns }], ends: `${millisecondsText(cause.time_ns, 2)}  ${percentText(cause.share)}`,
      })),
      ...(rest.length ? [{ label: countText(rest.length, "smaller cause"), segments: stacked(rest.map((cause) => [cause.part, cause.time_ns, causeName(cause)])), ends: `${millisecondsText(restTime, 2)}  ${percentText(restTime / step_ns)}` }] : []),
    ],
    press: (row) => row.ranks?.length && setState({ ranks: parseList(row.ranks, page.rank_map.ranks) }),
    table: () => ({
      rows: causes,
      columns: [
        { key: "label", label: "cause" }, { key: "where", label: "where" }, { key: "part", label: "counts as" },
        { key: "time_ns", label: "time a step", unit: "ns" }, { key: "share", label: "share of the step", unit: "ratio" },
      ],
    }),
  });
}

const STEP_PARTS = [["compute", "compute_ns"], ["exposed_comm", "exposed_comm_ns"], ["exposed_copy", "exposed_copy_ns"], ["idle", "idle_ns"]];
const MOST_BARS = 16;

/** Return the bars to show: slowest, median and fastest rank, or the chosen ranks, each as the mean of its steps. */
function shownBars() {
  const roles = new Map(page.step.bars.map((bar) => [bar.rank, bar.role]));
  if (state.ranks === null) return page.step.bars;
  const shown = (result.ranks ?? []).filter((row) => isRankChosen(row.rank) && row.steps).slice(0, MOST_BARS).map((row) => ({
    rank: row.rank, role: roles.get(row.rank) ?? null, steps: row.steps, step_ns: row.step_ns / row.steps,
    ...Object.fromEntries(STEP_PARTS.map(([, key]) => [key, row[key] / row.steps])), idle_by_cause: {},
  }));
  const shownRanks = new Set(shown.map((bar) => bar.rank));
  return [...shown, ...page.step.bars.filter((bar) => !shownRanks.has(bar.rank))];
}

function barsChart() {
  if (!page.step.bars.length) return null;
  const name = (bar) => (bar.role ? `rank ${bar.rank}, ${bar.role}` : `rank ${bar.rank}`);
  return barChart({
    id: "bars", title: "Ranks beside each other", unit: "ns",
    summary: () => barsText(), legend: () => legend(STEP_PARTS.map(([part]) => part).filter((part) => part !== "exposed_copy" || page.step.bars.some((bar) => bar.exposed_copy_ns > 0))),
    rows: () => shownBars().map((bar) => ({
      label: name(bar), strong: state.ranks !== null && isRankChosen(bar.rank), rank: bar.rank, ends: millisecondsText(bar.step_ns),
      segments: stacked(STEP_PARTS.map(([part, key]) => [part, bar[key], `${PARTS[part][0]}: ${timeText(bar[key])}, ${percentText(bar[key] / bar.step_ns)}`])),
    })),
    press: (row) => setState({ ranks: [row.rank] }),
    table: () => ({
      rows: shownBars(),
      columns: [
        { key: "rank", label: "rank" }, { key: "role", label: "role", text: (bar) => bar.role ?? "" }, { key: "steps", label: "steps" }, { key: "step_ns", label: "step", unit: "ns" },
        ...STEP_PARTS.map(([part, key]) => ({ key, label: PARTS[part][0].toLowerCase(), unit: "ns" })),
      ],
    }),
  });
}

function barsText() {
  const slowest = page.step.bars.find((bar) => bar.role === "slowest");
  const fastest = page.step.bars.find((bar) => bar.role === "fastest");
  const busy = (bar) => bar.step_ns - bar.exposed_comm_ns;
  const text = "Means of each rank's steps. Slowest and fastest are by the step without exposed communication, since ranks that meet in every step take equally long. ";
  if (!slowest || !fastest || slowest.rank === fastest.rank) return text;
  return `${text}Rank ${slowest.rank} is busy for ${millisecondsText(busy(slowest))} a step, rank ${fastest.rank} for ${millisecondsText(busy(fastest))}.`;
}

function waterfallChart() {
  const { waterfall } = page.step;
  const changes = waterfall.filter((row) => row.kind === "change");
  const best = changes.reduce((most, row) => (!most || row.saving_ns > most.saving_ns ? row : most), null);
  const names = { measured: "as measured", replayed: "as replayed", ideal: "all ranks and steps alike" };
  return barChart({
    id: "waterfall", title: "What changes would save", unit: "ns",
    summary: () => `Replays of this run, each with one change alone. Savings overlap, so they do not add up. ${best ? `The most: ${best.label}, ${millisecondsText(best.saving_ns)} a step.` : "No change saves more than its error."}`,
    legend: () => legend(["step", "saving"], { step: "The step", saving: "Saved; the line is its error" }),
    rows: () => waterfall.map((row) => {
      const isChange = row.kind === "change";
      const [low, high] = [Math.min(row.from_ns, row.to_ns), Math.max(row.from_ns, row.to_ns)];
      return {
        label: row.label || names[row.kind], strong: row.kind === "measured", ranks: row.ranks,
        segments: isChange ? [{ part: "step", from: 0, to: low }, { part: "saving", from: low, to: high, text: `saves ${timeText(row.saving_ns)}` }] : [{ part: "step", from: 0, to: high }],
        error: isChange && isKnown(row.error_ns) ? [low - row.error_ns, low + row.error_ns] : null,
        ends: isChange ? `−${millisecondsText(row.saving_ns)}` : millisecondsText(high),
      };
    }),
    press: (row) => row.ranks.length && setState({ ranks: parseList(row.ranks, page.rank_map.ranks) }),
    table: () => ({
      rows: waterfall,
      columns: [
        { key: "label", label: "change" }, { key: "kind", label: "kind" }, { key: "from_ns", label: "from", unit: "ns" }, { key: "to_ns", label: "to", unit: "ns" },
        { key: "saving_ns", label: "saving a step", unit: "ns" }, { key: "error_ns", label: "error", unit: "ns" },
        { key: "ranks", label: "ranks", text: (row) => (row.ranks.length ? rangesText(row.ranks) : "") },
      ],
    }),
  });
}

/** Return idle time by cause, the mean a step of the chosen ranks. */
function idleChart() {
  const rows = () => (result.idle_causes ?? []).filter((row) => isRankChosen(row.rank) && row.total_ns > 0);
  if (!(result.idle_causes ?? []).some((row) => row.total_ns > 0)) return null;
  const means = () => {
    const chosen = (result.ranks ?? []).filter((row) => isRankChosen(row.rank));
    const steps = chosen.reduce((sum, row) => sum + row.steps, 0) || 1;
    return [...sumsBy(rows(), (row) => row.cause, (row) => row.total_ns)].map(([cause, total]) => ({ cause, mean_ns: total / steps })).sort((a, b) => b.mean_ns - a.mean_ns);
  };
  return barChart({
    id: "idle", title: "Why ranks idle", unit: "ns",
    summary: () => `Idle time a step by its cause, mean of ${state.ranks ? ranksText(state.ranks) : "all ranks"}.`,
    rows: () => means().map(({ cause, mean_ns }) => ({ label: words(cause), segments: [{ part: "idle", from: 0, to: mean_ns }], ends: timeText(mean_ns) })),
    table: () => ({ rows: means(), columns: [{ key: "cause", label: "cause", text: (row) => words(row.cause) }, { key: "mean_ns", label: "mean a step", unit: "ns" }] }),
  });
}

function phasesChart() {
  const all = result.phases?.parts ?? [];
  if (!all.some((row) => row.total_ns > 0)) return null;
  const means = () => {
    const steps = (result.phases.ranks ?? []).filter((row) => isRankChosen(row.rank)).reduce((sum, row) => sum + row.steps, 0) || 1;
    const chosen = all.filter((row) => isRankChosen(row.rank));
    const phases = [...new Set(all.map((row) => row.phase))];
    return phases.map((phase) => {
      const of = chosen.filter((row) => row.phase === phase);
      return { phase, ...Object.fromEntries(["total_ns", ...STEP_PARTS.map(([, key]) => key)].map((key) => [key, of.reduce((sum, row) => sum + row[key], 0) / steps])) };
    }).filter((row) => row.total_ns > 0);
  };
  return barChart({
    id: "phases", title: "Phases of the step", unit: "ns",
    summary: () => `Mean time a step in each phase, and what it consists of, of ${state.ranks ? ranksText(state.ranks) : "all ranks"}.`,
    legend: () => legend(STEP_PARTS.map(([part]) => part)),
    rows: () => means().map((row) => ({ label: row.phase, ends: timeText(row.total_ns), segments: stacked(STEP_PARTS.map(([part, key]) => [part, row[key], `${PARTS[part][0]}: ${timeText(row[key])}`])) })),
    table: () => ({ rows: means(), columns: [{ key: "phase", label: "phase" }, { key: "total_ns", label: "time a step", unit: "ns" }, ...STEP_PARTS.map(([part, key]) => ({ key, label: PARTS[part][0].toLowerCase(), unit: "ns" }))] }),
  });
}
