// The thread picker: a tile, its threads and one thread's layout, in linked views.
//
// Traits of the model: `thread`, `map` and `element` are the selection, both ways; `_maps`, `_colors`,
// `_width`, `title` and `matrix` are data that Python sends once. Everything else happens here, so the picker
// also works in a page with no kernel. Cells have the hue of their warp and the lightness of their lane. A "place" is a flat element index, row * cols + col; a "value" is a
// register index. Python puts common.js and tile.js in front of this file: one module, no bundler.

// ---------------------------------------------------------------------------------------------- data

/** Undo pack_ints of thread_map.py: base64, deflate, differences. */
async function unpackInts(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const view = new DataView(await new Response(stream).arrayBuffer());
  const ints = new Int32Array(view.byteLength / 4);
  for (let i = 0, last = 0; i < ints.length; i++) ints[i] = last = (last + view.getInt32(4 * i, true)) | 0;
  return ints;
}

async function unpackMap(packed, colors) {
  const tables = {};
  for (const key of ["owner", "value", "offset", "coords"]) {
    tables[key] = packed[key] && (await unpackInts(packed[key]));
  }
  const map = { ...packed, ...tables, places: Array.from({ length: packed.threads }, () => []) };
  map.owner.forEach((thread, place) => (map.places[thread][map.value[place]] = place));
  map.rgb = (place) => colors.subarray(3 * map.owner[place], 3 * map.owner[place] + 3);
  map.team = warpOf;
  map.leaves = map.coords ? map.coords.length / map.values : 0;
  map.pitch = pitchOf(map);
  return map;
}

/** [row stride, column stride] of the tile in memory, or null where offsets are not linear in both. */
function pitchOf({ offset, rows, cols }) {
  if (!offset) return null;
  const start = offset[0];
  const pitch = [rows > 1 ? offset[cols] - start : 0, cols > 1 ? offset[1] - start : 0];
  const linear = (at, place) => at === Math.floor(place / cols) * pitch[0] + (place % cols) * pitch[1];
  return offset.every(linear) ? pitch : null;
}

const LANES = 32; // of a warp
const DIM = 0.5; // how much of the page's colour the cells take on whose thread is not selected
const warpOf = (thread) => Math.floor(thread / LANES);

const leavesOf = ({ coords, leaves }, value) => [...coords.subarray(value * leaves, (value + 1) * leaves)];

/** Write flat numbers in the nesting of `profile`, as CuTe prints a coordinate: (0,(2,1),(3,0)). */
function nest(profile, leaves) {
  const rest = [...leaves];
  const walk = (tree) => (Array.isArray(tree) ? `(${tree.map(walk).join(",")})` : String(rest.shift()));
  return walk(profile);
}

/** The registers that a thread uses, in order. */
const valuesOf = (map, thread) => Object.keys(map.places[thread]).map(Number);

const nameOf = (map, place, matrix) => `${matrix}[${rowOf(map, place)}][${colOf(map, place)}]`;

/** A thread's distinct rows (or columns), in the order in which its values first reach them. */
function indicesOf(map, thread, axis) {
  const index = axis === "row" ? rowOf : colOf;
  return [...new Set(valuesOf(map, thread).map((value) => index(map, map.places[thread][value])))];
}

/** Split ascending numbers into runs of neighbours. */
function runsOf(numbers) {
  const runs = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    if (runs.length && runs.at(-1).at(-1) === n - 1) runs.at(-1).push(n);
    else runs.push([n]);
  }
  return runs;
}

/** Write [0,1,2,3,64,65,66,67] as start + shape:stride, 0 + (4,2):(1,64); null where none fits. */
function compress(array) {
  const shape = [], stride = [];
  for (let rest = array; rest.length > 1; ) {
    const step = rest[1] - rest[0];
    let run = 1;
    while (run < rest.length && rest[run] - rest[run - 1] === step) run++;
    const expected = rest.map((_, i) => rest[i - (i % run)] + (i % run) * step);
    if (rest.length % run || rest.some((n, i) => n !== expected[i])) return null;
    shape.push(run);
    stride.push(step);
    rest = rest.filter((_, i) => i % run === 0);
  }
  if (shape.length === 0) return `${array[0]} + 1:0`;
  const write = (list) => (list.length > 1 ? `(${list.join(",")})` : list[0]);
  return `${array[0]} + ${write(shape)}:${write(stride)}`;
}

// ---------------------------------------------------------------------------------------------- page

