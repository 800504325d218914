// A chart of horizontal bars, each of one or more parts. Labels stand beside the bars, or above them where it is narrow.

const BAR = { height: 18, line: 15, gap: 9, narrow: 560, most: 16, dot: 3.5 };

/**
 * Return a figure of bars.
 *
 *   list()    rows of data, those that matter first; the table has all of them
 *   columns   of the table
 *   bar(row)  {label, note, segments: [{part, from, to, text, tall}], ends, error: [low, high], marks: [{at, text}],
 *             dots: [{at, kind, text}], isStrong: whether it stands out}; `tall` is a share of the bar's height.
 *             `ends` stand at the right, in columns: values in `unit`, [value, unit], or texts
 *   suffix    a word after the first of them
 *   before()  bars above those of the rows
 *   most      how many rows have a bar
 *   unit      of `from` and `to`: "ns" unless it says so
 *   isLog     whether the axis is logarithmic
 *   upTo      the least end of the axis
 *   ranksOf(row)   a press on the bar chooses these
 * The other options are those of `chart`.
 */
function barChart(options) {
  const { unit = "ns", isLog = false, most: shownRows = BAR.most, list, columns, ranksOf } = options;
  let places = [];
  let layout = null;

  function bars() {
    const rows = list().slice(0, shownRows);
    const all = [...(options.before?.() ?? []), ...rows.map((row) => ({ ...options.bar(row), row }))];
    const columns = [0, 1].map((at) => endTexts(all.map((bar) => bar.ends?.[at])));
    return all.map((bar, row) => ({ ...bar, ends: bar.ends?.map((_, at) => joined(columns[at][row]) + (options.suffix && !at ? ` ${options.suffix}` : "")) }));
  }

  /** Return numbers as texts: in one unit with as many decimals, unless the axis is logarithmic. */
  function endTexts(ends) {
    const cells = ends.map((end) => (end === null || isKnown(end) ? [end, unit] : end));
    const numbers = cells.filter(Array.isArray);
    const scale = columnScale(numbers[0]?.[1], numbers.map(([value]) => value).filter(isKnown));
    return cells.map((cell) => (!Array.isArray(cell) ? cell : isLog ? valueText(...cell) : scaledText(cell[0], scale)));
  }

  function plan(pen) {
    const all = bars();
    const isNarrow = pen.width < BAR.narrow;
    const widest = [0, 1].map((at) => Math.max(...all.map((bar) => (bar.ends?.[at] ? pen.widthOf(bar.ends[at], 12, 600) + 12 : 0)), 0));
    const wanted = Math.max(...all.map((bar) => Math.max(pen.widthOf(bar.label, 12, 600), pen.widthOf(bar.note ?? "", 11))), 40) + 14;
    const left = isNarrow ? 0 : Math.min(wanted, pen.width * 0.36);
    const right = pen.width - (isNarrow ? 0 : widest[0] + widest[1]) - 2;
    const values = all.flatMap((bar) => [...bar.segments.flatMap((each) => [each.from, each.to]), ...(bar.error ?? []), ...[...(bar.marks ?? []), ...(bar.dots ?? [])].map(({ at }) => at)]);
    const [low, high] = extent(isLog ? values.filter((value) => value > 0) : values, [1, 10]);
    const least = isLog ? low : Math.min(low, 0);
    const most = Math.max(high, options.upTo ?? 0, least + 1e-9);
    const scaled = isLog ? (value) => Math.log(Math.max(value, least)) : (value) => value;
    const toX = (value) => left + ((scaled(value) - scaled(least)) / (scaled(most) - scaled(least))) * (right - left);
    let top = 2;
    places = all.map((bar) => {
      const room = isNarrow ? pen.width - widest[0] - widest[1] : left - 14;
      const isJoined = isNarrow && bar.note;
      const lines = pen.wrapped(isJoined ? `${bar.label}, ${bar.note}` : bar.label, room, 12, bar.isStrong ? 600 : 400);
      const notes = bar.note && !isJoined ? pen.wrapped(bar.note, room, 11) : [];
      const height = (lines.length + notes.length) * BAR.line;
      const place = { bar, lines, notes, top, y: isNarrow ? top + height + 2 : top + Math.max((height - BAR.height) / 2, 0) };
      top = isNarrow ? place.y + BAR.height + BAR.gap : top + Math.max(height, BAR.height) + BAR.gap;
      place.bottom = top - BAR.gap / 2;
      return place;
    });
    layout = { toX, least, most, bottom: top, isNarrow, ends: [pen.width - widest[1], pen.width] };
    return top + 22;
  }

  function draw(pen) {
    const { toX, least, most, bottom, isNarrow, ends } = layout;
    bottomAxis(pen, toX, least, most, bottom, unit, isLog);
    const drawZero = (from, to) => least < 0 && pen.line(toX(0), from, toX(0), to, palette.muted);
    for (const { bar, lines, notes, top, y } of places) {
      const middle = y + BAR.height / 2;
      const first = isNarrow ? top + BAR.line / 2 : middle - ((lines.length + notes.length - 1) * BAR.line) / 2;
      const weight = bar.isStrong ? 600 : 400;
      lines.forEach((line, at) => pen.text(line, 0, first + at * BAR.line, { weight }));
      notes.forEach((line, at) => pen.small(line, 0, first + (lines.length + at) * BAR.line));
      for (const { from, to, part, tall = 1 } of bar.segments) {
        const x = toX(Math.min(from, to));
        pen.box(x, y + BAR.height * (1 - tall), Math.max(toX(Math.max(from, to)) - x, from === to ? 0 : 1), BAR.height * tall, { part });
      }
      if (bar.error) drawError(pen, toX(bar.error[0]), toX(bar.error[1]), middle);
      for (const { at } of bar.marks ?? []) pen.line(toX(at), y - 2, toX(at), y + BAR.height + 2, palette.ink, 2);
      bar.dots?.forEach(({ at, kind }, place) => {
        pen.context.fillStyle = markOf(kind);
        drawPoint(pen.context, kind, toX(at), dotY(y, place), BAR.dot);
      });
      drawZero(y, y + BAR.height);
      bar.ends?.forEach((text, at) => pen.text(text, ends[at], isNarrow ? first : middle, { align: "right", weight }));
    }
    if (!isNarrow) drawZero(0, bottom);
  }

  const dotY = (top, place) => top + BAR.height * [0.5, 0.25, 0.75][place % 3]; // not over each other where they are many

  function hit(x, y) {
    const place = places.find(({ top, bottom }) => y >= top && y < bottom);
    if (!place) return null;
    const { bar } = place;
    const distance = ({ at }, index) => Math.hypot(layout.toX(at) - x, dotY(place.y, index) - y);
    const dot = bar.dots?.find((each, index) => distance(each, index) <= BAR.dot + 1);
    const over = bar.segments.find(({ from, to }) => x >= layout.toX(Math.min(from, to)) && x <= layout.toX(Math.max(from, to)));
    return { row: bar.row, lines: [bar.label, bar.note, over?.text, dot?.text, ...(bar.marks ?? []).map((mark) => mark.text), bar.ends?.join(", ")] };
  }

  return chart({
    ...options, height: (_, pen) => plan(pen), draw, hit,
    summary: () => {
      const count = list().length;
      return `${options.summary()}${count > shownRows ? ` ${shownRows} of ${decimal(count, 0)} have a bar; the table has all.` : ""}`;
    },
    press: ranksOf ? (found) => found?.row && setState({ ranks: someOf(ranksOf(found.row), page.rank_map.ranks) }) : null,
    table: () => ({ rows: list(), columns }),
  });
}

function drawError(pen, from, to, y) {
  pen.line(from, y, to, y, palette.ink, 1.5);
  for (const x of [from, to]) pen.line(x, y - 4, x, y + 4, palette.ink, 1.5);
}

/** Return the segments of a stacked bar: parts [part, size, text] behind each other from 0. */
function stacked(parts) {
  let at = 0;
  return parts.map(([part, size, text]) => ({ part, from: at, to: (at += size), text: text ?? `${PARTS[part][0]}: ${timeText(size)}` }));
}
