// Communication: by kind, group and phase; how far apart ranks arrive; bandwidth by size; who sends to whom.

/** Return the section on communication, or null without any. */
function communicationSection() {
  const parts = [
    (result.dimensions_by_name ?? []).length > 1 ? dimensionsChart() : null, page.means.communication.length ? kindsChart() : null,
    page.skew.length ? skewChart() : null, page.bandwidth.length ? bandwidthChart() : null, page.pairs?.source.length ? pairsChart() : null,
  ].filter(Boolean);
  if (!parts.length) return null;
  if (page.communication_reason) parts.push(remark(`Arrivals and bandwidth are not known: ${page.communication_reason}.`));
  return section("communication", "Communication", parts);
}

/** Return the dimensions and phases that communication can be filtered by. */
function communicationChoices() {
  const names = (key) => [...new Set(page.means.communication.map((row) => row[key]))].filter(Boolean).sort();
  return { dimensions: names("group"), phases: names("phase") };
}

const isDimensionChosen = (dimension) => state.dimension === null || dimension === state.dimension;
const isPhaseChosen = (phase) => state.phase === null || phase === state.phase;

/** Return the mean a step of each kind, dimension and phase, over the chosen ranks that take part; the longest first. */
function communicationMeans() {
  const rows = result.communication?.map((row) => ({ ...row, group: dimensionOf(row.group) }));
  return meansOf("communication", rows, ["kind", "phase", "group"], ["count", "size_bytes", "total_ns", "exposed_ns"]).filter((row) => isDimensionChosen(row.group) && isPhaseChosen(row.phase)).sort(largestFirst("total_ns"));
}

function kindsChart() {
  return barChart({
    id: "kinds", title: "Time by kind, group and phase", follows: ["ranks", "dimension", "phase"], list: communicationMeans, columns: ["kind", "group", "phase", "count=count a step", "size_bytes=size a step", "total_ns=time a step", "exposed_ns=exposed a step"],
    summary: () => `Mean a step of ${chosenRanksText("communication")}, without those that take no part. Exposed is what no compute covers, with waiting. Rows may overlap.`,
    legend: () => legend(["exposed_comm", "overlapped_comm"]),
    bar: (row) => ({ label: row.kind, note: joined(row.group, row.phase), ends: [row.total_ns], segments: stacked([["exposed_comm", row.exposed_ns], ["overlapped_comm", Math.max(row.total_ns - row.exposed_ns, 0)]]) }),
  });
}

function dimensionsChart() {
  const rows = result.dimensions_by_name;
  return barChart({
    id: "dimensions", title: "What each dimension of the mesh costs", list: () => rows, columns: resultColumns("dimensions_by_name", rows),
    summary: () => "Mean time a step that ranks wait for the communication of each dimension, and its share of the step.",
    bar: (row) => ({ label: row.dimension ?? "unknown", isStrong: row.dimension === state.dimension, ends: [row.exposed_ns, [row.share, "ratio"]], segments: [{ part: "exposed_comm", from: 0, to: row.exposed_ns }] }),
  });
}

const collectiveColumns = [
  ["kind=collective", ({ of }) => of.kind], ["group", ({ of }) => groupText(of.group)],
  ["size_bytes", ({ of }) => of.size_bytes], ["count=instances", ({ of }) => of.count],
];

/** Return entries about rows of `result.collectives` that the filter lets pass, each with its row as `of`. */
function shownCollectives(entries) {
  return entries.map((entry) => ({ ...entry, of: result.collectives[entry.row] })).filter(({ of }) => of && isDimensionChosen(dimensionOf(of.group)) && (state.ranks === null || state.ranks.some((rank) => isInGroup(rank, of.group))));
}

/** Return a dot for each instance, of the kind of the rank that came last; none where there are many. */
function arrivalDots({ skew_ns, last_rank, step }, lastRanks) {
  return skew_ns.map((at, place) => {
    const rank = last_rank[place];
    const who = rank === null ? "within the clocks' error" : `rank ${rank} last`;
    return { at, kind: lastRanks.includes(rank) ? lastRanks.indexOf(rank) : OTHER_MARK, text: `step #${step[place]}: ${timeText(at)}, ${who}` };
  });
}

