// The layout viewer: a layout as a function from coordinates to offsets, for any shape:stride the reader types, and
// what an operation of CuTe's algebra makes of it.
//
// Traits of the model: `text` is the layout A, `operation` the operation's name or nothing, `other` its second
// argument, and `index` the 1-D coordinate selected in what is shown: the result R, or A; all of them both ways.
// `name`, `title`, `page` (the address of the published page) and `_ramp` (colours) are data that Python sends once. A
// "place" is a cell of the drawing, row * cols + col. Python puts common.js, tile.js and the layout_*.js files in front
// of this file: one module, no bundler.

// steps of a walk that stay drawn
const TRAIL = 32;
// milliseconds in which a page with widgets is put together
const SETTLED = 5000;
// milliseconds that a walk may take, as long as a step takes no less than 15
const WALK = 20000;
// what is drawn
const CALL = ["text", "operation", "other"];
const VIEW = [...CALL, "index"];

class Viewer {
  constructor(model) {
    Object.assign(this, { model, id: newId(), hover: null, trail: [], timer: null, typed: null });
    this.ramp = Uint8Array.from(atob(model.get("_ramp")), (c) => c.charCodeAt(0));
    this.history = new History(model, CALL, (view) => this.take({ index: 0, ...view }));
    this.build();
    this.tile = new Tile(this.canvas);
    this.heading = this.root.querySelector(".tp-title");
    this.titled = String(CALL.map((name) => model.get(name))); // what the title is about
  }

  // ---- the page

  build() {
    const choose = (index) => this.choose(index);
    const help = "Click, tap or drag over cells. Arrow down and up walk through the coordinates, left and right go " +
      "to the next column, space starts and stops a walk.";
    this.canvas = make("canvas", { class: "tp-tile", tabindex: 0, role: "application",
      "aria-roledescription": "layout viewer", "aria-describedby": `${this.id}-keys` });
    this.wrap = make("div", {}, this.canvas);
    this.readout = make("div", { class: "tp-readout" });
    this.modes = new ModeTable(choose);
    this.sums = make("dl", { class: "tp-sums" });
    this.live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
    this.indices = stepper(`${this.id}-index`, "index", 0, choose);
    this.walkButton = wideButton("tp-walk", "walk", () => this.walk());
    this.indices.root.append(this.walkButton);
    this.answer = new Answer(this.ramp, choose);
    this.strip = new Strip(choose);
    this.root = frame("layout viewer", this.model.get("title"), this.layoutEntry(), this.operationEntry(),
      this.answer.root, this.indices.root,
      make("div", { class: "tp-main" },
        make("div", { class: "tp-left" }, this.wrap, this.readout,
          make("p", { class: "tp-keys", id: `${this.id}-keys` }, help)),
        make("div", { class: "tp-right" }, make("div", { class: "tp-box" }, this.modes.root), this.sums)),
      this.answer.panels, this.strip.root, this.words(), this.live);
  }

  /** The box for the layout, undo and redo, and the links. */
  layoutEntry() {
    this.layoutBox = new Entry(`${this.id}-layout`, "layout", (text) => this.set("text", readLayout(text).text),
      () => summary(this.given, this.givenOffsets));
    const link = wideButton("tp-link", "copy link", () => this.copyLink());
    const call = wideButton("tp-call", "copy call", () => this.copyCall());
    const { label, box, message, mistake } = this.layoutBox;
    const row = make("div", { class: "tp-controls tp-entry" }, label, box, this.history.back, this.history.forth,
      hasAddress() || this.model.get("page") ? link : call);
    return make("div", {}, row, message, mistake);
  }

  /** The choice of an operation, and the box for its second argument. */
  operationEntry() {
    this.otherBox = new Entry(`${this.id}-other`, "with", (text) => {
      this.readOther(text);
      this.set("other", text.trim());
    }, () => OPERATIONS[this.model.get("operation")]?.hint ?? "");
    const options = ["", ...Object.keys(OPERATIONS)].map((name) => make("option", { value: name }, name || "none"));
    const chosen = () => this.operate(this.operations.value);
    this.operations = make("select", { id: `${this.id}-operation`, onchange: chosen }, ...options);
    this.otherEntry = make("div", { class: "tp-controls tp-entry tp-other-entry" });
    this.otherSays = make("div");
    return make("div", {}, make("div", { class: "tp-controls tp-entry" },
      make("label", { for: this.operations.id }, "operation"), this.operations, this.otherEntry), this.otherSays);
  }

