// The frame of a page: sections, the bar at the top, the theme, and printing.

/** Return a section with a heading; parts that are null are left out. */
function section(id, title, parts) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...parts);
}

/** Return the bar at the top: where to go, the `filter` if there is one, the theme. `sections` are [id, title, element]. */
function topBar(sections, filter = null) {
  const links = sections.map(([id, title]) => button(title, () => document.getElementById(id).scrollIntoView(), { class: "link" }));
  const mark = () => {
    const isAtEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
    const begun = sections.filter(([, , made]) => made.getBoundingClientRect().top < innerHeight / 4).length;
    const current = isAtEnd ? links.length - 1 : Math.max(begun - 1, 0);
    links.forEach((link, place) => link.setAttribute("aria-current", place === current));
  };
  window.addEventListener("scroll", mark, { passive: true });
  requestAnimationFrame(mark);
  const theme = button("Dark", () => setState({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" }), { id: "theme" });
  return el("nav", { "aria-label": "Page" }, el("div", { class: "links" }, links), filter, theme);
}

const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");

/** Take the theme that is chosen, else that of the system, and read its colours. Paper is always light. */
function applyTheme(isPrinted = false) {
  const theme = isPrinted ? "light" : (state.theme ?? (darkSystem.matches ? "dark" : "light"));
  document.documentElement.dataset.theme = theme;
  const toggle = document.getElementById("theme");
  if (toggle) toggle.textContent = theme === "dark" ? "Light" : "Dark";
  readPalette();
}

/** Show the page. Charts are drawn again when the state or the theme changes, and for printing. */
function showPage(bar, main) {
  document.body.prepend(bar, main);
  document.body.append(tooltip);
  onState(() => applyTheme());
  onState(() => drawCharts());
  applyTheme();
  darkSystem.addEventListener("change", announce);
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll(".fold")) fold.open = true;
    applyTheme(true);
    drawCharts(true);
  });
  window.addEventListener("afterprint", announce);
  document.documentElement.dataset.ready = "true";
}
