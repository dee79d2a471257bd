// The layout viewer: a layout as a function from coordinates to offsets, for any shape:stride the reader types.
//
// Traits of the model: `text` is the layout and `index` the 1-D coordinate selected, both ways; `name`, `title` and
// `_ramp` (colours) are data that Python sends once. A "place" is a cell of the drawing, row * cols + col. Python
// puts common.js, tile.js and layout_text.js in front of this file: one module, no bundler.

const TRAIL = 32; // steps of a walk that stay drawn
const SETTLED = 5000; // milliseconds in which a page with widgets is put together
const WALK = 20000; // milliseconds that a walk may take, as long as a step takes no less than 15

class Viewer {
  constructor(model) {
    Object.assign(this, { model, id: newId(), hover: null, trail: [], timer: null });
    this.ramp = Uint8Array.from(atob(model.get("_ramp")), (c) => c.charCodeAt(0));
    this.build();
    this.tile = new Tile(this.canvas);
  }

  // ---- the page

  build() {
    const help = "Click or tap a cell. Arrow down and up walk through the coordinates, left and right go to the " +
      "next column, space starts and stops a walk.";
    this.canvas = make("canvas", { class: "tp-tile", tabindex: 0, role: "application",
      "aria-roledescription": "layout viewer", "aria-describedby": `${this.id}-keys` });
    this.wrap = make("div", {}, this.canvas);
    this.readout = make("div", { class: "tp-readout" });
    this.body = make("tbody");
    const head = ["mode", "shape", "stride", "coordinate", "product"];
    const table = make("table", { "aria-label": "modes of the layout" },
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))), this.body);
    this.sums = make("dl", { class: "tp-sums" });
    this.live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
    this.indices = stepper(`${this.id}-index`, "index", 0, (index) => this.choose(index));
    this.walkButton = make("button", { type: "button", class: "tp-wide", onclick: () => this.walk() }, "walk");
    this.indices.root.append(this.walkButton);
    this.root = frame("layout viewer", this.model.get("title"), this.entry(), this.indices.root,
      make("div", { class: "tp-main" },
        make("div", { class: "tp-left" }, this.wrap, this.readout,
          make("p", { class: "tp-keys", id: `${this.id}-keys` }, help)),
        make("div", { class: "tp-right" }, make("div", { class: "tp-box" }, table), this.sums)),
      this.live);
  }

  /** The box for the layout, what is wrong or right with it, and the link. */
  entry() {
    this.box = make("input", { type: "text", id: `${this.id}-text`, class: "tp-text", spellcheck: "false",
      autocomplete: "off", autocapitalize: "off", "aria-describedby": `${this.id}-message`,
      oninput: () => this.type(this.box.value) });
    this.message = make("p", { class: "tp-message", id: `${this.id}-message`, role: "status" });
    const link = make("button", { type: "button", class: "tp-wide tp-link", onclick: () => this.copyLink() }, "copy link");
    return make("div", {}, make("div", { class: "tp-controls tp-entry" },
      make("label", { for: `${this.id}-text` }, "layout"), this.box, hasAddress() ? link : ""), this.message);
  }

  // ---- the selection

  /** Take what the reader typed, or say what is wrong with it and leave the drawing as it is. */
  type(text) {
    try {
      const layout = readLayout(text);
      const index = this.model.get("index");
      this.refused = null;
      assign(this.model, { text: layout.text, index: index < layout.size ? index : 0 });
    } catch (error) {
      if (!(error instanceof LayoutError)) throw error;
      this.refused = error.message;
    }
    this.say();
  }

  say() {
    this.box.setAttribute("aria-invalid", String(Boolean(this.refused)));
    this.message.classList.toggle("is-wrong", Boolean(this.refused));
    this.message.textContent = this.refused ?? summary(this.layout, this.offsets);
  }

  choose(index) {
    this.stop();
    assign(this.model, { index });
  }

  // ---- walking

  /** Start or stop: one coordinate after the other, from the selected one on or from the first. */
  walk() {
    if (this.timer) return this.stop();
    if (this.index === this.layout.size - 1) this.model.set("index", 0);
    const pause = Math.min(350, Math.max(15, WALK / this.layout.size));
    this.timer = setInterval(() => {
      if (this.index < this.layout.size - 1) this.model.set("index", this.index + 1);
      else this.stop();
    }, pause);
    this.walkButton.textContent = "stop";
  }

  stop() {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = null;
    this.walkButton.textContent = "walk";
    this.model.save_changes();
    this.live.textContent = this.describe(this.index);
  }

  /** Keep the steps of a walk; a jump ends it. */
  follow(before, index) {
    if (Math.abs(index - before) !== 1) this.trail = [];
    else if (!this.trail.length) this.trail = [before];
    if (index !== before) this.trail = [...this.trail, index].slice(-TRAIL);
  }

  // ---- the screen

  /** Bring the model's layout and selection to the screen. */
  show() {
    this.due = false;
    const [before, text, index] = [this.index, this.model.get("text"), this.model.get("index")];
    if (text !== this.layout?.text) {
      this.showLayout(text);
    } else {
      this.follow(before, index);
    }
    this.index = Math.min(index, this.layout.size - 1);
    this.hover = null;
    this.indices.show(this.index);
    this.mark();
    if (!this.timer) this.live.textContent = this.describe(this.index);
  }

  showLayout(text) {
    const layout = readLayout(text);
    this.layout = layout;
    this.offsets = Array.from({ length: layout.size }, (_, index) => offsetOf(layout, index));
    this.trail = [];
    this.refused = null;
    if (document.activeElement !== this.box) this.box.value = layout.text;
    this.indices.limit(layout.size - 1);
    this.map = this.drawn();
    this.prepare();
    this.say();
    const nested = `${layout.rows} by ${layout.cols} offsets of ${layout.text}`;
    this.canvas.setAttribute("aria-label", nested);
  }

  /** The map that the tile draws: each cell its own, coloured by its offset. */
  drawn() {
    const { layout, offsets, ramp } = this;
    const low = offsets.reduce((a, b) => Math.min(a, b));
    const span = Math.max(1, offsets.reduce((a, b) => Math.max(a, b)) - low);
    const shade = (place) => Math.round(((offsets[indexOf(layout, place)] - low) / span) * (ramp.length / 3 - 1));
    const rgb = (place) => ramp.subarray(3 * shade(place), 3 * shade(place) + 3);
    const steps = (leaves, total) => leaves.map((leaf) => leaf.below).filter((n) => n > 1 && n < total);
    const inRows = layout.modes.length > 1 ? leavesOf(layout.modes[0]).length : 0;
    return { rows: layout.rows, cols: layout.cols, owner: Int32Array.from(offsets, (_, place) => place), rgb,
      breaks: { rows: steps(layout.leaves.slice(0, inRows), layout.rows),
        cols: steps(layout.leaves.slice(inRows).map((leaf) => ({ below: leaf.below / layout.rows })), layout.cols) } };
  }

  mark() {
    this.paint();
    const shown = this.hover ?? this.index;
    const at = coordinates(this.layout, shown);
    this.body.replaceChildren(...this.layout.leaves.map((leaf, i) => make("tr", {},
      ...[leaf.name, leaf.shape, leaf.stride, at[i], `${at[i]}×${leaf.stride} = ${at[i] * leaf.stride}`]
        .map((text) => make("td", {}, String(text))))));
    this.readout.textContent = this.describe(shown);
    this.sums.replaceChildren(...definitions(arithmetic(this.layout, shown)));
  }

  describe(index) {
    const flat = flatCoordinate(this.layout, index);
    const nested = nest(this.layout.shape, coordinates(this.layout, index));
    const written = Array.isArray(this.layout.shape) ? `(${flat.join(",")})` : String(index);
    const coordinate = nested === written ? nested : `${written} = ${nested}`;
    return `coordinate ${coordinate} · index ${index} · offset ${this.offsets[index]}`;
  }

  paint() {
    const { tile, layout, offsets, map, hover } = this;
    const selected = placeOf(layout, this.index);
    tile.fresh();
    tile.steps(this.trail.map((index) => placeOf(layout, index)));
    tile.fill([selected], tile.theme.accent);
    tile.ring(selected, 2);
    if (hover !== null && hover !== this.index) tile.ring(placeOf(layout, hover));
    const digits = offsets.reduce((most, offset) => Math.max(most, String(offset).length), 1);
    const size = Math.min(14, (0.6 * tile.high) / tile.dpr, (tile.wide / tile.dpr - 3) / digits / 0.602);
    if (size >= 7) {
      tile.letters(size);
      offsets.forEach((offset, index) => {
        const place = placeOf(layout, index);
        tile.write(place, [String(offset)], place === selected ? tile.theme["on-accent"] : inkOn(map.rgb(place)));
      });
    }
  }

  /** Fit the tile to its place. JupyterLab hides its page while it changes the theme: use the last width then. */
  prepare() {
    this.width = this.wrap.clientWidth || this.width || 0;
    this.tile.prepare(this.map, this.width, themeOf(this.root), 18);
  }

  redraw() {
    if (!this.layout) return;
    this.prepare();
    this.paint();
  }

  // ---- the link

  /** The page's address with this view in its fragment. */
  link() {
    return `${location.href.split("#")[0]}#${this.model.get("name")}=${this.layout.text}&at=${this.index}`;
  }

  async copyLink() {
    const link = this.link();
    history.replaceState(history.state, "", link);
    const copied = await copyText(link);
    this.message.classList.remove("is-wrong");
    this.message.textContent = copied ? "The link is copied." : "The link is in the address bar.";
    setTimeout(() => this.say(), 4000);
  }

  /** Restore the view that the page's address names; returns whether it names one. */
  restore() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const text = wanted.get(this.model.get("name"));
    if (text === null) return false;
    this.box.value = text;
    this.type(text);
    const index = Number(wanted.get("at") ?? 0);
    if (!this.refused && Number.isInteger(index) && index >= 0 && index < readLayout(text).size) this.choose(index);
    return true;
  }

  /** Take up what the page's address names, if it names this viewer, and show it to the reader. */
  followLink() {
    if (this.restore()) this.comeIntoView();
  }

  /** Scroll here, and again while the page grows as it is put together, until the reader does something. */
  comeIntoView() {
    const growth = new ResizeObserver(() => this.root.scrollIntoView({ block: "center" }));
    const stop = () => growth.disconnect();
    growth.observe(document.body);
    for (const act of ["wheel", "touchstart", "pointerdown", "keydown"]) window.addEventListener(act, stop, { once: true });
    setTimeout(stop, SETTLED);
  }

  // ---- pointer, keys, model

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const [{ rows, size }, index] = [this.layout, this.index];
    const to = { ArrowUp: index - 1, ArrowDown: index + 1, ArrowLeft: index - rows, ArrowRight: index + rows, Home: 0,
      End: size - 1 }[event.key];
    if (to === undefined && event.key !== " ") return;
    event.preventDefault();
    if (event.key === " ") this.walk();
    else if (to >= 0 && to < size) this.choose(to);
  }

  /** Follow the model, the reader, the size, the theme and the address; returns how to stop. */
  listen() {
    const hover = (place) => {
      const index = place === null ? null : indexOf(this.layout, place);
      if (index === this.hover) return;
      this.hover = index;
      this.mark();
    };
    pointAt(this.tile, hover, (place) => this.choose(indexOf(this.layout, place)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const followLink = () => this.followLink();
    window.addEventListener("hashchange", followLink);
    const changed = () => {
      if (!this.due) queueMicrotask(() => this.show()); // one redraw for both traits
      this.due = true;
    };
    const stops = [watchModel(this.model, ["text", "index"], changed), watchLook(this.wrap, () => this.redraw())];
    followLink();
    return () => {
      this.stop();
      stops.forEach((stop) => stop());
      window.removeEventListener("hashchange", followLink);
    };
  }
}

/** Whether the page has an address worth sharing: not inside JupyterLab or an editor. */
function hasAddress() {
  return /^(https?|file):$/.test(location.protocol) && !document.querySelector(".jp-Notebook");
}

/** Put text on the clipboard; returns whether the browser let us. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function render({ model, el }) {
  const viewer = new Viewer(model);
  el.append(viewer.root);
  viewer.show();
  return viewer.listen();
}

export { readLayout, offsetOf, coordinates, nest };
export default { render };
