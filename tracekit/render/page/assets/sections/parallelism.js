"use strict";
// What each form of parallelism costs: DDP's buckets, FSDP's modules, layers of tensor parallelism, experts, remote calls.

/** Return the section on parallelism, or null where the run has none that leaves a trace. */
function parallelismSection() {
  const parts = [
    result.buckets?.length ? bucketsChart() : null, result.bucket_whatif?.length ? bucketSizesChart() : null,
    page.fsdp_ladder ? ladderChart() : null, result.fsdp?.length ? fsdpChart() : null,
    ...(result.pipeline ? pipelineCharts() : []),
    result.expert_load?.length ? expertsChart() : null, result.tensor?.length ? tensorChart() : null, ...rpcTables(),
  ].filter(Boolean);
  return parts.length ? section("parallelism", "Parallelism", parts) : null;
}

/** Return the backward passes of a rank in a step, since the step's start; empty where the lanes do not have them. */
function backwardOf(rank, step) {
  const view = page.lanes.find((each) => each.step === step && each.ranks.some((row) => row.rank === rank));
  const row = view?.ranks.find((each) => each.rank === rank);
  return (row?.phases ?? []).filter(([, , name]) => view.names[name] === "backward").map(([from, to]) => [from - row.start_ns, to - row.start_ns]);
}

/** Return the rows of one rank's buckets in one step: of chosen ones, and where its backward pass is known, if there is one. */
function shownBuckets() {
  const chosen = result.buckets.filter((row) => isRankChosen(row.rank) && isStepChosen(row.step));
  const rows = chosen.length ? chosen : result.buckets;
  const seen = rows.find((row) => page.lanes.some((view) => view.kind === state.lanes && view.step === row.step && view.ranks.some((lane) => lane.rank === row.rank)));
  const first = seen ?? rows.find((row) => page.lanes.some((view) => view.step === row.step)) ?? rows[rows.length >> 1];
  return result.buckets.filter((row) => row.rank === first.rank && row.step === first.step).sort((a, b) => a.launch_ns - b.launch_ns);
}

function bucketsChart() {
  const sizeOf = (row) => (result.bucket_map ?? []).find((bucket) => bucket.index === row.index && bucket.module === row.module)?.size_bytes ?? null;
  return barChart({
    id: "buckets", title: "DDP buckets against the backward pass", unit: "ns",
    summary: () => {
      const [{ rank, step }] = shownBuckets();
      return `Rank ${rank} in step ${step}: each bucket's reduction, since the step began. A bucket is ready at its line, and queued until its reduction starts. What ends after the backward pass is exposed.`;
    },
    legend: () => legend(["backward", "wait", "communication"], { backward: "Backward pass", wait: "Queued", communication: "Reduction" }),
    rows: () => {
      const rows = shownBuckets();
      const backward = backwardOf(rows[0].rank, rows[0].step);
      return [
        ...(backward.length ? [{ label: "backward pass", segments: backward.map(([from, to]) => ({ part: "backward", from, to })), ends: "" }] : []),
        ...rows.map((row) => ({
          label: `bucket ${row.index}`, note: sizeOf(row) === null ? null : bytesText(sizeOf(row)), ends: `${timeText(row.exposed_ns)} exposed`,
          segments: [
            { part: "wait", from: row.launch_ns, to: Math.max(row.start_ns, row.launch_ns), text: `queued ${timeText(row.start_ns - row.launch_ns)}` },
            { part: "communication", from: row.start_ns, to: row.end_ns, text: `reduced in ${timeText(row.end_ns - row.start_ns)}` },
          ],
          marks: isKnown(row.ready_ns) ? [{ at: row.ready_ns, text: `ready at ${timeText(row.ready_ns)}` }] : [],
        })),
      ];
    },
    table: () => ({ rows: shownBuckets(), columns: resultColumns("buckets", result.buckets) }),
  });
}

function bucketSizesChart() {
  const rows = result.bucket_whatif;
  return barChart({
    id: "bucket-sizes", title: "Other sizes of buckets", unit: "ns",
    summary: () => "Exposed reductions a step with other values of bucket_cap_mb, replayed; the line is the error.",
    rows: () => rows.map((row) => ({
      label: `${threeDigits(row.bucket_cap_mb)} MB${row.present ? ", as it is" : ""}`, note: isKnown(row.buckets) ? countText(row.buckets, "bucket") : null, strong: row.present,
      segments: [{ part: "exposed_comm", from: 0, to: row.exposed_ns }], error: [Math.max(row.exposed_ns - row.error_ns, 0), row.exposed_ns + row.error_ns], ends: timeText(row.exposed_ns),
    })),
    table: () => ({ rows, columns: resultColumns("bucket_whatif", rows) }),
  });
}

function ladderChart() {
  const ladder = page.fsdp_ladder;
  const rows = ladder.module.map((module, at) => ({ module: module || "(root)", ...Object.fromEntries(["kind", "phase", "issue_ns", "start_ns", "end_ns", "use_ns"].map((key) => [key, ladder[key][at]])) }));
  return barChart({
    id: "ladder", title: "FSDP: gathered before use", unit: "ns",
    summary: () => `Rank ${ladder.rank} in step ${ladder.step}: each gather and reduction, since the step began. The line is the first use: a gather that ends before it is hidden.`,
    legend: () => legend(["wait", "communication", "bubble"], { wait: "Issued, queued", communication: "All-gather", bubble: "Reduce-scatter" }),
    rows: () => rows.filter((row) => state.phase === null || row.phase === state.phase).map((row) => ({
      label: row.module, note: [row.kind, row.phase].filter(Boolean).join(", "),
      segments: [
        { part: "wait", from: row.issue_ns ?? row.start_ns, to: row.start_ns, text: `issued ${timeText(row.start_ns - row.issue_ns)} before it starts` },
        { part: row.kind.startsWith("reduce") ? "bubble" : "communication", from: row.start_ns, to: row.end_ns, text: `takes ${timeText(row.end_ns - row.start_ns)}` },
      ],
      marks: isKnown(row.use_ns) ? [{ at: row.use_ns, text: `first used at ${timeText(row.use_ns)}` }] : [],
    })),
    table: () => ({ rows, columns: ["module", "kind", "phase", "issue_ns=issued", "start_ns=start", "end_ns=end", "use_ns=first use"] }),
  });
}