  /** What can be read below the drawings: the line of CuTe DSL, the loops, the steps of an operation. */
  words() {
    this.loops = make("pre", {});
    this.line = make("pre", { class: "tp-line" });
    const copy = wideButton("tp-copy", "copy", () => this.copyLine());
    const fold = (name, ...inside) => make("details", { class: "tp-fold" }, make("summary", {}, name), ...inside);
    this.stepsFold = fold("the steps of the operation", this.answer.steps);
    const loopsFold = fold("the loops it stands for", this.loops);
    loopsFold.open = true;
    this.stepsFold.open = true;
    return make("div", {}, make("div", { class: "tp-dsl" }, copy, this.line), loopsFold, this.stepsFold);
  }

  // ---- the selection

  /** Write what the reader typed into the model. */
  set(field, text) {
    this.typed = field;
    assign(this.model, { [field]: text });
  }

  readOther(text, name = this.model.get("operation")) {
    return name ? READERS[OPERATIONS[name].other](text) : null;
  }

  /** Choose an operation; keep the second argument where it can be one, or begin with another. */
  operate(name) {
    let other = this.otherBox.box.value.trim();
    try {
      if (!other) throw new LayoutError("nothing was typed");
      this.readOther(other, name);
    } catch (error) {
      if (!(error instanceof LayoutError)) throw error;
      other = OPERATIONS[name]?.start?.(readPlain(this.model.get("text"))) ?? "";
    }
    this.otherBox.box.value = other;
    this.stop();
    assign(this.model, { operation: name, other, index: 0 });
  }

