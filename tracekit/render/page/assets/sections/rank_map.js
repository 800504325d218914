// All ranks at their places of the mesh, coloured by a number. The groups of the rank under the pointer are outlined.

const MAP = { least: 5, most: 46, height: 560, left: 54, top: 18 };
const BY_STEP = page.rank_steps.binned ? ["ranks"] : ["ranks", "steps"]; // what charts of single steps can follow
const PLACES = { row: "rows", column: "columns", inside: "inside of a block" };

/** Return a rank's mean over the chosen steps of a metric of ranks and steps, whose cells must be single steps. */
function meanOverSteps(key, rank) {
  const { ranks, steps, metrics } = page.rank_steps;
  const first = ranks.indexOf(rank) * steps.length;
  const { values } = metrics.find((metric) => metric.key === key);
  return first < 0 ? null : meanOf(steps.map((step, column) => (isStepChosen(step) ? values[first + column] : null)));
}

/**
 * Return where each rank stands: {cell, boxes: [x, y] of each, height, labels: [text, x, y, room]}.
 *
 * Dimensions inside fill a block; those of rows and columns arrange the blocks. Without one of columns, blocks are wrapped.
 */
function mapLayout(width) {
  const { dimensions, coordinates, ranks, source } = page.rank_map;
  const [rows, columns, inside] = ["row", "column", "inside"].map((place) => dimensions.map((dimension, at) => ({ ...dimension, at })).filter((dimension) => dimension.place === place));
  const sizeOf = (some) => some.reduce((product, { size }) => product * size, 1);
  const indexOf = (some, place) => some.reduce((index, { at, size }) => (index === null || coordinates[at][place] === null ? null : index * size + coordinates[at][place]), 0);
  const nameOf = (some, index) => some.reduceRight(([texts, rest], { name, size }) => [[`${name} ${rest % size}`, ...texts], Math.floor(rest / size)], [[], index])[0].join(" ");
  const innerColumns = inside.length > 1 ? inside.at(-1).size : squareWidth(sizeOf(inside));
  const innerRows = sizeOf(inside) / innerColumns;
  const isWrapped = !columns.length;
  const across = isWrapped ? wrapWidth(sizeOf(rows), innerColumns, innerRows, width - MAP.left) : sizeOf(columns);
  const down = isWrapped ? Math.ceil(sizeOf(rows) / across) : sizeOf(rows);
  const gap = inside.length && across * down > 1 ? (across * down > 64 ? 3 : 8) : 0;
  const left = down > 1 ? MAP.left : 0;
  const top = source === "mesh" && !isWrapped && across > 1 ? MAP.top : 0;
  const wide = (width - left - (across - 1) * gap) / (across * innerColumns);
  const high = (MAP.height - down * gap) / (down * innerRows);
  const cell = Math.max(Math.min(wide, high, MAP.most), Math.min(wide, MAP.least));
  const [blockWidth, blockHeight] = [cell * innerColumns + gap, cell * innerRows + gap];
  const bottom = top + down * blockHeight;
  const perLine = Math.max(1, Math.floor((width - left) / cell));
  let outside = 0;
  const boxes = ranks.map((_, place) => {
    const [row, column, inner] = [rows, columns, inside].map((some) => indexOf(some, place));
    if (row === null || column === null || inner === null) {
      const at = outside++;
      return [left + (at % perLine) * cell, bottom + MAP.top + Math.floor(at / perLine) * cell];
    }
    const [x, y] = isWrapped ? [row % across, Math.floor(row / across)] : [column, row];
    return [left + x * blockWidth + (inner % innerColumns) * cell, top + y * blockHeight + Math.floor(inner / innerColumns) * cell];
  });
  const labels = outside ? [["outside of the mesh", left, bottom + MAP.top / 2, width]] : [];
  const every = (room, least) => Math.ceil(least / room);
  for (let row = 0; left && row < down; row += every(blockHeight, 14)) labels.push([nameOf(rows, isWrapped ? row * across : row), 0, top + row * blockHeight + Math.max(cell / 2, 6), left - 4]);
  for (let column = 0; top && column < across; column += every(blockWidth, 48)) labels.push([nameOf(columns, column), left + column * blockWidth, 7, width]);
  return { cell, boxes, labels, height: bottom + (outside ? MAP.top + Math.ceil(outside / perLine) * cell : 0) };
}

/** Return the width of the squarest box of whole rows for so many cells. */
function squareWidth(count) {
  let width = Math.ceil(Math.sqrt(count));
  while (count % width) width += 1;
  return width;
}

/** Return how many blocks stand beside each other: the map is about twice as wide as high, and rows end evenly if they can. */
function wrapWidth(blocks, columns, rows, width) {
  const fitting = Math.max(1, Math.min(Math.floor(width / (columns * 6 + 3)), blocks));
  const wanted = Math.min(Math.ceil(Math.sqrt((blocks * rows * 2.5) / columns)), fitting);
  for (let each = Math.min(2 * wanted, fitting); each > wanted / 2; each -= 1) if (blocks % each === 0) return each;
  return wanted;
}

