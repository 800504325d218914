// Kernels and operators that take the most time, to be searched.

/** Return the section on kernels and operators, or null without either. */
function kernelsSection() {
  const tables = [["kernels", "Kernels"], ["operators", "Operators"]].filter(([key]) => result[key]?.length);
  if (!tables.length) return null;
  const holder = el("div");
  const isFound = (row) => row.name.toLowerCase().includes(state.look.toLowerCase());
  const fill = () => holder.replaceChildren(...tables.map(([key, title]) => tableFigure(key, title, result[key].filter(isFound).sort(largestFirst("total_ns")), resultColumns(key, result[key]))));
  const search = el("input", { type: "search", placeholder: "part of a name", value: state.look });
  search.addEventListener("input", () => {
    setState({ look: search.value }, true);
    fill();
  });
  fill();
  const text = "Means a step over the ranks that ran them. The head of a column orders by it.";
  return section("kernels", "Kernels and operators", [el("p", { class: "summary" }, text), el("p", null, labelled("Search", search)), holder]);
}