  /** Show a whole view: one that was undone, or that a link names. What cannot be read stays in its box. */
  take({ text, operation, other, index }) {
    this.stop();
    [this.layoutBox.box.value, this.otherBox.box.value] = [text, other];
    if (!this.layoutBox.take(text)) return;
    assign(this.model, { operation, index });
    if (operation) this.otherBox.take(other);
    else assign(this.model, { other });
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

  /** Bring the model's layout, operation and selection to the screen. */
  show() {
    this.due = false;
    const [before, index] = [this.index, this.model.get("index")];
    const asked = JSON.stringify(["text", "operation", "other"].map((name) => this.model.get(name)));
    if (asked !== this.asked) {
      this.asked = asked;
      this.showLayout();
      this.history.note(this.typed);
      this.typed = null;
    } else {
      this.follow(before, index);
    }
    this.index = index < this.layout.size ? index : 0;
    if (this.index !== index) this.model.set("index", this.index);
    this.hover = null;
    this.indices.show(this.index);
    this.mark();
    if (!this.timer) this.live.textContent = this.describe(this.index);
  }

  showLayout() {
    const [text, operation, other] = CALL.map((name) => this.model.get(name));
    const changed = String([text, operation, other]) === this.titled ? "" : " (changed)";
    if (this.heading) this.heading.textContent = this.model.get("title") + changed;
    const offsetsOf = (layout) => Array.from({ length: layout.size }, (_, index) => offsetOf(layout, index));
    this.given = readLayout(text);
    this.givenOffsets = offsetsOf(this.given);
    this.answer.work(operation, text, other);
    this.layout = this.answer.drawable ?? this.given;
    this.offsets = this.answer.drawable ? offsetsOf(this.layout) : this.givenOffsets;
    this.trail = [];
    this.showEntries(text, operation, other);
    this.indices.limit(this.layout.size - 1);
    this.map = gridMap(this.layout, this.offsets, this.ramp);
    this.strip.show(this.offsets, this.ramp);
    this.prepare();
    this.stepsFold.hidden = !this.answer.steps.children.length;
    this.line.textContent = operation ? lineOf(operation, readPlain(text), other) : dslLayout(readPlain(text));
    const nested = `${this.layout.rows} by ${this.layout.cols} offsets of ${this.layout.text}`;
    this.canvas.setAttribute("aria-label", nested);
  }

  showEntries(text, operation, other) {
    const binary = operation !== "" && OPERATIONS[operation].other !== "none";
    if (binary !== this.binary) {
      const { label, box, message, mistake } = this.otherBox;
      this.otherEntry.replaceChildren(...(binary ? [label, box] : []));
      this.otherSays.replaceChildren(...(binary ? [message, mistake] : []));
      this.binary = binary;
    }
    this.operations.value = operation;
    this.layoutBox.show(text);
    this.otherBox.show(other);
  }

  mark() {
    this.paint();
    const shown = this.hover ?? this.index;
    this.modes.show(this.layout, shown);
    this.readout.textContent = this.describe(shown);
    this.sums.replaceChildren(...definitions(arithmetic(this.layout, shown)));
    this.loops.textContent = loopOf(this.layout, shown);
    this.strip.paint(shown);
    this.answer.mark(shown);
  }

  describe(index) {
    const flat = flatCoordinate(this.layout, index);
    const nested = nest(this.layout.shape, coordinates(this.layout, index));
    const written = Array.isArray(this.layout.shape) ? `(${flat.join(",")})` : String(index);
    const coordinate = nested === written ? nested : `${written} = ${nested}`;
    return `coordinate ${coordinate} · index ${index} · offset ${this.offsets[index]}`;
  }

  paint() {
    const { tile, layout, hover } = this;
    const selected = placeOf(layout, this.index);
    tile.fresh();
    tile.steps(this.trail.map((index) => placeOf(layout, index)));
    tile.fill([selected], tile.theme.accent);
    tile.ring(selected, 2);
    if (hover !== null && hover !== this.index) tile.ring(placeOf(layout, hover));
    writeOffsets(this, selected);
  }

  /** Fit the tiles to their places. JupyterLab hides its page while it changes the theme: use the last width then. */
  prepare() {
    this.width = this.wrap.clientWidth || this.width || 0;
    const theme = themeOf(this.root);
    this.tile.prepare(this.map, this.width, theme, 18);
    const whole = this.root.clientWidth || this.width;
    this.strip.prepare(whole - 8, theme);
    const side = whole < 700 ? whole - 8 : (whole - 28) / 2;
    this.answer.prepare(side, theme);
  }

  redraw() {
    if (!this.layout) return;
    this.prepare();
    this.mark();
  }

  // ---- links

  view() {
    return Object.fromEntries(VIEW.map((name) => [name, name === "index" ? this.index : this.model.get(name)]));
  }

  /** The address of this view: this page's, or inside JupyterLab that of the published page. */
  link() {
    const page = hasAddress() ? location.href : this.model.get("page");
    return page.split("#")[0] + fragmentOf(this.model.get("name"), this.view());
  }

  async copyLink() {
    const link = this.link();
    if (hasAddress()) history.replaceState(history.state, "", link);
    const copied = await copyText(link);
    this.tell(copied ? "The link is copied." : hasAddress() ? "The link is in the address bar." : link);
  }

  async copyCall() {
    const call = callOf(this.view());
    this.tell((await copyText(call)) ? `Copied: ${call}` : call);
  }

  async copyLine() {
    const copied = await copyText(this.line.textContent);
    this.tell(copied ? "The line of CuTe DSL is copied." : "The browser does not let this page copy.");
  }

  /** Say something for a while in place of the summary. */
  tell(text) {
    this.layoutBox.message.classList.remove("is-wrong");
    this.layoutBox.message.textContent = text;
    setTimeout(() => this.layoutBox.say(), 4000);
  }

  /** Restore the view that the page's address names; returns whether it names one. */
  restore() {
    const wanted = viewIn(location.hash, this.model.get("name"));
    if (wanted) this.take(wanted);
    return wanted !== null;
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
    const acts = ["wheel", "touchstart", "pointerdown", "keydown"];
    for (const act of acts) window.addEventListener(act, stop, { once: true });
    setTimeout(stop, SETTLED);
  }

  // ---- pointer, keys, model

  key(event) {
    if ((event.ctrlKey || event.metaKey) && "zZyY".includes(event.key)) {
      event.preventDefault();
      return this.history.move(event.shiftKey || event.key.toLowerCase() === "y" ? 1 : -1);
    }
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const [{ rows, size }, index] = [this.layout, this.index];
    const to = { ArrowUp: index - 1, ArrowDown: index + 1, ArrowLeft: index - rows, ArrowRight: index + rows, Home: 0,
      End: size - 1 }[event.key];
    if (to === undefined && event.key !== " ") return;
    event.preventDefault();
    if (event.key === " ") this.walk();
    else if (to >= 0 && to < size) this.choose(to);
  }

  /** With the button held down, a pointer that moves selects what it passes. */
  drag(event) {
    const place = event.buttons === 1 ? this.tile.at(event) : null;
    if (place !== null && indexOf(this.layout, place) !== this.index) this.choose(indexOf(this.layout, place));
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
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    const followLink = () => this.followLink();
    window.addEventListener("hashchange", followLink);
    const changed = () => {
      if (!this.due) queueMicrotask(() => this.show()); // one redraw for both traits
      this.due = true;
    };
    const stops = [watchModel(this.model, VIEW, changed), watchLook(this.wrap, () => this.redraw())];
    followLink();
    return () => {
      this.stop();
      stops.forEach((stop) => stop());
      window.removeEventListener("hashchange", followLink);
    };
  }
}

function render({ model, el }) {
  const viewer = new Viewer(model);
  el.append(viewer.root);
  viewer.show();
  return viewer.listen();
}

export { readLayout, readTiler, readTree, offsetOf, coordinates, nest, compute, writeLayout };
export default { render };