/** A thread's elements as blocks of labelled cells: rows and columns that are neighbours stand together. */
function zoomBlocks(map, thread, matrix) {
  const [rowRuns, colRuns] = ["row", "col"].map((axis) => runsOf(indicesOf(map, thread, axis)));
  const cell = (row, col) => {
    const place = row * map.cols + col;
    if (map.owner[place] !== thread) return make("span", { class: "tp-cell tp-hole" });
    const value = map.value[place];
    const label = [`${matrix}[${row}]`, make("wbr"), `[${col}]`];
    return make("span", { class: "tp-cell", "data-value": value }, ...label);
  };
  return rowRuns.map((rows) => make("div", { class: colRuns.length > 2 ? "tp-band tp-dense" : "tp-band" },
    ...colRuns.map((cols) => make("div", { class: "tp-block", style: `--tp-cols:${cols.length}` },
      ...rows.flatMap((row) => cols.map((col) => cell(row, col)))))));
}

/** The hue of each warp with its number, in its darkest and its lightest tone; nothing for a single warp. */
function legendOf(threads, colors) {
  const warps = Array.from({ length: warpOf(threads - 1) + 1 }, (_, warp) => warp);
  if (warps.length < 2) return [];
  const css = (thread) => `rgb(${colors.subarray(3 * thread, 3 * thread + 3).join(" ")})`;
  return ["warp", ...warps.map((warp) => {
    const lanes = Array.from({ length: Math.min(LANES, threads - LANES * warp) }, (_, lane) => LANES * warp + lane);
    const green = (thread) => colors[3 * thread + 1]; // tones of one hue are in the order of their green
    const [dark, ...others] = lanes.sort((a, b) => green(a) - green(b));
    const swatch = `opacity: ${1 - DIM}; background: linear-gradient(90deg, ${css(dark)} 50%, ${css(others.at(-1) ?? dark)} 50%)`;
    return make("span", { class: "tp-warp" }, make("i", { style: swatch }), String(warp));
  })];
}

/** The rows of the table, one per value of the thread. */
function tableRows(map, thread, matrix) {
  return valuesOf(map, thread).map((value) => {
    const place = map.places[thread][value];
    const cells = [value];
    if (map.coords) cells.push(nest(map.profile, leavesOf(map, value)));
    if (map.offset) cells.push(map.offset[place]);
    cells.push(nameOf(map, place, matrix));
    return make("tr", { "data-value": value, tabindex: -1, "aria-selected": "false" },
      ...cells.map((text) => make("td", {}, String(text))));
  });
}

/** Lines of arithmetic for one element and the thread's rows and columns. */
function arithmetic(map, thread, place, matrix) {
  const lines = [];
  const [row, col] = [rowOf(map, place), colOf(map, place)];
  if (map.layout) lines.push(["layout", map.layout]);
  if (map.stride) {
    const leaves = leavesOf(map, map.value[place]);
    const terms = leaves.map((n, i) => `${n}×${map.stride[i]}`).join(" + ");
    const inner = leaves.reduce((sum, n, i) => sum + n * map.stride[i], 0);
    lines.push(["coordinate × stride", `${nest(map.profile, leaves)} → ${terms} = ${inner}`]);
    const offset = map.offset[place];
    lines.push(["offset", `start of thread ${thread}: ${offset - inner} + ${inner} = ${offset}`]);
  }
  if (map.pitch) {
    const [down, right] = map.pitch;
    const total = row * down + col * right;
    lines.push([nameOf(map, place, matrix), `${row}×${down} + ${col}×${right} = ${total}`]);
  }
  const [rows, cols] = [indicesOf(map, thread, "row"), indicesOf(map, thread, "col")];
  if (rows.length * cols.length === valuesOf(map, thread).length) {
    for (const [name, list] of [["my_rows", rows], ["my_cols", cols]]) {
      const short = compress(list);
      lines.push([name, `[${list.join(", ")}]${short ? ` = ${short}` : ""}`]);
    }
  }
  return definitions(lines);
}

// ---------------------------------------------------------------------------------------------- view

class Picker {
  constructor(model, maps, colors) {
    Object.assign(this, { model, maps, colors, matrix: model.get("matrix"), id: newId() });
    this.last = maps.values().next().value.threads - 1;
    // What is on the screen; `value` is the register that stays selected when the thread or the map changes.
    Object.assign(this, { map: null, thread: 0, place: null, hover: null, value: null });
    this.build();
    this.tile = new Tile(this.canvas);
  }

  // ---- the page

