// The parts of the layout viewer's page that belong to an operation, and the table of modes with its sliders.
//
// common.js, tile.js and the other layout_*.js files stand in front of this file: one module, no bundler.

/** Why a result is not drawn, or null. */
function undrawable(shape, stride, operation = null) {
  if (isTuple(shape) && !leavesOf(shape).length) {
    return `${operation === "dice" ? "no" : "every"} coordinate is fixed, so there is nothing to draw`;
  }
  try {
    check(shape, stride);
    return null;
  } catch (error) {
    return error.message;
  }
}

/** How many elements a tile has. */
const tileSize = (tiler) => (tiler.tuple ? product(tiler.tuple.map(tileSize)) : sizeOf(tiler.shape));

/** The line of CuTe DSL for an operation whose second argument is text; nothing where that is no argument. */
function lineOf(operation, layout, other) {
  try {
    return dslCall(operation, layout, READERS[OPERATIONS[operation].other](other));
  } catch (error) {
    if (!(error instanceof LayoutError)) throw error;
    return dslLayout(layout);
  }
}

/** A text with one character marked, or its end. */
function placeIn(text, at) {
  const long = String.fromCodePoint(text.codePointAt(at) ?? 0x20).length;
  return [text.slice(0, at), make("mark", {}, text.slice(at, at + long) || " "), text.slice(at + long)];
}

/** The table of modes: shape, stride, the coordinate with a slider, and their product. */
class ModeTable {
  /** `chosen(index)` is called when the reader moves a slider. */
  constructor(chosen) {
    this.chosen = chosen;
    this.body = make("tbody");
    const head = ["mode", "shape", "stride", "coordinate", "product"];
    this.root = make("table", { "aria-label": "modes of the layout" },
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))), this.body);
  }

  /** The rows stay as long as the layout does, so that a slider can be dragged. */
  show(layout, index) {
    if (this.layout !== layout) this.list(layout);
    this.index = index;
    const at = coordinates(layout, index);
    this.rows.forEach(({ product: cell, slider, number }, i) => {
      number.textContent = String(at[i]);
      slider.value = at[i];
      cell.textContent = `${at[i]}×${layout.leaves[i].stride} = ${at[i] * layout.leaves[i].stride}`;
    });
  }

  list(layout) {
    this.layout = layout;
    this.rows = layout.leaves.map((leaf) => {
      const slider = make("input", { type: "range", min: 0, max: leaf.shape - 1, step: 1,
        "aria-label": `coordinate of mode ${leaf.name}`,
        oninput: () => this.chosen(this.index + (slider.valueAsNumber - at()) * leaf.below) });
      const at = () => Math.floor(this.index / leaf.below) % leaf.shape;
      const number = make("span");
      const fixed = [leaf.name, leaf.shape, leaf.stride].map((text) => make("td", {}, String(text)));
      const product = make("td");
      return { root: make("tr", {}, ...fixed, make("td", {}, slider, number), product), slider, number, product };
    });
    this.body.replaceChildren(...this.rows.map((row) => row.root));
  }
}

/** What an operation returns: the result and its law in words, and the layouts that it was made from as small grids. */
class Answer {
  /** `chosen(index)` is called when the reader points at an index of the result. */
  constructor(ramp, chosen) {
    Object.assign(this, { ramp, chosen, sides: [] });
    this.result = make("p", { class: "tp-result", role: "status" });
    this.lawText = make("p", { class: "tp-law" });
    this.root = make("div", { class: "tp-answer" }, this.result, this.lawText);
    this.panels = make("div", { class: "tp-panels" });
    this.steps = make("ol", {});
  }

  /** Do the operation; `drawable` is then the result, or null: `refusal` says why. */
  work(operation, text, other) {
    Object.assign(this, { operation, computed: null, refusal: null, drawable: null, law: null });
    try {
      if (operation) this.computed = compute(operation, text, other);
    } catch (error) {
      if (!(error instanceof LayoutError)) throw error;
      this.refusal = error.message;
    }
    if (this.computed) {
      const { shape, stride, outer } = this.computed.result;
      this.refusal = undrawable(shape, stride, operation);
      if (!this.refusal) this.drawable = layoutOf(shape, stride, outer);
      if (!this.refusal) this.law = lawOf(operation, this.computed);
    }
    this.explain();
    this.gather();
  }

