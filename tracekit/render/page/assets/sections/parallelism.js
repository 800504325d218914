// What each form of parallelism costs: DDP's buckets, FSDP's modules, layers of tensor parallelism, experts, remote calls.

/** Return the section on parallelism, or null where the run has none that leaves a trace. */
function parallelismSection() {
  const candidates = [
    [result.buckets, bucketsChart], [page.fsdp_ladder?.module, ladderChart], [result.fsdp, fsdpChart],
    [page.pipeline?.ranks, actionsChart], [result.pipeline?.by_rank, bubblesChart], [result.pipeline?.by_stage, stagesChart],
    [result.expert_load, expertsChart], [result.tensor, tensorChart],
  ];
  const sizes = result.bucket_whatif ?? [];
  const tables = { servers: "Servers", trainers: "Trainers", service: "Functions that servers ran", calls: "Remote calls" };
  const parts = candidates.filter(([rows]) => rows?.length).map(([, make]) => make());
  if (sizes.length) parts.push(tableFigure("bucket-sizes", "Other sizes of DDP buckets, replayed", sizes, resultColumns("bucket_whatif", sizes)));
  for (const [key, title] of Object.entries(tables)) {
    if (result.rpc?.[key]?.length) parts.push(tableFigure(`rpc-${key}`, title, result.rpc[key], resultColumns(`rpc_${key}`, result.rpc[key])));
  }
  return parts.length ? section("parallelism", "Parallelism", parts) : null;
}

const MODULE_KEYS = ["module", "kind", "phase"];
const placeText = ({ kind, phase }) => joined(kind, phase);
const moduleText = ({ module }) => module || "(root)";

/** Return the backward passes of a rank in a step, since the step's start; empty where the lanes do not have them. */
function backwardOf({ rank, step }) {
  for (const { step: shown, ranks, names } of page.lanes) {
    const row = shown === step && ranks.find((each) => each.rank === rank);
    if (row) return row.phases.filter(([, , name]) => names[name] === "backward").map(([from, to]) => [from - row.start_ns, to - row.start_ns]);
  }
  return [];
}

/** Return the buckets of one rank in one step, chosen ones if there are any, and such that its backward pass is known. */
function shownBuckets() {
  const chosen = result.buckets.filter((row) => isRankChosen(row.rank) && isStepChosen(row.step));
  const rows = chosen.length ? chosen : result.buckets;
  const first = rows.find((row) => backwardOf(row).length) ?? rows[rows.length >> 1];
  return result.buckets.filter((row) => row.rank === first.rank && row.step === first.step).sort((a, b) => a.launch_ns - b.launch_ns);
}

function bucketsChart() {
  const sizeOf = ({ index, module }) => (result.bucket_map ?? []).find((bucket) => bucket.index === index && bucket.module === module)?.size_bytes;
  return barChart({
    id: "buckets", title: "DDP buckets against the backward pass", follows: ["ranks", "steps"], list: shownBuckets, columns: resultColumns("buckets", result.buckets), most: 40, suffix: "uncovered",
    summary: () => `Rank ${shownBuckets()[0].rank} in step #${shownBuckets()[0].step}, since the step began. A bucket's gradients are ready at its line; then it is queued until its reduction starts. Nothing covers what ends after the backward pass.`,
    legend: () => legend([...(backwardOf(shownBuckets()[0]).length ? ["backward"] : []), "wait", "communication"], { backward: "Backward pass", wait: "Queued", communication: "Reduction" }),
    before: () => {
      const passes = backwardOf(shownBuckets()[0]);
      return passes.length ? [{ label: "backward pass", segments: passes.map(([from, to]) => ({ part: "backward", from, to })) }] : [];
    },
    bar: (row) => ({
      label: `bucket ${row.index}`, note: bytesText(sizeOf(row)), ends: [row.uncovered_ns],
      segments: [
        { part: "wait", from: row.launch_ns, to: Math.max(row.start_ns, row.launch_ns), text: `queued ${timeText(row.start_ns - row.launch_ns)}` },
        { part: "communication", from: row.start_ns, to: row.end_ns, text: `reduced in ${timeText(row.end_ns - row.start_ns)}` },
      ],
      marks: isKnown(row.ready_ns) ? [{ at: row.ready_ns, text: `ready at ${timeText(row.ready_ns)}` }] : [],
    }),
  });
}