function skewChart() {
  const list = () => shownCollectives(page.skew).sort((a, b) => b.quantiles_ns[3] - a.quantiles_ns[3]);
  const counts = new Map(); // of instances by the rank that came last
  for (const rank of page.skew.flatMap((row) => row.last_rank)) if (rank !== null) counts.set(rank, (counts.get(rank) ?? 0) + 1);
  const lastRanks = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, OTHER_MARK);
  const isUnnamed = page.skew.some((row) => row.last_rank.some((rank) => !lastRanks.includes(rank)));
  return barChart({
    id: "skew", title: "How far apart ranks arrive", follows: ["ranks", "dimension"], isLog: true, list,
    columns: [...collectiveColumns, ...["least", "5%", "25%", "median", "75%", "95%", "most"].map((label, at) => ([`skew_ns=${label}`, (row) => row.quantiles_ns[at]])), "error_ns=clocks' error"],
    summary: () => "Time from the first to the last arrival at a collective. A dot is an instance, by the rank that came last; of many instances their distribution is shown. The line and the number are the median.",
    legend: () => (page.skew.some((row) => row.skew_ns.length) ? samples([...lastRanks.map((rank, kind) => [pointSample(kind), `rank ${rank} last`]), ...(isUnnamed ? [[pointSample(OTHER_MARK), "another rank, or within the clocks' error"]] : [])]) : null),
    bar: (row) => {
      const { quantiles_ns, edges_ns, counts: sizes, of } = row;
      const most = Math.max(...sizes);
      const bins = sizes.map((count, bin) => ({ part: "wait", from: edges_ns[bin], to: edges_ns[bin + 1], tall: 0.15 + (0.85 * count) / most, count }));
      return {
        label: of.size_bytes === null ? of.kind : `${of.kind}, ${bytesText(of.size_bytes)}`, note: groupText(of.group), ends: [quantiles_ns[3]],
        segments: bins.filter((bin) => bin.count).map((bin) => ({ ...bin, text: `${countText(bin.count, "instance")} of ${timeText(bin.from)} to ${timeText(bin.to)}` })),
        dots: arrivalDots(row, lastRanks), marks: of.count > 1 ? [{ at: quantiles_ns[3], text: `longest ${timeText(quantiles_ns[6])}, median:` }] : [],
      };
    },
  });
}

function bandwidthChart() {
  const shown = () => shownCollectives(page.bandwidth).filter((point) => point.size_bytes > 0 && point.busbw_bps > 0).sort((a, b) => a.size_bytes - b.size_bytes);
  const kinds = [...new Set(page.bandwidth.map((point) => result.collectives[point.row]?.kind))];
  const around = (values) => extent(values.filter((value) => value > 0), [1, 10]).map((end, at) => (at ? end * 2 : end / 2));
  return plotChart({
    id: "bandwidth", title: "Bandwidth by size", follows: ["ranks", "dimension"], isLog: true,
    summary: () => "Bus bandwidth of each collective, at its median time; the line spans from the slowest to the fastest tenth.",
    legend: () => samples(kinds.map((kind, at) => [pointSample(at), kind])),
    x: { unit: "bytes", label: "size of the full array", range: (points) => around(points.map((point) => point.x)) },
    y: { unit: "B/s", range: (points) => around(points.flatMap((point) => [...point.y, point.low_bps, point.high_bps])) },
    points: () => shown().map((point) => ({
      ...point, x: point.size_bytes, y: [point.busbw_bps],
      lines: [point.of.kind, groupText(point.of.group), bytesText(point.size_bytes), valueText(point.busbw_bps, "B/s")],
    })),
    paint: (pen, points, toX, toY) => points.forEach(({ of, x, y: [middle], low_bps, high_bps }) => {
      const kind = kinds.indexOf(of.kind);
      pen.line(toX(x), toY(low_bps || middle), toX(x), toY(high_bps || middle), markOf(kind), 1.5);
      pen.context.fillStyle = markOf(kind);
      drawPoint(pen.context, kind, toX(x), toY(middle), 4.5);
    }),
    table: () => ({ rows: shown(), columns: [...collectiveColumns, "busbw_bps=bus bandwidth", "low_bps=slowest tenth", "high_bps=fastest tenth"] }),
  });
}