  build() {
    const help = "Click or tap an element. In the tile, arrow keys move by one thread or one row of threads.";
    this.canvas = make("canvas", { class: "tp-tile", tabindex: 0, role: "application",
      "aria-roledescription": "thread picker", "aria-describedby": `${this.id}-keys` });
    this.wrap = make("div", {}, this.canvas);
    this.readout = make("div", { class: "tp-readout" });
    this.zoom = make("div", { class: "tp-zoom", role: "img" });
    this.head = make("tr");
    this.body = make("tbody");
    this.box = make("div", { class: "tp-box" },
      make("table", { role: "grid", "aria-label": "layout coordinates and elements" },
        make("thead", {}, this.head), this.body));
    this.sums = make("dl", { class: "tp-sums" });
    this.live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
    this.threads = stepper(`${this.id}-thread`, "thread", this.last, (thread) => this.choose({ thread }));
    this.tabs = tabs(`${this.id}-map`, "map", [...this.maps.keys()], (map) => this.choose({ map }));
    this.root = frame("thread picker", this.model.get("title"),
      this.maps.size > 1 ? this.tabs.root : "", this.threads.root,
      make("div", { class: "tp-main" },
        make("div", { class: "tp-left" }, this.wrap, this.readout,
          make("div", { class: "tp-legend" }, ...legendOf(this.last + 1, this.colors)),
          make("p", { class: "tp-keys", id: `${this.id}-keys` }, help)),
        make("div", { class: "tp-right" }, this.zoom, this.box)),
      this.sums, this.live);
  }

  // ---- the selection

  /** Write a selection into the model; its change events bring it to the screen. */
  choose(selection) {
    assign(this.model, selection);
  }

  pick(place) {
    this.choose({ element: [rowOf(this.map, place), colOf(this.map, place)] });
  }

  /** Read the model's selection. */
  selected() {
    const [map, element] = [this.maps.get(this.model.get("map")), this.model.get("element")];
    const inside = element && element[0] < map.rows && element[1] < map.cols;
    const place = inside ? element[0] * map.cols + element[1] : null;
    return { map, thread: this.model.get("thread"), place };
  }

  /** Keep thread and element in agreement, by the same rule as ThreadPicker._follow in Python. */
  follow(changed) {
    const { map, thread, place } = this.selected();
    if (place !== null && (changed === "element" || map.owner[place] === thread)) {
      this.value = map.value[place];
      if (map.owner[place] !== thread) this.choose({ thread: map.owner[place] });
    } else if (changed === "element") {
      this.value = null;
    } else if (this.model.get("element") !== null) {
      const moved = map.places[thread][this.value];
      this.choose({ element: moved === undefined ? null : [rowOf(map, moved), colOf(map, moved)] });
    }
    if (!this.due) queueMicrotask(() => this.show()); // one redraw for all traits that change together
    this.due = true;
  }

  // ---- the screen

  /** Bring the model's selection to the screen. */
  show() {
    this.due = false;
    const [oldMap, oldThread] = [this.map, this.thread];
    Object.assign(this, this.selected(), { hover: null });
    if (this.map !== oldMap) this.showMap();
    if (this.map !== oldMap || this.thread !== oldThread) this.showThread();
    this.mark(true);
    this.live.textContent = this.describe(this.place);
  }

  showMap() {
    this.prepare();
    this.tabs.show(this.map.name);
    const columns = ["v", this.map.coords && "coordinate", this.map.offset && "offset", "element"];
    this.head.replaceChildren(...columns.filter(Boolean).map((text) => make("th", { scope: "col" }, text)));
  }

  showThread() {
    const { map, thread, matrix } = this;
    this.threads.show(thread);
    this.zoom.replaceChildren(...zoomBlocks(map, thread, matrix));
    this.body.replaceChildren(...tableRows(map, thread, matrix));
    this.zoom.setAttribute("aria-label", `elements of thread ${thread}; the table lists them`);
    this.canvas.setAttribute("aria-label", `${map.rows} by ${map.cols} tile, thread ${thread} selected`);
  }

  /** Mark the selected and the hovered element in every view. */
  mark(scroll) {
    const { map, thread, place, hover } = this;
    this.paint();
    const mine = (p) => (p !== null && map.owner[p] === thread ? map.value[p] : null);
    const [chosen, hovered] = [mine(place), mine(hover)];
    for (const node of this.root.querySelectorAll("[data-value]")) {
      const value = Number(node.dataset.value);
      node.classList.toggle("is-selected", value === chosen);
      node.classList.toggle("is-hovered", value === hovered);
      if (node.tagName === "TR") node.setAttribute("aria-selected", String(value === chosen));
    }
    const shown = this.body.querySelector(`[data-value="${hovered ?? chosen}"]`);
    for (const row of this.body.children) row.tabIndex = row === (shown ?? this.body.firstChild) ? 0 : -1;
    if (scroll && shown) this.reveal(shown);
    this.readout.textContent = this.describe(hover ?? place);
    const worked = hovered !== null ? hover : place ?? map.places[thread].find((p) => p !== undefined);
    this.sums.replaceChildren(...(worked === undefined ? [] : arithmetic(map, thread, worked, this.matrix)));
  }

