// Elements of the page. Every text goes through a text node, so that names from traces cannot become markup.

/** Return a text without control, format and unassigned characters, which are escaped, and no longer than `most`. */
function safeText(value, most = 4000) {
  const text = String(value);
  const cut = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return cut.replace(/[\p{C}\u2028\u2029]/gu, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

/**
 * Return a new element. `attributes` may hold `class`, `on` (listeners by event), `data` (the dataset) and plain
 * attributes; null and false leave one out. Children are elements and texts.
 */
function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : safeText(value));
  }
  return append(element, ...children);
}

/** Append elements and texts. Null and false are left out, and lists are taken apart. */
function append(parent, ...children) {
  for (const child of children.flat(2)) {
    if (child != null && child !== false) parent.append(child instanceof Node ? child : safeText(child));
  }
  return parent;
}

/** Return a button; `press` is called when it is pressed. */
function button(label, press, attributes = {}) {
  return el("button", { type: "button", on: { click: press }, ...attributes }, label);
}

const remark = (text) => el("p", { class: "remark" }, text);

/** Return a text as a sentence. */
function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** Return a labelled field. */
function labelled(label, field) {
  return el("label", { class: "chooser" }, el("span", null, label), field);
}

/** Return a labelled `<select>` of [value, label] that shows what `current()` returns; `choose` gets the new value. */
function chooser(label, options, current, choose) {
  const select = el("select", { on: { change: () => choose(select.value) } }, options.map(([key, name]) => el("option", { value: key }, name)));
  const show = () => (select.value = current());
  onState(show);
  show();
  return labelled(label, select);
}

/** Copy a text to the clipboard, and say on the button whether that worked. */
async function copyText(text, pressed) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    pressed.textContent = "Not allowed: select it";
  }
  setTimeout(() => (pressed.textContent = label), 1500);
}