  explain() {
    const { computed, refusal, operation } = this;
    this.root.hidden = !operation;
    const tile = computed?.tiler ? `tile ${write(computed.tiler)}, ` : "";
    const found = computed ? `R = ${tile}${writeLayout(computed.result)}` : "";
    const why = refusal && !computed ? `no ${operation}: ${refusal}` : refusal;
    this.result.textContent = [found, why].filter(Boolean).join("; ");
    this.result.classList.toggle("is-wrong", Boolean(refusal));
    const broken = this.law ? brokenLaw(operation, computed) : null;
    this.holds = broken ? `✗ CuTe returns this, but the law fails: ${broken}` : "✓ holds at every index";
    this.lawText.classList.toggle("is-wrong", Boolean(broken));
    this.steps.replaceChildren(...(computed?.steps ?? []).map((step) => make("li", {}, step)));
  }

  /** The panels: the layouts that the result was made from, and a thread-value layout's tile. */
  gather() {
    this.sides = [];
    if (this.law) {
      const { layout, other, tiler, result } = this.computed;
      if (tiler) this.sides.push(this.tile(tiler, sizeOf(layout.shape), allValues(result)));
      this.sides.push(this.panel("A", layout));
      if (other?.shape !== undefined) this.sides.push(this.panel("B", other));
    }
    this.panels.replaceChildren(...this.sides.map((side) => side.root));
  }

  /** A panel of A or B. A click selects the first index of the result that comes from there. */
  panel(name, layout) {
    const none = undrawable(layout.shape, layout.stride);
    if (none) return { root: make("p", { class: "tp-panel-name" }, `${name}: ${none}`) };
    const panel = new Panel(name, (index) => {
      const side = name.toLowerCase();
      const found = Array.from({ length: this.drawable.size }, (_, i) => i).find((i) => this.law.at(i)[side] === index);
      if (found !== undefined) this.chosen(found);
    });
    panel.show(layout, this.ramp);
    return panel;
  }

  tile(tiler, threads, offsets) {
    const panel = new TvPanel(this.chosen);
    panel.show(tiler, threads, offsets, this.ramp);
    return panel;
  }

  prepare(width, theme) {
    for (const side of this.sides) side.prepare?.(width, theme);
  }

  /** Show the law with the numbers of one index, and where it came from. */
  mark(index) {
    const law = this.law?.at(index);
    this.lawText.textContent = law ? `${this.law.text} ${this.holds}. Here: ${law.words}` : "";
    for (const side of this.sides) {
      if (side instanceof TvPanel) side.paint(index);
      else if (side.name === "A") side.paint(law.a, this.tileAround(index));
      else if (side.name === "B") side.paint(law.b);
    }
  }

  /** The indices of A in the tile of a divide that an index of the result lies in. */
  tileAround(index) {
    const { operation, computed } = this;
    // its tiles are not in a mode of their own
    const mixed = operation === "logical_divide" && computed.other.tuple;
    if (!operation.endsWith("divide") || mixed) return [];
    const size = tileSize(computed.other);
    const first = index - (index % size);
    return Array.from({ length: Math.min(size, 1024) }, (_, i) => this.law.at(first + i).a);
  }
}

/** A box to type in, what is said about it, and the place of a mistake. */
class Entry {
  /** `typed(text)` is called as the reader types; what it throws is said, until `right()` can be. */
  constructor(id, name, typed, right) {
    Object.assign(this, { typed, right, error: null, shown: null });
    this.box = make("input", { type: "text", id, class: `tp-text tp-${name}`, spellcheck: "false",
      autocomplete: "off", autocapitalize: "off", "aria-describedby": `${id}-message`,
      oninput: () => this.take(this.box.value) });
    this.label = make("label", { for: id }, name);
    this.message = make("p", { class: "tp-message", id: `${id}-message`, role: "status" });
    this.mistake = make("p", { class: "tp-mistake" });
  }

  /** Take a text, or say what is wrong with it; returns whether it was taken. */
  take(text) {
    this.error = null;
    try {
      this.typed(text);
    } catch (error) {
      if (!(error instanceof LayoutError)) throw error;
      this.error = error;
    }
    this.say();
    return !this.error;
  }

  say() {
    const { box, message, error } = this;
    box.setAttribute("aria-invalid", String(Boolean(error)));
    message.classList.toggle("is-wrong", Boolean(error));
    message.textContent = error?.message ?? this.right();
    this.mistake.replaceChildren(...(typeof error?.at === "number" ? placeIn(box.value, error.at) : []));
  }

  /** Show the model's text, unless the reader is typing. What was typed and is wrong stays until the text changes. */
  show(text) {
    if (this.error && text === this.shown) return;
    this.error = null;
    this.shown = text;
    if (document.activeElement !== this.box) this.box.value = text;
    this.say();
  }
}
