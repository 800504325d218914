"use strict";
// A chart of horizontal bars, each of one or more parts. Labels stand beside the bars, or above them where it is narrow.

const BAR = { height: 18, line: 15, gap: 9, narrow: 560 };

/**
 * Return a figure of bars.
 *
 *   rows()   {label, note, segments: [{part, from, to, text}], ends: text at the right, error: [low, high], marks: [{at, text}],
 *            strong: whether it stands out, press: what a press on it does}
 *   unit     of `from` and `to`: "ns", "ratio", ...
 *   isLog    whether the axis is logarithmic; a segment may say how `tall` it is, from 0 to 1
 *   limit()  {least, most} of the axis; by default that of the rows
 * The other options are those of `chart`.
 */
function barChart(options) {
  let places = [];
  let layout = null;

  function plan(pen) {
    const rows = options.rows();
    const isNarrow = pen.width < BAR.narrow;
    const endWidth = Math.max(...rows.map((row) => pen.widthOf(row.ends ?? "")), 0) + (rows.some((row) => row.ends) ? 10 : 0);
    const wanted = Math.max(...rows.map((row) => Math.max(pen.widthOf(row.label, 12, 600), pen.widthOf(row.note ?? "", 11))), 40) + 14;
    const labelWidth = isNarrow ? 0 : Math.min(wanted, pen.width * 0.36);
    const limits = options.limit?.() ?? {};
    const values = rows.flatMap((row) => [...row.segments.flatMap((s) => [s.from, s.to]), ...(row.error ?? []), ...(row.marks ?? []).map((mark) => mark.at)]);
    const [low, high] = extent(values) ?? [0, 1];
    const positive = options.isLog ? Math.max(extent(values.filter((value) => value > 0))?.[0] ?? 1, 1) : 0;
    const least = options.isLog ? positive : (limits.least ?? Math.min(low, 0));
    const most = Math.max(limits.most ?? high, least + 1e-9);
    const left = labelWidth;
    const right = pen.width - endWidth - 2;
    const scale = options.isLog ? (value) => Math.log(Math.max(value, least)) : (value) => value;
    const toX = (value) => left + ((scale(value) - scale(least)) / (scale(most) - scale(least) || 1)) * (right - left);
    let top = 2;
    places = rows.map((row) => {
      const room = isNarrow ? pen.width - 4 : labelWidth - 14;
      const lines = pen.wrapped(row.label, room, 2, 12, row.strong ? 600 : 400);
      const notes = row.note ? pen.wrapped(row.note, room, 2, 11) : [];
      const textHeight = (lines.length + notes.length) * BAR.line;
      const place = { row, lines, notes, top, bar: isNarrow ? top + textHeight + 2 : top + Math.max((textHeight - BAR.height) / 2, 0) };
      top = isNarrow ? place.bar + BAR.height + BAR.gap : top + Math.max(textHeight, BAR.height) + BAR.gap;
      place.bottom = top - BAR.gap / 2;
      return place;
    });
    layout = { toX, least, most, left, right, bottom: top, isNarrow };
    return top + 22;
  }

  function draw(pen) {
    const { toX, least, most, bottom, isNarrow } = layout;
    bottomAxis(pen, toX, least, most, bottom, options);
    for (const { row, lines, notes, top, bar } of places) {
      const middle = bar + BAR.height / 2;
      const first = isNarrow ? top + BAR.line / 2 : middle - ((lines.length + notes.length - 1) * BAR.line) / 2;
      lines.forEach((line, at) => pen.text(line, 0, first + at * BAR.line, { weight: row.strong ? 600 : 400 }));
      notes.forEach((line, at) => pen.text(line, 0, first + (lines.length + at) * BAR.line, { size: 11, colour: palette.muted }));
      for (const segment of row.segments) {
        const from = toX(Math.min(segment.from, segment.to));
        const height = BAR.height * (segment.tall ?? 1);
        pen.box(from, bar + BAR.height - height, toX(Math.max(segment.from, segment.to)) - from, height, { part: segment.part, least: segment.from === segment.to ? 0 : 1 });
      }
      if (row.error) drawError(pen, toX(row.error[0]), toX(row.error[1]), middle);
      for (const mark of row.marks ?? []) pen.line(toX(mark.at), bar - 2, toX(mark.at), bar + BAR.height + 2, palette.ink, 2);
      if (row.ends) pen.text(row.ends, pen.width - 1, middle, { align: "right", weight: row.strong ? 600 : 400 });
    }
    if (least < 0) pen.line(Math.round(toX(0)) + 0.5, 0, Math.round(toX(0)) + 0.5, bottom, palette.muted);
  }

  function hit(x, y) {
    const place = places.find(({ top, bottom }) => y >= top && y < bottom);
    if (!place) return null;
    const { row } = place;
    const over = row.segments.find((segment) => x >= layout.toX(Math.min(segment.from, segment.to)) && x <= layout.toX(Math.max(segment.from, segment.to)));
    return { row, lines: [row.label, row.note, over?.text, ...(row.marks ?? []).map((mark) => mark.text), row.ends] };
  }

  return chart({ ...options, height: (_, pen) => plan(pen), draw, hit, press: options.press ? (found) => found && options.press(found.row) : null });
}

function drawError(pen, from, to, y) {
  pen.line(from, y, to, y, palette.ink, 1.5);
  for (const x of [from, to]) pen.line(x, y - 4, x, y + 4, palette.ink, 1.5);
}

/** Return the segments of a stacked bar: parts behind each other from 0. */
function stacked(parts, base = 0) {
  let at = base;
  return parts.map(([part, size, text]) => ({ part, from: at, to: (at += size), text }));
}
