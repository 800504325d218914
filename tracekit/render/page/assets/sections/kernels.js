// Kernels and operators that take the most time: an icicle of where they belong, and tables to be searched.

const ICICLE_ROW = 24;
const KERNEL_TABLES = [["kernel_shapes", "Kernels by what they compute"], ["kernels", "Kernels"], ["operators", "Operators"]];

/** Return the section on kernels and operators, or null without either. */
function kernelsSection() {
  const tables = KERNEL_TABLES.filter(([key]) => result[key]?.length);
  if (!tables.length) return null;
  const holder = el("div");
  const isFound = (row) => `${row.name ?? row.kernel} ${row.operator ?? ""} ${row.module ?? ""}`.toLowerCase().includes(state.look.toLowerCase());
  const fill = () => holder.replaceChildren(...tables.map(([key, title]) => tableFigure(`${key}-table`, title, result[key].filter(isFound).sort(largestFirst("total_ns")), resultColumns(key, result[key]))));
  const search = el("input", { type: "search", placeholder: "part of a name", value: state.look });
  search.addEventListener("input", () => {
    setState({ look: search.value }, true);
    fill();
  });
  fill();
  const text = "Means a step over the ranks that ran them. The head of a column orders by it.";
  return section("kernels", "Kernels and operators", [el("p", { class: "summary" }, text), el("p", null, labelled("Search", search)), result.kernel_shapes?.length ? icicleFigure() : null, holder]);
}

/** Return the boxes of an icicle, outer ones first: {depth, path, label, from, to, rows}; `from` and `to` are times. */
function icicleBoxes(rows) {
  const levels = [
    (row) => row.phase ?? "phase unknown",
    rows.some((row) => row.module != null) ? (row) => row.module || (row.module == null ? "module unknown" : "the model") : null,
    (row) => `${row.operator || "no operator"} ${row.shapes}`.trim(),
    (row) => row.kernel,
  ].filter(Boolean);
  const boxes = [];
  const place = (inside, depth, path, from) => {
    const groups = new Map();
    for (const row of inside) groups.set(levels[depth](row), [...(groups.get(levels[depth](row)) ?? []), row]);
    const sized = [...groups].map(([label, members]) => ({ label, members, total: members.reduce((sum, row) => sum + row.total_ns, 0) }));
    for (const { label, members, total } of sized.sort((a, b) => b.total - a.total)) {
      boxes.push({ depth, path: [...path, label], label, from, to: from + total, rows: members });
      if (depth + 1 < levels.length) place(members, depth + 1, [...path, label], from);
      from += total;
    }
  };
  place(rows, 0, [], 0);
  return boxes;
}

/** Return the chart of phases, in them modules, in them operators, in them kernels, as wide as their time. */
function icicleFigure() {
  const boxes = icicleBoxes(result.kernel_shapes);
  const whole = { depth: -1, path: [], label: "the step", from: 0, to: Math.max(...boxes.map(({ to }) => to)) };
  const depths = Math.max(...boxes.map(({ depth }) => depth)) + 1;
  let zoomed = whole;
  const up = button("Up", () => zoomTo(boxes.find(({ path }) => String(path) === String(zoomed.path.slice(0, -1))) ?? whole), { disabled: true });
  const zoomTo = (box) => {
    zoomed = box;
    up.disabled = box === whole;
    drawChart(charts.get("icicle"));
  };
  const isShown = ({ from, to }) => from < zoomed.to && to > zoomed.from;
  const partOfKind = (kind) => (["compute", "copy"].includes(kind) ? kind : kind && "communication");
  const partOf = ({ rows: [first, ...others] }) => (others.every(({ kind }) => partOfKind(kind) === partOfKind(first.kind)) && partOfKind(first.kind)) || null; // null: of several
  const place = ({ depth, from, to }, width) => {
    const toX = (ns) => Math.min(Math.max((ns - zoomed.from) / (zoomed.to - zoomed.from), 0), 1) * width;
    return { x: toX(from), width: toX(to) - toX(from), y: depth * ICICLE_ROW };
  };
  const share = ({ from, to }, of) => percentText((to - from) / (of.to - of.from), 0);
  const first = boxes.filter(({ depth }) => depth === 0);
  return chart({
    id: "icicle", title: "Kernels by phase, module and operator", follows: [], controls: [up],
    summary: () => `${zoomed === whole ? "Kernels and copies" : zoomed.label}: ${msText(zoomed.to - zoomed.from)} a step${zoomed === whole ? `, ${first.map((box) => `${box.label} ${share(box, whole)}`).join(", ")}` : ""}. Press a box to enlarge it.`,
    legend: () => legend(["compute", "communication", "copy"].filter((part) => boxes.some((box) => partOf(box) === part)), { communication: "Communication, with waiting" }),
    height: () => depths * ICICLE_ROW,
    draw(pen) {
      for (const box of boxes.filter(isShown)) {
        const { x, y, width } = place(box, pen.width);
        if (width < 1) continue;
        pen.opacity = partOf(box) ? 0.3 : 1;
        pen.box(x, y, width, ICICLE_ROW, { colour: partOf(box) ? colourOf(partOf(box)) : palette.surface });
        pen.opacity = 1;
        pen.box(x, y, width, ICICLE_ROW, { outline: palette.page });
        if (width > 30) pen.text(box.label, x + 4, y + ICICLE_ROW / 2, { size: 11, most: width - 8 });
      }
    },
    hit(x, y) {
      const at = zoomed.from + (x / charts.get("icicle").pen.width) * (zoomed.to - zoomed.from);
      const box = boxes.find(({ depth, from, to }) => depth === Math.floor(y / ICICLE_ROW) && from <= at && at < to);
      if (!box) return null;
      const [row] = box.rows;
      const rates = box.rows.length === 1 ? [isKnown(row.flops_per_s) ? `${valueText(row.flops_per_s, "FLOP/s")}${isKnown(row.flops_share) ? `, ${percentText(row.flops_share, 0)} of the peak` : ""}` : null, isKnown(row.bandwidth_bps) ? `at least ${valueText(row.bandwidth_bps, "B/s")}${isKnown(row.bandwidth_share) ? `, ${percentText(row.bandwidth_share, 0)} of the memory's` : ""}` : null] : [];
      return { box, lines: [box.label, box.path.slice(0, -1).join(" > "), `${msText(box.to - box.from)} a step, ${share(box, whole)} of all kernels`, ...rates] };
    },
    press: (hit) => hit && zoomTo(hit.box === zoomed ? whole : hit.box),
    table: () => ({ columns: ["path=where", "total_ns=time a step"], rows: boxes.map(({ path, from, to }) => ({ path: path.join(" > "), total_ns: to - from })) }),
  });
}