function ranksSection() {
  return section("ranks", page.rank_map.source === "mesh" ? "Ranks, by the mesh" : "Ranks", [rankMapChart()]);
}

/** Return for each kind of groups, such as tp, what colours ranks by their group of that kind: `values` are places in `groups`. */
function groupMetrics() {
  const idsOf = new Map();
  for (const id of new Set(page.rank_map.groups.flat())) {
    const kind = dimensionOf(id) ?? `${groupOf(id).ranks.length}-rank`;
    idsOf.set(kind, [...(idsOf.get(kind) ?? []), id]);
  }
  return [...idsOf].map(([kind, groups]) => {
    const placeOf = new Map(groups.map((id, place) => [id, place]));
    return {
      key: `group ${kind}`, title: `${kind} groups`, unit: "", groups,
      meaning: `Ranks of one group have the same colour and pattern; ${groups.length > MARKS.length ? `of ${groups.length} groups these repeat` : countText(groups.length, "group")}.`,
      values: page.rank_map.groups.map((ids) => ids.map((id) => placeOf.get(id)).find(isKnown) ?? null),
    };
  });
}

/** Return how the map is laid out, what its colours mean, and the least and the greatest value. */
function mapSummary({ title, unit, meaning, values, groups }) {
  const { dimensions, ranks, source, state: states } = page.rank_map;
  const isArranged = new Set(dimensions.map(({ place }) => place)).size > 1;
  const mesh = dimensions.map(({ name, size, place }) => `${name} ${size}${isArranged ? ` (${PLACES[place]})` : ""}`).join(", ");
  const layout = { mesh: `Laid out by the mesh: ${mesh}`, hosts: "A row is a host", ranks: "In the order of ranks; no mesh was recorded" }[source];
  const servers = ranks.filter((_, place) => states[place] === "server");
  const start = `${layout}.${servers.length ? ` ${sentence(`${ranksText(servers)} only serve${servers.length > 1 ? "" : "s"} the others`)}` : ""} Colour: ${title}. ${meaning}`;
  const range = extent(values);
  if (!range) return `${start} It is not known.`;
  if (groups) return start;
  const ends = range.map((value) => `${valueText(value, unit)} (rank ${ranks[values.indexOf(value)]})`);
  return `${start} ${range[0] === range[1] ? `All have ${valueText(range[0], unit)}.` : `From ${ends[0]} to ${ends[1]}.`}`;
}