const PAIRS = { left: 46, top: 20, most: 34, width: 620 };

function pairsChart() {
  const { pairs } = page;
  const metrics = [["size_bytes", "size"], ["count", "messages"], ["mean_bps", "bandwidth"], ["transfer_ns", "transfer time"]].filter(([key]) => pairs[key].some(isKnown));
  const metric = () => (metrics.find(([key]) => key === state.pairs) ?? metrics[0])[0];
  const ranks = [...new Set([...pairs.source, ...pairs.destination])].sort((a, b) => a - b);
  const placeOf = new Map(ranks.map((rank, place) => [rank, place]));
  const cellText = (rank) => (pairs.ranks_per_cell > 1 ? `ranks ${rank}-${rank + pairs.ranks_per_cell - 1}` : `rank ${rank}`);
  const isShown = (at) => isRankChosen(pairs.source[at]) || isRankChosen(pairs.destination[at]);
  const range = () => [0, extent(pairs[metric()], [0, 1])[1]];
  let cell = 1;
  return chart({
    id: "pairs", title: "Messages from rank to rank", follows: ["ranks"],
    controls: [chooser("Colour by", metrics, metric, (key) => setState({ pairs: key }))],
    summary: () => `A row is the sender, a column the receiver. ${countText(pairs.source.length, "pair")} exchanged messages.`,
    legend: () => heatScale(range(), unitOf(metric())),
    height: (width) => {
      cell = Math.min(Math.max((Math.min(width, PAIRS.width) - PAIRS.left) / ranks.length, 1), PAIRS.most);
      return cell * ranks.length + PAIRS.top + 4;
    },
    draw(pen) {
      const values = pairs[metric()];
      const side = cell * ranks.length;
      const inner = Math.max(cell - 1, 1);
      pen.box(PAIRS.left, PAIRS.top, side, side, { colour: palette.surface, outline: palette.line });
      for (let place = 0; place < ranks.length; place += Math.ceil(28 / cell)) {
        pen.small(String(ranks[place]), PAIRS.left - 6, PAIRS.top + (place + 0.5) * cell, "right");
        pen.small(String(ranks[place]), PAIRS.left + (place + 0.5) * cell, 10, "center");
      }
      pairs.source.forEach((source, at) => {
        pen.opacity = isShown(at) ? 1 : 0.2;
        const [x, y] = [PAIRS.left + placeOf.get(pairs.destination[at]) * cell, PAIRS.top + placeOf.get(source) * cell];
        pen.box(x, y, inner, inner, values[at] === null ? { part: "idle" } : { colour: heatColour(0.15 + 0.85 * shareOf(values[at], range())) });
      });
      pen.opacity = 1;
    },
    hit(x, y) {
      const [column, row] = [x - PAIRS.left, y - PAIRS.top].map((offset) => ranks[Math.floor(offset / cell)]);
      const at = pairs.source.findIndex((source, index) => source === row && pairs.destination[index] === column);
      return at < 0 ? null : { lines: [`${cellText(row)} to ${cellText(column)}`, ...metrics.map(([key, name]) => `${name}: ${valueText(pairs[key][at], unitOf(key))}`)] };
    },
    table: () => ({
      rows: pairs.source.map((_, at) => at).filter(isShown),
      columns: [["source", "from rank"], ["destination", "to rank"], ...metrics].map(([key, label]) => [`${key}=${label}`, (at) => pairs[key][at]]),
    }),
  });
}
