// Kernels and operators that take the most time, to be searched.

/** Return the section on kernels and operators, or null without either. */
function kernelsSection() {
  const tables = [["kernels", "Kernels"], ["operators", "Operators"]].filter(([key]) => result[key]?.length);
  if (!tables.length) return null;
  const search = el("input", { type: "search", placeholder: "part of a name", value: state.look, on: { input: () => setState({ look: search.value }) } });
  const text = "Means a step over the ranks that ran them, those with the most total, own or exposed time. Press the head of a column to order by it.";
  return section("kernels", "Kernels and operators", [el("p", { class: "summary" }, text), labelled("Search", search), tables.map(([key, title]) => namesTable(key, title))]);
}

function namesTable(key, title) {
  const holder = el("div");
  let drawn = null;
  function fill() {
    if (state.look === drawn) return;
    drawn = state.look;
    const rows = result[key].filter((row) => row.name.toLowerCase().includes(drawn.toLowerCase())).sort((a, b) => b.total_ns - a.total_ns);
    holder.replaceChildren(dataTable(title, resultColumns(key, result[key]), rows));
  }
  onState(fill);
  fill();
  return el("figure", { id: key }, el("figcaption", null, el("h3", null, title)), holder);
}