/** Return means over the chosen ranks by some keys of the rows. Sums are those of one occurrence where `perCount`. */
function meansBy(rows, keys, values) {
  const groups = new Map();
  for (const row of rows) {
    if (!isRankChosen(row.rank)) continue;
    const key = keys.map((name) => row[name]).join("\u0000");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()].map((members) => ({
    ...Object.fromEntries(keys.map((name) => [name, members[0][name]])), ranks: members.length,
    ...Object.fromEntries(Object.entries(values).map(([name, value]) => {
      const known = members.map(value).filter(isKnown);
      return [name, known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : null];
    })),
  }));
}

function fsdpChart() {
  const means = () => meansBy(result.fsdp, ["module", "kind", "phase"], {
    exposed_ns: (row) => row.exposed_ns / Math.max(row.count, 1), prefetch_ns: (row) => row.prefetch_ns, size_bytes: (row) => row.size_bytes / Math.max(row.count, 1), count: (row) => row.count,
  }).filter((row) => state.phase === null || row.phase === state.phase).sort((a, b) => b.exposed_ns * b.count - a.exposed_ns * a.count);
  return barChart({
    id: "fsdp", title: "FSDP: exposed gathers and reductions by module", unit: "ns",
    summary: () => `One occurrence each, mean of ${chosenRanksText()}; the line is how long before its first use a gather was issued. ${result.fsdp_remark ? `${result.fsdp_remark[0].toUpperCase()}${result.fsdp_remark.slice(1)}.` : ""}`,
    legend: () => legend(["exposed_comm"], { exposed_comm: "Exposed" }),
    rows: () => means().slice(0, MOST_ROWS + 6).map((row) => ({
      label: row.module || "(root)", note: [row.kind, row.phase].filter(Boolean).join(", "), ends: timeText(row.exposed_ns),
      segments: [{ part: "exposed_comm", from: 0, to: row.exposed_ns, text: `exposed ${timeText(row.exposed_ns)}, ${bytesText(row.size_bytes)}` }],
      marks: isKnown(row.prefetch_ns) ? [{ at: row.prefetch_ns, text: `issued ${timeText(row.prefetch_ns)} before use` }] : [],
    })),
    table: () => ({ rows: means(), columns: ["module", "kind", "phase", "count", "size_bytes=size", "exposed_ns=exposed each", "prefetch_ns=issued before use", "ranks"] }),
  });
}

function expertsChart() {
  const rows = () => result.expert_load.filter((row) => isRankChosen(row.rank)).sort((a, b) => b.ratio - a.ratio);
  return barChart({
    id: "experts", title: "Load of the experts", unit: "ratio", limit: () => ({ least: 0 }),
    summary: () => `Load of each rank's experts by the mean of the ranks that exchange tokens; the line is an even load. The most loaded: ${rows()[0] ? `rank ${rows()[0].rank}, ${percentText(rows()[0].ratio)}` : UNKNOWN}.`,
    rows: () => rows().slice(0, 24).map((row) => ({
      label: `rank ${row.rank}`, note: row.module, ends: percentText(row.ratio), rank: row.rank,
      segments: [{ part: row.ratio > 1.03 ? "delay" : "compute", from: 0, to: row.ratio ?? 0, text: isKnown(row.received_bytes) ? `received ${bytesText(row.received_bytes)}` : null }], marks: [{ at: 1 }],
    })),
    press: (row) => setState({ ranks: [row.rank] }),
    table: () => ({ rows: rows(), columns: resultColumns("expert_load", result.expert_load) }),
  });
}

function tensorChart() {
  const means = () => meansBy(result.tensor, ["module", "kind", "phase"], { layer_share: (row) => row.layer_share, exposed_ns: (row) => row.exposed_ns, layer_ns: (row) => row.layer_ns }).sort((a, b) => b.exposed_ns - a.exposed_ns);
  return barChart({
    id: "tensor", title: "Communication in layers", unit: "ratio", limit: () => ({ least: 0, most: 1 }),
    summary: () => `The share of each layer's time that its exposed communication takes, mean of ${chosenRanksText()}.`,
    rows: () => means().slice(0, MOST_ROWS).map((row) => ({ label: row.module, note: [row.kind, row.phase].filter(Boolean).join(", "), segments: [{ part: "exposed_comm", from: 0, to: row.layer_share ?? 0 }], ends: `${percentText(row.layer_share)} of ${timeText(row.layer_ns)}` })),
    table: () => ({ rows: means(), columns: ["module", "kind", "phase", "exposed_ns=exposed", "layer_ns=layer", "layer_share=share", "ranks"] }),
  });
}

function rpcTables() {
  const titles = { servers: "Servers", trainers: "Trainers", service: "Functions that servers ran", calls: "Remote calls" };
  return Object.entries(titles).filter(([key]) => result.rpc?.[key]?.length).map(([key, title]) => tableFigure(`rpc-${key}`, title, result.rpc[key], resultColumns(`rpc_${key}`, result.rpc[key])));
}