function ladderChart() {
  const { rank, step, module: modules, ...columns } = page.fsdp_ladder;
  const keys = ["phase", "ahead", "transfer_ns", "wait_ns", "compute_before_ns"];
  const rows = modules.map((module, at) => ({ module, ...record(keys, (key) => columns[key][at]) }));
  return barChart({
    id: "ladder", title: "FSDP: gathers in the order of use", follows: ["phase"], most: 60, suffix: "exposed", columns: ["module", ...keys], list: () => rows.filter((row) => isPhaseChosen(row.phase)),
    summary: () => `Rank ${rank} in step #${step}. The line is the compute of the module before${result.fsdp_remark ? `. ${sentence(result.fsdp_remark)}` : ": a gather that is issued one module ahead can hide under it."}`,
    legend: () => legend(["exposed_comm", "overlapped_comm"], { exposed_comm: "Compute waits for it" }),
    bar: (row) => ({
      label: moduleText(row), note: joined(row.phase, `issued ${countText(row.ahead, "module")} ahead`), ends: [row.wait_ns],
      segments: stacked([["exposed_comm", row.wait_ns], ["overlapped_comm", Math.max(row.transfer_ns - row.wait_ns, 0)]]),
      marks: isKnown(row.compute_before_ns) ? [{ at: row.compute_before_ns, text: `compute before it ${timeText(row.compute_before_ns)}` }] : [],
    }),
  });
}

function fsdpChart() {
  const sizes = new Map(result.fsdp.map(({ module, unit_bytes }) => [module, unit_bytes]));
  return barChart({
    id: "fsdp", title: "FSDP: exposed gathers and reductions by module", follows: ["ranks", "phase"],
    columns: ["module", "kind", "phase", "count=count a step", "exposed_ns=exposed a step", "prefetch_ns=issued before use", ["unit_bytes=parameters", (row) => sizes.get(row.module)]],
    list: () => meansOf("fsdp", result.fsdp, MODULE_KEYS, ["count", "exposed_ns"], ["prefetch_ns"]).filter((row) => isPhaseChosen(row.phase)).sort(largestFirst("exposed_ns")),
    summary: () => `Mean a step of ${chosenRanksText("fsdp")}. The line is how long before its use an all-gather was issued.${result.fsdp_remark && !page.fsdp_ladder ? ` ${sentence(result.fsdp_remark)}` : ""}`,
    legend: () => legend(["exposed_comm"]),
    bar: (row) => ({ label: moduleText(row), note: placeText(row), ends: [row.exposed_ns], segments: [{ part: "exposed_comm", from: 0, to: row.exposed_ns }], marks: isKnown(row.prefetch_ns) ? [{ at: row.prefetch_ns, text: `issued ${timeText(row.prefetch_ns)} before use; exposed:` }] : [] }),
  });
}

function expertsChart() {
  const rows = () => result.expert_load.filter((row) => isRankChosen(row.rank)).sort(largestFirst("ratio"));
  return barChart({
    id: "experts", title: "Load of the experts", follows: ["ranks"], unit: "ratio", upTo: 1, most: 24, list: rows, columns: resultColumns("expert_load", result.expert_load), ranksOf: (row) => [row.rank],
    summary: () => `Load of each rank's experts by the mean of the ranks that exchange tokens; the line is an even load.${rows()[0] ? ` The most: rank ${rows()[0].rank}, ${percentText(rows()[0].ratio)}.` : ""}`,
    bar: (row) => ({ label: `rank ${row.rank}`, note: row.module, ends: [row.ratio], segments: [{ part: row.ratio > 1.03 ? "delay" : "compute", from: 0, to: row.ratio ?? 0, text: `received ${bytesText(row.received_bytes)}` }], marks: [{ at: 1 }] }),
  });
}

function tensorChart() {
  const share = (row) => (row.layer_ns ? row.exposed_ns / row.layer_ns : null);
  return barChart({
    id: "tensor", title: "Communication in layers", follows: ["ranks", "phase"], unit: "ratio", upTo: 1,
    columns: ["module", "kind", "phase", "exposed_ns=exposed a step", "layer_ns=layer a step", ["layer_share=share", share]],
    list: () => meansOf("tensor", result.tensor, MODULE_KEYS, ["exposed_ns", "layer_ns"]).filter((row) => isPhaseChosen(row.phase)).sort(largestFirst("exposed_ns")),
    summary: () => `The share of each layer's time that its exposed communication takes, and that time, mean of ${chosenRanksText("tensor")}.`,
    bar: (row) => ({ label: moduleText(row), note: placeText(row), segments: [{ part: "exposed_comm", from: 0, to: share(row) ?? 0 }], ends: row.layer_ns ? [share(row), [row.layer_ns, "ns"]] : ["", `${timeText(row.uncovered_ns)} uncovered`] }),
  });
}
