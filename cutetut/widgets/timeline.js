// The timeline: one row per role, a bar per span, and the bars that belong to the same tile, linked.
//
// Traits of the model: `run`, `selected` and `window` are the view, both ways; `_runs`, `_rows`, `_kinds`,
// `title`, `unit` and `tile` are data that Python sends once. Everything else happens here, so the timeline
// also works in a page with no kernel.

const DEEPEST = 2000; // how many times the whole is the shortest part of it that can be shown
const STEP = 1.6; // by what a press of a button or key zooms
const TURN = 0.002; // by what one unit of a wheel's turn zooms, as an exponent
const TOUCH = 5; // CSS pixels that a pointer may move and still click

class Timeline {
  constructor(model) {
    const [rows, kinds] = [model.get("_rows"), model.get("_kinds")];
    const runs = new Map(model.get("_runs").map((packed) => [packed.name, readRun(packed, rows)]));
    Object.assign(this, { model, rows, kinds, runs, unit: model.get("unit"), noun: model.get("tile") });
    Object.assign(this, { id: newId(), run: null, chosen: null, hover: null, marked: [] });
    this.pointers = new Map(); // those that are down, by id
    this.build();
    this.chart = new Chart(this.canvas, rows, kinds);
  }

  // ---- the page

  build() {
    const help = "Click or tap a bar to mark all bars of its " + this.noun + ". In the chart, arrow keys go from "
      + "bar to bar, + and - zoom, 0 shows everything, Escape clears. Drag to move in time; the wheel zooms once "
      + "the chart is clicked, or with Ctrl.";
    this.canvas = make("canvas", { class: "tl-chart", tabindex: 0, role: "application",
      "aria-roledescription": "timeline", "aria-describedby": `${this.id}-keys` });
    this.wrap = make("div", {}, this.canvas);
    this.readout = make("div", { class: "tp-readout" });
    this.shares = make("table", { class: "tl-shares" });
    this.caption = make("div", { class: "tl-caption" });
    this.body = make("tbody");
    const head = ["", "", "stage", "start", this.unit].map((text) => make("th", { scope: "col" }, text));
    this.box = make("div", { class: "tp-box" }, make("table", { role: "grid", "aria-label": "marked bars" },
      make("thead", {}, make("tr", {}, ...head)), this.body));
    this.part = make("div", { class: "tl-caption" });
    this.live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
    this.tabs = tabs(`${this.id}-run`, "recording", [...this.runs.keys()], (name) => this.show(name));
    this.root = frame("timeline", this.model.get("title"), this.runs.size > 1 ? this.tabs.root : "",
      this.controls(), this.legend(), this.wrap, this.readout,
      make("p", { class: "tp-keys", id: `${this.id}-keys` }, help),
      make("div", { class: "tl-tables" }, make("div", {}, this.part, this.shares),
        make("div", {}, this.caption, this.box)), this.live);
  }