function rankMapChart() {
  const map = page.rank_map;
  const metrics = [...map.metrics, ...groupMetrics()];
  let layout = null;
  let hovered = -1;

  /** Return the metric to colour by, of the chosen steps if it is one of ranks and steps. */
  const metric = () => {
    const chosen = chosenMetric(metrics, "map");
    const isByStep = state.steps && !page.rank_steps.binned && page.rank_steps.metrics.some(({ key }) => key === chosen.key);
    return isByStep ? { ...chosen, values: map.ranks.map((rank) => meanOverSteps(chosen.key, rank)) } : chosen;
  };
  const isAbsent = (place) => map.state[place] === "missing" || map.state[place] === "unmeasured";
  const blamed = () => (result.findings[state.finding]?.ranks ?? []).filter((_, __, all) => all.length < map.ranks.length);
  const coordinates = (place) => map.dimensions.map(({ name }, at) => `${name} ${map.coordinates[at][place] ?? "none"}`).join(", ");

  function draw(pen) {
    const { values, worse, groups } = metric();
    const range = extent(values);
    const { cell, boxes, labels } = layout;
    const size = Math.max(cell - 1, 1);
    const named = new Set(blamed());
    const mates = new Set((map.groups[hovered] ?? []).flatMap((id) => (Array.isArray(groupOf(id)?.ranks) ? groupOf(id).ranks : [])));
    for (const [text, x, y, room] of labels) pen.small(text, x, y, "left", room);
    boxes.forEach(([x, y], place) => {
      const rank = map.ranks[place];
      const share = isKnown(values[place]) ? shareOf(values[place], range, worse) : null;
      pen.opacity = isRankChosen(rank) ? 1 : 0.22;
      const isShaded = share !== null && !groups;
      pen.box(x, y, size, size, isAbsent(place) ? { part: "idle" } : share === null ? { colour: palette.surface, outline: palette.line } : groups ? { part: MARKS[values[place] % MARKS.length] } : { colour: heatColour(share) });
      if (cell >= 24) {
        if (groups && share !== null) pen.box(x + 4, y + size / 2 - 7, size - 8, 14, { colour: palette.page });
        pen.text(`${rank}`, x + size / 2, y + size / 2 + 0.5, { size: cell >= 34 ? 11 : 10, align: "center", colour: isShaded ? inkOn(heatRgb(share)) : palette.ink });
      }
      pen.opacity = 1;
      if (named.has(rank)) markNamed(pen, x, y, size);
      if (mates.has(rank)) pen.box(x - 1, y - 1, size + 2, size + 2, { outline: palette.communication, edge: Math.min(size / 4, 3) });
      if (place === hovered) pen.box(x - 2, y - 2, size + 4, size + 4, { outline: palette.ink, edge: 2 });
    });
  }

  function hover(place) {
    if (place === hovered) return;
    hovered = place;
    redraw(charts.get("rank-map"));
  }

  return chart({
    id: "rank-map", title: "Rank map", follows: BY_STEP,
    controls: [metricChooser(metrics, "map")],
    summary: () => mapSummary(metric()),
    legend: () => el(
      "div", { class: "scale-row" },
      metric().groups ? samples(metric().groups.slice(0, MARKS.length).map((id, at) => [swatch(MARKS[at]), ranksText(groupOf(id).ranks)])) : heatScale(extent(metric().values, [0, 0]), metric().unit, metric().worse),
      map.ranks.some((_, place) => isAbsent(place)) ? el("span", { class: "key" }, swatch("idle"), "missing, or without device records") : null,
      blamed().length ? el("span", { class: "key" }, sample(14, 14, (pen) => markNamed(pen, 0, 0, 14)), `named by finding ${state.finding + 1}`) : null,
    ),
    height: (width) => (layout = mapLayout(width)).height,
    draw,
    hit(x, y) {
      const place = layout.boxes.findIndex(([left, top]) => x >= left && x < left + layout.cell && y >= top && y < top + layout.cell);
      hover(place);
      if (place < 0) return null;
      const { title, unit, values, groups } = metric();
      return {
        rank: map.ranks[place],
        lines: [
          `Rank ${map.ranks[place]}${map.state[place] === "present" ? "" : `, ${map.state[place]}`}`, groups ? null : `${title}: ${valueText(values[place], unit)}`,
          map.source === "mesh" ? coordinates(place) : null, map.host[place] === null ? null : `host ${map.hosts[map.host[place]]}`,
          ...map.groups[place].slice(0, 6).map((id) => `group ${groupText(id)}`),
        ],
      };
    },
    leave: () => hover(-1),
    press: (found) => setState({ ranks: found ? [found.rank] : null }),
    table: () => ({
      rows: map.ranks.map((_, place) => place).filter((place) => isRankChosen(map.ranks[place])),
      columns: [
        ["rank", (place) => map.ranks[place]], ["state", (place) => map.state[place]],
        ...map.dimensions.map(({ name }, at) => ([`index=${name}`, (place) => map.coordinates[at][place]])).filter(() => map.source === "mesh"),
        ["host", (place) => map.hosts[map.host[place]]],
        ...metrics.map(({ key, title, unit, meaning, values, groups }) => ({ key, label: title, unit, meaning, value: (place) => (groups && values[place] !== null ? groupText(groups[values[place]]) : values[place]) })),
      ],
    }),
  });
}

/** Return the metric to colour by: the chosen one, else lateness where any is known, else the first that differs by 5%. */
function chosenMetric(metrics, choice) {
  const differs = ({ values, groups }) => {
    const [least, most] = extent(values, [0, 0]);
    return !groups && most - least > 0.05 * most;
  };
  return metrics.find(({ key }) => key === state[choice]) ?? metrics.find((metric) => metric.key === "lateness_ns" && differs(metric)) ?? metrics.find(differs) ?? metrics[0];
}

function metricChooser(metrics, choice) {
  return chooser("Colour by", metrics.map(({ key, title }) => [key, title]), () => chosenMetric(metrics, choice).key, (key) => setState({ [choice]: key }));
}

/** Return the scale of a heat map: its colours, with the least and the greatest value. */
function heatScale(range, unit, worse) {
  const scale = sample(120, 12, (pen) => {
    for (let x = 0; x < 120; x += 1) pen.box(x, 0, 1, 12, { colour: heatColour(shareOf(x, [0, 119], worse)) });
    pen.box(0, 0, 120, 12, { outline: palette.line });
  });
  return el("span", { class: "key" }, valueText(range[0], unit), scale, valueText(range[1], unit));
}

/** Return where a value is on the scale, from 0 to 1 (what stands out). */
function shareOf(value, [least, most], worse = "high") {
  const share = most > least ? (value - least) / (most - least) : 0;
  return worse === "low" ? 1 - share : share;
}

/** Return black or white, whichever can be read on a colour. */
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000000" : "#ffffff";
}

/** Mark a rank that the current finding names, by its edge and a corner. */
function markNamed(pen, x, y, size) {
  const { context } = pen;
  const corner = Math.min(size * 0.4, 9);
  pen.box(x, y, size, size, { outline: palette.delay, edge: size >= 12 ? 2 : 1 });
  context.fillStyle = palette.delay;
  context.beginPath();
  for (const [dx, dy] of [[0, 0], [corner, 0], [0, corner]]) context.lineTo(x + dx, y + dy);
  context.fill();
}
