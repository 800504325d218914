// Each rank in each step as one cell. A drag chooses ranks and steps for all charts.

const HEAT = { left: 58, bottom: 24, row: 15, most: 620 };

function rankStepsSection() {
  const grid = page.rank_steps;
  const isEmpty = !grid.row_first.length || !grid.column_first.length;
  if (grid.steps.length === 1) return null; // the picture shows it
  return section("steps", "Every rank in every step", [isEmpty ? remark("No rank completed a step.") : heatChart()]);
}

/** Return whether a row of the heat map has a rank that the filter lets pass. */
function isRowChosen(row) {
  if (state.ranks === null) return true;
  const { ranks, row_first, row_last } = page.rank_steps;
  return ranks.slice(row_first[row], row_last[row] + 1).some(isRankChosen);
}

function isColumnChosen(column) {
  const { steps, column_first, column_last } = page.rank_steps;
  return steps.slice(column_first[column], column_last[column] + 1).some(isStepChosen);
}

/** Return the steps of the columns from `first` to `last`. */
function stepsOfColumns(first, last) {
  const { steps, column_first, column_last } = page.rank_steps;
  return steps.slice(column_first[first], column_last[last] + 1);
}

const spanText = (noun, first, last) => (first === last ? `${noun}${first}` : `${noun.replace(" ", "s ")}${first}-${last}`);

function rowText(row) {
  const { ranks, row_first, row_last } = page.rank_steps;
  return spanText("rank ", ranks[row_first[row]], ranks[row_last[row]]);
}

function columnText(column) {
  const { steps, column_first, column_last } = page.rank_steps;
  return spanText("step #", steps[column_first[column]], steps[column_last[column]]);
}

const heatMetric = () => chosenMetric(page.rank_steps.metrics, "heat");

/** Return the rows in the order that is chosen. */
function heatOrder() {
  const grid = page.rank_steps;
  const width = grid.column_first.length;
  const rows = grid.row_first.map((_, row) => row);
  const by = { host: null, rank: null, lateness: grid.metrics.find(({ key }) => key === "lateness_ns"), value: heatMetric() }[state.sort];
  if (state.sort === "host") return rows.sort((a, b) => (grid.hosts[grid.row_first[a]] ?? Infinity) - (grid.hosts[grid.row_first[b]] ?? Infinity) || a - b);
  if (!by) return rows;
  const sums = rows.map((row) => sumOf(by.values.slice(row * width, (row + 1) * width), (value) => value));
  return rows.sort((a, b) => sums[b] - sums[a] || a - b);
}

