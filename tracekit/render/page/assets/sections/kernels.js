// Kernels and operators that take the most time, to be searched.

/** Return the section on kernels and operators, or null without either. */
function kernelsSection() {
  const tables = [["kernels", "Kernels"], ["operators", "Operators"]].filter(([key]) => result[key]?.length);
  if (!tables.length) return null;
  const fills = [];
  const search = el("input", { type: "search", placeholder: "part of a name", value: state.look });
  search.addEventListener("input", () => {
    setState({ look: search.value }, true);
    for (const fill of fills) fill();
  });
  const text = "Means a step over the ranks that ran them. The head of a column orders by it.";
  return section("kernels", "Kernels and operators", [el("p", { class: "summary" }, text), el("p", null, labelled("Search", search)), tables.map(([key, title]) => namesTable(key, title, fills))]);
}

function namesTable(key, title, fills) {
  const holder = el("div");
  const fill = () => {
    const rows = result[key].filter((row) => row.name.toLowerCase().includes(state.look.toLowerCase())).sort(largestFirst("total_ns"));
    holder.replaceChildren(dataTable(title, resultColumns(key, result[key]), rows));
  };
  fills.push(fill);
  fill();
  return el("figure", { id: key }, el("figcaption", null, el("h3", null, title)), holder);
}
