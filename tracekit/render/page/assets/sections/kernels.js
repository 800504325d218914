// Kernels and operators that take the most time, to be searched.

const ORDERS = [["total_ns", "total time"], ["self_ns", "own time"], ["exposed_ns", "exposed time"]];

/** Return the section on kernels and operators, or null without either. */
function kernelsSection() {
  const tables = [["kernels", "Kernels"], ["operators", "Operators"]].filter(([key]) => result[key]?.length);
  if (!tables.length) return null;
  const search = el("input", { type: "search", placeholder: "part of a name", value: state.look, on: { input: () => setState({ look: search.value }) } });
  const controls = el("div", { class: "controls" }, labelled("Search", search), chooser("Order by", ORDERS, state.order, (order) => setState({ order })));
  return section("kernels", "Kernels and operators", [controls, el("p", { class: "summary" }, "Means a step over the ranks that ran them."), tables.map(([key, title]) => namesTable(key, title))]);
}

function namesTable(key, title) {
  const holder = el("div");
  let drawn = null;
  function fill() {
    const wanted = `${state.look} ${state.order}`;
    if (wanted === drawn) return;
    drawn = wanted;
    const look = state.look.toLowerCase();
    const order = ORDERS.some(([name]) => name === state.order) ? state.order : "total_ns";
    const rows = result[key].filter((row) => row.name.toLowerCase().includes(look)).sort((a, b) => (b[order] ?? -1) - (a[order] ?? -1));
    holder.replaceChildren(dataTable(title, resultColumns(key, result[key]), rows));
  }
  onState(fill);
  fill();
  return el("figure", { id: key }, el("figcaption", null, el("h3", null, title)), holder);
}