  /** Scroll the table to a row, and never the page. */
  reveal(row) {
    const least = row.offsetTop + row.offsetHeight - this.box.clientHeight;
    const most = row.offsetTop - this.head.offsetHeight;
    this.box.scrollTop = Math.min(most, Math.max(least, this.box.scrollTop));
  }

  describe(place) {
    const { map, thread } = this;
    const lane = (owner) => (this.last < LANES ? "" : ` (warp ${warpOf(owner)}, lane ${owner % LANES})`);
    if (place === null) return `thread ${thread}${lane(thread)}: ${valuesOf(map, thread).length} elements`;
    const offset = map.offset ? ` · offset ${map.offset[place]}` : "";
    const [name, owner] = [nameOf(map, place, this.matrix), map.owner[place]];
    return `${name} · thread ${owner}${lane(owner)} · value ${map.value[place]}${offset}`;
  }

  /** Draw the selected thread's elements and the selected one, and where the pointer is. */
  paint() {
    const { map, tile, thread, place, hover } = this;
    const mine = map.places[thread].filter((p) => p !== undefined);
    tile.fresh();
    tile.dim(DIM);
    tile.fill(mine, tile.theme.accent);
    if (tile.wide >= LABEL_CELL * tile.dpr) {
      tile.letters(Math.min(tile.wide / tile.dpr / 2.9, 12));
      const ink = (owner) => tile.theme[owner === thread ? "on-accent" : "fg"];
      map.owner.forEach((owner, p) => tile.write(p, [`T${owner}`, `v${map.value[p]}`], ink(owner)));
    }
    tile.outline(mine);
    if (hover !== null) tile.outline(map.places[map.owner[hover]].filter((p) => p !== undefined));
    if (place !== null) tile.ring(place, 2);
    if (hover !== null && hover !== place) tile.ring(hover);
  }

  /** Fit the tile to its place. JupyterLab hides its page while it changes the theme: use the last width then. */
  prepare() {
    this.width = this.wrap.clientWidth || this.width || 0;
    this.tile.prepare(this.map, this.width, themeOf(this.root));
  }

  /** Draw the tile again for another size or theme. */
  redraw() {
    this.prepare();
    this.paint();
  }

  // ---- pointer and keys

  hoverAt(place, scroll) {
    if (place === this.hover) return;
    this.hover = place;
    this.mark(scroll);
  }

  listenToTile() {
    pointAt(this.tile, (place) => this.hoverAt(place, place !== null), (place) => this.pick(place));
    this.canvas.addEventListener("keydown", (event) => {
      const width = this.model.get("_width");
      const to = this.thread + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width,
        Home: -this.thread, End: this.last - this.thread }[event.key];
      if (Number.isNaN(to) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (to >= 0 && to <= this.last) this.choose({ thread: to });
    });
  }

  listenToLists() {
    for (const list of [this.zoom, this.body]) {
      const place = (event) => {
        const node = event.target.closest("[data-value]");
        return node ? this.map.places[this.thread][Number(node.dataset.value)] : null;
      };
      list.addEventListener("pointerover", (event) => this.hoverAt(place(event), list === this.zoom));
      list.addEventListener("pointerleave", () => this.hoverAt(null, false));
      list.addEventListener("click", (event) => {
        if (place(event) !== null) this.pick(place(event));
      });
    }
    this.body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      const to = { ArrowUp: row.previousSibling, ArrowDown: row.nextSibling, Home: this.body.firstChild,
        End: this.body.lastChild, Enter: row, " ": row }[event.key];
      if (!to) return;
      event.preventDefault();
      this.pick(this.map.places[this.thread][Number(to.dataset.value)]);
      to.focus({ preventScroll: true });
    });
  }

  /** Follow the model, the size and the theme; returns how to stop. */
  listen() {
    this.listenToTile();
    this.listenToLists();
    const stops = [watchLook(this.wrap, () => this.redraw()),
      watchModel(this.model, ["thread", "map", "element"], (name) => this.follow(name))];
    return () => stops.forEach((stop) => stop());
  }
}

async function render({ model, el }) {
  const colors = Uint8Array.from(atob(model.get("_colors")), (c) => c.charCodeAt(0));
  const maps = new Map();
  for (const packed of model.get("_maps")) maps.set(packed.name, await unpackMap(packed, colors));
  const picker = new Picker(model, maps, colors);
  el.append(picker.root);
  picker.follow("element");
  return picker.listen();
}

export default { render };
