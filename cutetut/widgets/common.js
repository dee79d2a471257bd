// What all widgets share: a short way to make HTML elements, controls that look alike, and the page's theme.
//
// This file has no exports. Python puts it in front of a widget's own file; together they are one module.

/** Make an element: attributes by name (null: left out), listeners as on*, children as nodes or text. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

let views = 0; // radio buttons, labels and descriptions need names that no other view has

/** A prefix for the ids of one view. */
const newId = () => `tp${++views}`;

/** The frame of a widget: its class, its title, and JupyterLab's promise to leave arrow keys to it. */
function frame(name, title, ...children) {
  return make("section", { class: `cutetut-picker cutetut-${name.replaceAll(" ", "-")}`, "aria-label": title || name,
    "data-lm-suppress-shortcuts": "true" }, ...(title ? [make("h4", { class: "tp-title" }, title)] : []), ...children);
}

/** Radio buttons in the shape of tabs. `show(name)` marks one; `chosen(name)` is called when the reader picks one. */
function tabs(id, legend, names, chosen) {
  const radios = names.map((value) => make("input", { type: "radio", name: id, value, onchange: () => chosen(value) }));
  const root = make("fieldset", { class: "tp-tabs" }, make("legend", {}, legend),
    ...radios.map((radio) => make("label", {}, radio, make("span", {}, radio.value))));
  return { root, show: (name) => radios.forEach((radio) => (radio.checked = radio.value === name)) };
}

/** A whole number from 0 to `last`, as a field between two buttons, and a slider. */
function stepper(id, name, last, chosen) {
  const range = { min: 0, step: 1 };
  const number = make("input", { ...range, type: "number", id, inputmode: "numeric" });
  const slider = make("input", { ...range, type: "range", "aria-label": name,
    oninput: () => chosen(slider.valueAsNumber) });
  let shown = 0;
  number.addEventListener("input", () => {
    const value = number.valueAsNumber;
    if (Number.isInteger(value) && value >= 0 && value <= Number(number.max)) chosen(value);
  });
  number.addEventListener("blur", () => (number.value = shown));
  const button = (label, sign, by) => make("button", { type: "button", "aria-label": `${label} ${name}`,
    onclick: () => chosen(Math.min(Number(number.max), Math.max(0, shown + by))) }, sign);
  const limit = (most) => [number, slider].forEach((input) => input.setAttribute("max", most));
  const show = (value) => {
    shown = value;
    if (document.activeElement !== number) number.value = value;
    slider.value = value;
  };
  limit(last);
  const root = make("div", { class: "tp-controls" }, make("label", { for: id }, name),
    button("previous", "◀", -1), number, button("next", "▶", 1), slider);
  return { root, show, limit };
}

/** Names and texts as one list of definitions. */
const definitions = (lines) => lines.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);

/**
 * The colours and font the page gives the picker now. What a property holds is text, such as light-dark(...), of which
 * only an element makes a colour.
 */
function themeOf(root) {
  const probe = root.appendChild(make("span"));
  const style = getComputedStyle(probe);
  const read = (name) => {
    probe.style.color = `var(--tp-${name})`;
    return style.color;
  };
  const names = ["bg", "fg", "muted", "line", "accent", "on-accent"];
  const theme = Object.fromEntries(names.map((name) => [name, read(name)]));
  theme.mono = style.getPropertyValue("--tp-mono").trim();
  probe.remove();
  return theme;
}

/** Call `changed` when the page's theme or the system's changes; returns how to stop. */
function watchTheme(changed) {
  const observer = new MutationObserver(changed);
  const attributeFilter = ["data-theme", "data-jp-theme-name", "data-jp-theme-light", "class"];
  for (const node of [document.documentElement, document.body]) observer.observe(node, { attributeFilter });
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", changed);
  };
}

/** Call `changed(trait)` after each change of a trait of the model; returns how to stop. */
function watchModel(model, traits, changed) {
  const handlers = traits.map((name) => [`change:${name}`, () => changed(name)]);
  for (const [event, handler] of handlers) model.on(event, handler);
  return () => handlers.forEach(([event, handler]) => model.off(event, handler));
}

/** Call `changed` when a node's width or the page's theme changes; returns how to stop. */
function watchLook(node, changed) {
  let width = null;
  // In the next frame: what changes sizes while they are being reported is an error that browsers log.
  const size = new ResizeObserver(() => {
    if (node.clientWidth !== width) requestAnimationFrame(changed);
    width = node.clientWidth;
  });
  size.observe(node);
  const unwatch = watchTheme(changed);
  return () => {
    unwatch();
    size.disconnect();
  };
}

/** Write into the model; its change events bring it to the screen. */
function assign(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}