  controls() {
    const button = (label, sign, does) => make("button", { type: "button", "aria-label": label, title: label,
      onclick: does }, sign);
    this.slider = make("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": "time shown",
      oninput: () => this.pan(this.from(this.slider.valueAsNumber / 1000)) });
    return make("div", { class: "tp-controls" },
      button("zoom out", "−", () => this.zoom(STEP)), button("zoom in", "+", () => this.zoom(1 / STEP)),
      button("everything", "all", () => this.look(null)),
      button("earlier", "◀", () => this.move(-0.5)), this.slider, button("later", "▶", () => this.move(0.5)));
  }

  legend() {
    return make("ul", { class: "tl-legend" }, ...this.kinds.map((kind) => make("li", {},
      make("span", { class: kind.wait ? "tl-swatch tl-hatched" : "tl-swatch", style: `--tl-color:${kind.color}` }),
      kind.name)));
  }

  // ---- the selection

  choose(traits) {
    assign(this.model, traits);
  }

  /** Show another run, and in it the same work: the bar of the same row, kind and tile. */
  show(name) {
    const [run, other, chosen] = [this.run, this.runs.get(name), this.chosen];
    const same = (i) => ["row", "kind", "tile"].every((key) => other[key][i] === run[key][chosen]);
    const found = chosen === null ? undefined : other.spans.find(same);
    this.choose({ run: name, selected: found ?? null });
  }

  /** Select a span and bring it into view. */
  pick(span) {
    const traits = { selected: span };
    if (span !== null) {
      const [from, to] = this.window;
      const [start, end] = [this.run.start[span], this.run.end[span]];
      if (start < from || end > to) traits.window = this.fitted((start + end) / 2 - (to - from) / 2, to - from);
    }
    this.choose(traits);
  }

  /** The neighbour of the selected span: by time in its row and lane order, or in the next row that has one. */
  neighbour(key) {
    const { run, chosen } = this;
    const byTime = (spans) => [...spans].sort((a, b) => run.start[a] - run.start[b] || run.lane[a] - run.lane[b]);
    if (chosen === null) return byTime(run.spans.filter((i) => run.end[i] >= this.window[0]))[0] ?? 0;
    const row = byTime(run.spans.filter((i) => run.row[i] === run.row[chosen]));
    const at = row.indexOf(chosen);
    const across = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: row.length - 1 }[key];
    if (across !== undefined) return row[clamp(across, 0, row.length - 1)];
    const down = key === "ArrowDown" ? 1 : -1;
    for (let next = run.row[chosen] + down; next >= 0 && next < this.rows.length; next += down) {
      const there = run.spans.filter((i) => run.row[i] === next);
      const away = (i) => Math.abs(run.start[i] + run.end[i] - run.start[chosen] - run.end[chosen]);
      if (there.length) return there.reduce((best, i) => (away(i) < away(best) ? i : best));
    }
    return chosen;
  }

  // ---- the time shown

  /** A window of this length that starts there, inside the run; null where it is all of it. */
  fitted(from, length) {
    const { duration } = this.run;
    if (length >= duration) return null;
    const start = clamp(from, 0, duration - length);
    return [start, start + length];
  }

  look(part) {
    this.choose({ window: part });
  }

  /** Zoom so that the time `around` stays where it is; by default the selected bar's, or the middle. */
  zoom(factor, around) {
    const [from, to] = this.window;
    const chosen = this.chosen === null ? from - 1 : (this.run.start[this.chosen] + this.run.end[this.chosen]) / 2;
    const still = around ?? (from <= chosen && chosen <= to ? chosen : (from + to) / 2);
    const length = clamp((to - from) * factor, this.run.duration / DEEPEST, this.run.duration);
    this.look(this.fitted(still - ((still - from) / (to - from)) * length, length));
  }

  pan(from) {
    this.look(this.fitted(from, this.window[1] - this.window[0]));
  }

  /** Move by a part of what is shown. */
  move(part) {
    const [from, to] = this.window;
    this.pan(from + part * (to - from));
  }

  /** The start of the window at a position of the slider, from 0 to 1. */
  from(position) {
    const [from, to] = this.window;
    return position * (this.run.duration - (to - from));
  }

  // ---- the screen

  follow() {
    if (!this.due) queueMicrotask(() => this.update()); // one redraw for all traits that change together
    this.due = true;
  }

  /** Bring the model's state to the screen. */
  update() {
    this.due = false;
    const run = this.runs.get(this.model.get("run"));
    const selected = this.model.get("selected");
    const chosen = selected !== null && selected < run.spans.length ? selected : null;
    const part = this.model.get("window");
    const other = run !== this.run;
    Object.assign(this, { run, chosen, hover: null });
    this.window = (part && this.fitted(part[0], part[1] - part[0])) ?? [0, run.duration];
    const [from, to] = this.window;
    if (other) this.prepare();
    this.tabs.show(run.name);
    const room = run.duration - (to - from);
    this.slider.disabled = room <= 0;
    this.slider.value = room > 0 ? (1000 * from) / room : 0;
    this.list(linked(run, chosen), other);
    this.measure();
    this.mark();
    this.live.textContent = this.describe(chosen);
    this.canvas.setAttribute("aria-label", `${this.rows.length} rows, ${this.unit} ${written(from)} to ${written(to)}`);
  }

  /** List the marked spans, unless they are listed already. */
  list(marked, other) {
    const { run } = this;
    const tile = marked.length ? run.tile[marked[0]] : null;
    this.caption.textContent = !marked.length ? `no ${this.noun} selected`
      : tile === null ? "selected" : `${this.noun} ${tile}`;
    this.box.hidden = !marked.length;
    if (!other && marked.join() === this.marked.join()) return;
    this.marked = marked;
    this.body.replaceChildren(...marked.map((i) => {
      const texts = [this.rows[run.row[i]], this.kinds[run.kind[i]].name, run.stage[i] ?? "", written(run.start[i]),
        written(run.end[i] - run.start[i])];
      return make("tr", { "data-span": i, tabindex: -1, "aria-selected": "false" },
        ...texts.map((text) => make("td", {}, String(text))));
    }));
  }

  /** How much of the time shown each row spends in each kind; where bars overlap, time counts once. */
  measure() {
    const { run, kinds, window: [from, to] } = this;
    const spent = this.rows.map(() => kinds.map(() => 0));
    const until = this.rows.map(() => kinds.map(() => from)); // time before this is counted
    for (const i of [...run.spans].sort((a, b) => run.start[a] - run.start[b])) {
      const [row, kind] = [run.row[i], run.kind[i]];
      const end = Math.min(run.end[i], to);
      spent[row][kind] += Math.max(0, end - Math.max(run.start[i], until[row][kind]));
      until[row][kind] = Math.max(until[row][kind], end);
    }
    const edge = (time) => (to - from > 20 ? Math.round(time) : written(time));
    this.part.textContent = `${this.unit} ${edge(from)} to ${edge(to)}, of which`;
    const share = (time) => (time > 0 ? `${((100 * time) / (to - from)).toFixed(0)}%` : "");
    this.shares.replaceChildren(
      make("thead", {}, make("tr", {}, make("td"), ...kinds.map((kind) => make("th", { scope: "col" }, kind.name)))),
      make("tbody", {}, ...numbers(this.rows.length).filter((row) => run.lanes[row]).map((row) => make("tr", {},
        make("th", { scope: "row" }, this.rows[row]), ...spent[row].map((time) => make("td", {}, share(time)))))));
  }

  /** Mark the selected and the hovered span in every view. */
  mark() {
    const { chosen, hover } = this;
    this.chart.paint(this.window, this);
    for (const row of this.body.children) {
      const span = Number(row.dataset.span);
      row.classList.toggle("is-selected", span === chosen);
      row.classList.toggle("is-hovered", span === hover);
      row.setAttribute("aria-selected", String(span === chosen));
      row.tabIndex = span === chosen ? 0 : -1;
    }
    this.readout.textContent = this.describe(hover ?? chosen);
    this.canvas.style.cursor = hover === null ? "grab" : "pointer";
  }

  describe(i) {
    const { run, unit } = this;
    if (i === null) return `${run.spans.length} bars in ${written(run.duration)} ${unit}`;
    return [`${this.rows[run.row[i]]} ${this.kinds[run.kind[i]].name}`,
      run.tile[i] === null ? "" : `${this.noun} ${run.tile[i]}`, run.stage[i] === null ? "" : `stage ${run.stage[i]}`,
      `starts at ${written(run.start[i])}`, `${written(run.end[i] - run.start[i])} ${unit}`, run.note[i],
    ].filter(Boolean).join(" · ");
  }

  /** Fit the chart to its place. JupyterLab hides its page while it changes the theme: use the last width then. */
  prepare() {
    this.width = this.wrap.clientWidth || this.width || 0;
    this.chart.prepare(this.run, this.width, themeOf(this.root));
  }

  /** Draw the chart again for another size or theme. */
  redraw() {
    if (!this.run) return;
    this.prepare();
    this.mark();
  }

  // ---- pointer and keys

  hoverAt(span) {
    if (span === this.hover) return;
    this.hover = span;
    this.mark();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.chart.across(event));
    this.moved = this.pointers.size > 1;
    this.grip = { x: event.clientX, window: this.window };
  }

  drag(event) {
    if (!this.pointers.has(event.pointerId)) return this.hoverAt(this.chart.at(event));
    const before = this.middle();
    this.pointers.set(event.pointerId, this.chart.across(event));
    const after = this.middle();
    this.moved ||= Math.abs(event.clientX - this.grip.x) > TOUCH;
    if (!this.moved) return;
    const [from, to] = this.window;
    const length = clamp((to - from) * (before.apart / after.apart), this.run.duration / DEEPEST, this.run.duration);
    const part = (after.x - this.chart.left) / (this.chart.width - this.chart.left);
    const next = this.fitted(this.chart.time(before.x) - part * length, length);
    this.chart.window = this.window = next ?? [0, this.run.duration];
    this.look(next);
  }

  /** Where the fingers' middle is and how far they are apart, in CSS pixels; one pointer is 1 apart. */
  middle() {
    const xs = [...this.pointers.values()];
    return { x: xs.reduce((sum, x) => sum + x) / xs.length,
      apart: xs.length > 1 ? Math.max(10, Math.abs(xs[0] - xs[1])) : 1 };
  }

  release(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (event.type === "pointerup" && !this.moved) this.pick(this.chart.at(event));
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const zooms = event.ctrlKey || event.metaKey || document.activeElement === this.canvas;
    if (!sideways && !zooms) return; // the page scrolls
    event.preventDefault();
    const turn = event.deltaMode ? 40 : 1; // lines, or pixels
    const [from, to] = this.window;
    const across = (event.deltaX || event.deltaY) * turn;
    if (sideways) this.pan(from + (across / (this.chart.width - this.chart.left)) * (to - from));
    else this.zoom(Math.exp(event.deltaY * turn * TURN), this.chart.time(this.chart.across(event)));
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const does = { "+": () => this.zoom(1 / STEP), "=": () => this.zoom(1 / STEP), "-": () => this.zoom(STEP),
      0: () => this.look(null), PageUp: () => this.move(-0.5), PageDown: () => this.move(0.5),
      Escape: () => this.pick(null) }[event.key];
    const moves = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key);
    if (!does && !moves) return;
    event.preventDefault();
    if (does) does();
    else this.pick(this.neighbour(event.key));
  }

  listenToChart() {
    const on = (name, does, options) => this.canvas.addEventListener(name, does.bind(this), options);
    on("pointerdown", this.press);
    on("pointermove", this.drag);
    for (const name of ["pointerup", "pointercancel"]) on(name, this.release);
    on("pointerleave", () => this.hoverAt(null));
    on("wheel", this.wheel, { passive: false });
    on("keydown", this.key);
  }

  listenToList() {
    const span = (event) => Number(event.target.closest("tr").dataset.span);
    this.body.addEventListener("pointerover", (event) => this.hoverAt(span(event)));
    this.body.addEventListener("pointerleave", () => this.hoverAt(null));
    this.body.addEventListener("click", (event) => this.pick(span(event)));
    this.body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      const to = { ArrowUp: row.previousSibling, ArrowDown: row.nextSibling, Home: this.body.firstChild,
        End: this.body.lastChild, Enter: row, " ": row }[event.key];
      if (!to) return;
      event.preventDefault();
      this.pick(Number(to.dataset.span));
      to.focus({ preventScroll: true });
    });
  }

  /** Follow the model, the size and the theme; returns how to stop. */
  listen() {
    this.listenToChart();
    this.listenToList();
    const stops = [watchLook(this.wrap, () => this.redraw()),
      watchModel(this.model, ["run", "selected", "window"], () => this.follow())];
    return () => stops.forEach((stop) => stop());
  }
}

function render({ model, el }) {
  const timeline = new Timeline(model);
  el.append(timeline.root);
  timeline.follow();
  return timeline.listen();
}

export default { render };