function heatChart() {
  const grid = page.rank_steps;
  const { ranks, steps, metrics, row_first, row_last, column_first, column_last } = grid;
  const width = column_first.length;
  const ranksOf = (rows) => rows.flatMap((row) => ranks.slice(row_first[row], row_last[row] + 1)).sort((a, b) => a - b);
  let order = [];
  let place = null;

  function plan(whole) {
    order = heatOrder();
    const inner = whole - HEAT.left;
    const height = Math.min(Math.max(order.length * HEAT.row, 40), HEAT.most);
    const lines = Math.min(order.length, Math.floor(height * pixelRatio()));
    place = { inner, height, cellWidth: inner / width, cellHeight: height / order.length, image: heatImage(heatMetric(), order, width, lines) };
    return height + HEAT.bottom;
  }

  function draw(pen) {
    const { inner, height, cellWidth, cellHeight, image } = place;
    pen.context.imageSmoothingEnabled = false;
    pen.context.drawImage(image, HEAT.left, 0, inner, height);
    if (cellWidth > 8 && cellHeight > 8) {
      for (let column = 1; column < width; column += 1) pen.line(HEAT.left + column * cellWidth, 0, HEAT.left + column * cellWidth, height, palette.page);
      for (let row = 1; row < order.length; row += 1) pen.line(HEAT.left, row * cellHeight, HEAT.left + inner, row * cellHeight, palette.page);
    }
    for (let row = 0; row < order.length; row += Math.ceil((cellHeight < 14 ? 20 : 14) / cellHeight)) {
      const text = cellHeight < 14 ? `${row ? "" : "rank "}${ranks[row_first[order[row]]]}` : rowText(order[row]);
      pen.small(text, HEAT.left - 6, Math.max((row + 0.5) * cellHeight, 6), "right", HEAT.left - 8);
    }
    const room = pen.widthOf(columnText(width - 1), 11);
    for (let column = 0; column < width; column += Math.ceil((room + 24) / cellWidth)) {
      pen.small(columnText(column), Math.min(HEAT.left + Math.max((column + 0.5) * cellWidth, room / 2), pen.width - room / 2), height + 12, "center");
    }
  }

  const at = ([x, y]) => [Math.floor(y / place.cellHeight), Math.floor((x - HEAT.left) / place.cellWidth)];
  const choose = (rows, first, last) => setState({ ranks: someOf(ranksOf(rows), ranks), steps: someOf(stepsOfColumns(first, last), steps) });

  const sorts = [["rank", "rank"], ["host", "host"], ["lateness", "lateness"], ["value", "what is shown"]];
  return chart({
    id: "heat", title: "Ranks and steps", follows: ["ranks", "steps"],
    controls: [
      metricChooser(metrics, "heat"), chooser("Order by", sorts, () => state.sort, (sort) => setState({ sort })),
    ],
    summary: () => {
      const { meaning, values, title } = heatMetric();
      const range = extent(values);
      if (!range) return `${title} is not known.`;
      const most = values.indexOf(range[1]);
      return `Colour: ${title}. ${meaning} The most is ${timeText(range[1])}, ${rowText(Math.floor(most / width))} in ${columnText(most % width)}. Drag over cells to choose ranks and steps for all charts.${grid.text ? ` ${grid.text}` : ""}`;
    },
    legend: () => heatScale(extent(heatMetric().values, [0, 0]), "ns"),
    height: plan,
    draw,
    hit(x, y) {
      const [line, column] = at([x, y]);
      const row = order[line];
      if (row === undefined || column < 0 || column >= width) return null;
      const host = grid.hosts[row_first[row]];
      const shown = [heatMetric(), ...metrics.filter((metric) => metric !== heatMetric())];
      return { row, column, lines: [`${rowText(row)}, ${columnText(column)}`, ...shown.map(({ title, values }) => `${title}: ${timeText(values[row * width + column])}`), host === null ? null : `host ${page.rank_map.hosts[host]}`] };
    },
    brush(from, to) {
      const ends = [at(from), at(to)];
      const [rows, columns] = [order.length, width].map((count, axis) => ends.map((end) => Math.min(Math.max(end[axis], 0), count - 1)).sort((a, b) => a - b));
      choose(order.slice(rows[0], rows[1] + 1), ...columns);
    },
    press: (found) => found && choose([found.row], found.column, found.column),
    table() {
      const cells = grid.row_first.flatMap((_, row) => (isRowChosen(row) ? column_first.map((__, column) => [row, column]).filter(([, column]) => isColumnChosen(column)) : []));
      const span = (key, label, value, text) => ({ key, label, value, ...(grid.binned ? { text } : {}) });
      return {
        rows: cells,
        columns: [
          span("rank", "rank", ([row]) => ranks[row_first[row]], ([row]) => rowText(row)), span("step", "step", ([, column]) => steps[column_first[column]], ([, column]) => columnText(column)),
          ...metrics.map(({ key, title, meaning, values }) => ({ key, label: title, meaning, value: ([row, column]) => values[row * width + column] })),
        ],
      };
    },
  });
}

/** Return a canvas with a pixel a cell; where rows share one of `lines`, it has the greatest of them. */
function heatImage({ values }, order, width, lines) {
  const canvas = el("canvas", { width, height: lines });
  const image = new ImageData(width, lines);
  const range = extent(values, [0, 1]);
  const [empty, background] = [palette.surface, palette.page].map(rgbOf);
  const columns = Array.from({ length: width }, (_, column) => isColumnChosen(column));
  for (let line = 0; line < lines; line += 1) {
    const members = order.slice(Math.floor((line * order.length) / lines), Math.floor(((line + 1) * order.length) / lines));
    const isChosen = members.some(isRowChosen);
    for (let column = 0; column < width; column += 1) {
      const most = extent(members.map((row) => values[row * width + column]))?.[1];
      const colour = most === undefined ? empty : heatRgb(shareOf(most, range));
      const strength = isChosen && columns[column] ? 1 : 0.25;
      image.data.set([...colour.map((channel, at) => channel * strength + background[at] * (1 - strength)), 255], (line * width + column) * 4);
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
