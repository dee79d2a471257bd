// The thread picker: a tile, its threads and one thread's layout, in linked views.
//
// Traits of the model: `thread`, `map` and `element` are the selection, both ways; `_maps`, `_colors`, `_width`,
// `title` and `matrix` are data that Python sends once. Everything else happens here, so the picker also works in a
// page with no kernel. A "place" is a flat element index, row * cols + col; a "value" is a register index.

const MARGIN = { left: 34, top: 20, right: 6, bottom: 4 }; // CSS pixels around the tile, for the axis labels
const MAX_TILE = 520; // CSS pixels, the tallest a tile gets
const MAX_CELL = 44; // CSS pixels, the largest an element gets
const LABEL_CELL = 30; // CSS pixels, from which size an element carries its thread and value

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

async function unpackMap(packed) {
  const tables = {};
  for (const key of ["owner", "value", "offset", "coords"]) tables[key] = packed[key] && (await unpackInts(packed[key]));
  const map = { ...packed, ...tables, places: Array.from({ length: packed.threads }, () => []) };
  map.owner.forEach((thread, place) => (map.places[thread][map.value[place]] = place));
  map.leaves = map.coords ? map.coords.length / map.values : 0;
  map.pitch = pitchOf(map);
  return map;
}

/** [row stride, column stride] of the tile in memory, or null where offsets are not linear in row and column. */
function pitchOf({ offset, rows, cols }) {
  if (!offset) return null;
  const start = offset[0];
  const pitch = [rows > 1 ? offset[cols] - start : 0, cols > 1 ? offset[1] - start : 0];
  const linear = (value, place) => value === start + Math.floor(place / cols) * pitch[0] + (place % cols) * pitch[1];
  return start === 0 && offset.every(linear) ? pitch : null;
}

const leavesOf = (map, value) => Array.from(map.coords.subarray(value * map.leaves, (value + 1) * map.leaves));

/** Write flat numbers in the nesting of `profile`, as CuTe prints a coordinate: (0,(2,1),(3,0)). */
function nest(profile, leaves) {
  const rest = [...leaves];
  const walk = (tree) => (Array.isArray(tree) ? `(${tree.map(walk).join(",")})` : String(rest.shift()));
  return walk(profile);
}

/** The values of a thread that exist, in register order. */
const valuesOf = (map, thread) => Object.keys(map.places[thread]).map(Number);

/** A thread's distinct rows (or columns), in the order in which its values first reach them. */
function indicesOf(map, thread, axis) {
  const index = (place) => (axis === "row" ? Math.floor(place / map.cols) : place % map.cols);
  return [...new Set(valuesOf(map, thread).map((value) => index(map.places[thread][value])))];
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

/** Write an index array as start + shape:stride, [0,1,2,3,64,65,66,67] as 0 + (4,2):(1,64); null where none fits. */
function compress(array) {
  const shape = [], stride = [];
  for (let rest = array; rest.length > 1; ) {
    const step = rest[1] - rest[0];
    let run = 1;
    while (run < rest.length && rest[run] - rest[run - 1] === step) run++;
    const fits = rest.length % run === 0 && rest.every((n, i) => n === rest[i - (i % run)] + (i % run) * step);
    if (!fits) return null;
    shape.push(run);
    stride.push(step);
    rest = rest.filter((_, i) => i % run === 0);
  }
  if (shape.length === 0) return `${array[0]} + 1:0`;
  const write = (list) => (list.length > 1 ? `(${list.join(",")})` : list[0]);
  return `${array[0]} + ${write(shape)}:${write(stride)}`;
}

// ---------------------------------------------------------------------------------------------- page

/** Make an element: attributes by name, listeners as on*, children as nodes or text. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** The tile on a canvas: drawn once per size, theme and map, then copied with the selection on top. */
class Tile {
  constructor(canvas, colors) {
    this.canvas = canvas;
    this.colors = colors;
    this.base = document.createElement("canvas");
  }

  /** Draw the tile without a selection, as large as `width` CSS pixels allow in whole device pixels. */
  prepare(map, width, theme) {
    const dpr = window.devicePixelRatio || 1;
    const room = Math.min((width - MARGIN.left - MARGIN.right) / map.cols, MAX_TILE / map.rows, MAX_CELL);
    const cell = Math.max(1, Math.floor(room * dpr));
    const [left, top] = [Math.round(MARGIN.left * dpr), Math.round(MARGIN.top * dpr)];
    Object.assign(this, { map, theme, dpr, cell, left, top });
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = left + cell * map.cols + Math.round(MARGIN.right * dpr);
      canvas.height = top + cell * map.rows + Math.round(MARGIN.bottom * dpr);
    }
    this.canvas.style.width = `${this.canvas.width / dpr}px`;
    this.canvas.style.height = `${this.canvas.height / dpr}px`;
    const context = this.base.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pixels(), left, top, cell * map.cols, cell * map.rows);
    if (cell >= 5) this.separators(context);
    this.axes(context);
  }

  /** One pixel per element, in its thread's colour. */
  pixels() {
    const { map, colors } = this;
    const image = new ImageData(map.cols, map.rows);
    map.owner.forEach((thread, place) => {
      for (let k = 0; k < 3; k++) image.data[4 * place + k] = colors[3 * thread + k];
      image.data[4 * place + 3] = 255;
    });
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [map.cols, map.rows];
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  /** Lines between elements of different threads, so that no border depends on colour. */
  separators(context) {
    const width = Math.max(1, Math.round(this.dpr / 2));
    context.fillStyle = this.theme.bg;
    for (let place = 0; place < this.map.owner.length; place++) {
      const [x, y] = this.corner(place);
      if (this.border(place, 0, -1)) context.fillRect(x, y, this.cell, width);
      if (this.border(place, -1, 0)) context.fillRect(x, y, width, this.cell);
    }
  }

  axes(context) {
    const { map, dpr, cell, left, top } = this;
    context.fillStyle = this.theme.muted;
    context.font = `${11 * dpr}px ${this.theme.mono}`;
    const ticks = (size) => [0, 1, 2, 3].map((i) => Math.round((i * size) / 4)).concat(size - 1);
    context.textBaseline = "bottom";
    context.textAlign = "center";
    for (const col of new Set(ticks(map.cols))) context.fillText(col, left + (col + 0.5) * cell, top - 4 * dpr);
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const row of new Set(ticks(map.rows))) context.fillText(row, left - 6 * dpr, top + (row + 0.5) * cell);
  }

  /** Copy the tile and mark the selected thread and element, and the hovered ones. */
  paint({ thread, place, hover }) {
    const { map, cell, theme, dpr } = this;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.base, 0, 0);
    context.globalAlpha = 0.66;
    context.fillStyle = theme.bg;
    context.fillRect(this.left, this.top, cell * map.cols, cell * map.rows);
    context.globalAlpha = 1;
    const mine = map.places[thread].filter((p) => p !== undefined);
    context.fillStyle = theme.accent;
    for (const p of mine) context.fillRect(...this.corner(p), cell, cell);
    if (cell >= LABEL_CELL * dpr) this.labels(context, thread);
    const line = Math.max(Math.round(dpr), Math.round(cell / 10));
    if (hover !== null && map.owner[hover] !== thread) this.outline(context, map.places[map.owner[hover]], line);
    this.outline(context, mine, line);
    if (place !== null) this.ring(context, place, 2 * line);
    if (hover !== null && hover !== place) this.ring(context, hover, line);
  }

  labels(context, thread) {
    const { map, cell, dpr, theme } = this;
    context.font = `${Math.round(Math.min(cell / 2.9, 12 * dpr))}px ${theme.mono}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    map.owner.forEach((owner, place) => {
      const [x, y] = this.corner(place);
      context.fillStyle = owner === thread ? theme.onAccent : theme.fg;
      context.fillText(`T${owner}`, x + cell / 2, y + cell * 0.32);
      context.fillText(`v${map.value[place]}`, x + cell / 2, y + cell * 0.7);
    });
  }

  /** Outline places on the sides where the neighbour belongs to another thread. */
  outline(context, places, line) {
    context.fillStyle = this.theme.fg;
    for (const place of places) {
      if (place === undefined) continue;
      const [x, y] = this.corner(place);
      const long = this.cell + 2 * line;
      if (this.border(place, 0, -1)) context.fillRect(x - line, y - line, long, line);
      if (this.border(place, 0, 1)) context.fillRect(x - line, y + this.cell, long, line);
      if (this.border(place, -1, 0)) context.fillRect(x - line, y - line, line, long);
      if (this.border(place, 1, 0)) context.fillRect(x + this.cell, y - line, line, long);
    }
  }

  /** Ring one element in two tones, and point at it from both axes. */
  ring(context, place, line) {
    const [x, y] = this.corner(place);
    const [middle, dart] = [this.cell / 2, 5 * this.dpr];
    for (const [color, gap] of [[this.theme.bg, 2 * line], [this.theme.fg, line]]) {
      context.lineWidth = line;
      context.strokeStyle = color;
      context.strokeRect(x - gap + line / 2, y - gap + line / 2, this.cell + 2 * gap - line, this.cell + 2 * gap - line);
    }
    context.fillStyle = this.theme.fg;
    context.beginPath();
    for (const [px, py, dx, dy] of [[this.left, y + middle, -dart, 0], [x + middle, this.top, 0, -dart]]) {
      context.moveTo(px, py);
      context.lineTo(px + dx - dy / 1.5, py + dy - dx / 1.5);
      context.lineTo(px + dx + dy / 1.5, py + dy + dx / 1.5);
    }
    context.fill();
  }

  corner(place) {
    const { map, cell } = this;
    return [this.left + (place % map.cols) * cell, this.top + Math.floor(place / map.cols) * cell];
  }

  /** Whether the neighbour in direction (dx, dy) belongs to another thread or lies outside. */
  border(place, dx, dy) {
    const { owner, cols, rows } = this.map;
    const [col, row] = [(place % cols) + dx, Math.floor(place / cols) + dy];
    return col < 0 || row < 0 || col >= cols || row >= rows || owner[row * cols + col] !== owner[place];
  }

  /** The place under a pointer event, or null. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const col = Math.floor(((event.clientX - box.left) * this.dpr - this.left) / this.cell);
    const row = Math.floor(((event.clientY - box.top) * this.dpr - this.top) / this.cell);
    const inside = col >= 0 && row >= 0 && col < this.map.cols && row < this.map.rows;
    return inside ? row * this.map.cols + col : null;
  }
}

/** The colours and font the page gives the picker now. */
function themeOf(root) {
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--tp-${name}`).trim();
  return { bg: read("bg"), fg: read("fg"), muted: read("muted"), accent: read("accent"), onAccent: read("on-accent"),
    mono: read("mono") };
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

/** A thread's elements as blocks of labelled cells: rows and columns that are neighbours stand together. */
function zoomBlocks(map, thread, matrix) {
  const [rowRuns, colRuns] = ["row", "col"].map((axis) => runsOf(indicesOf(map, thread, axis)));
  const cell = (row, col) => {
    const place = row * map.cols + col;
    if (map.owner[place] !== thread) return make("span", { class: "tp-cell tp-hole" });
    const value = map.value[place];
    return make("span", { class: "tp-cell", "data-value": value }, `${matrix}[${row}]`, make("wbr"), `[${col}]`);
  };
  return rowRuns.map((rows) => make("div", { class: colRuns.length > 2 ? "tp-band tp-dense" : "tp-band" },
    ...colRuns.map((cols) => make("div", { class: "tp-block", style: `--tp-cols:${cols.length}` },
      ...rows.flatMap((row) => cols.map((col) => cell(row, col)))))));
}

/** The rows of the table, one per value of the thread. */
function tableRows(map, thread, matrix) {
  return valuesOf(map, thread).map((value) => {
    const place = map.places[thread][value];
    const cells = [value];
    if (map.coords) cells.push(nest(map.profile, leavesOf(map, value)));
    if (map.offset) cells.push(map.offset[place]);
    cells.push(`${matrix}[${Math.floor(place / map.cols)}][${place % map.cols}]`);
    return make("tr", { "data-value": value, tabindex: -1, "aria-selected": "false" },
      ...cells.map((text) => make("td", {}, String(text))));
  });
}

/** Lines of arithmetic for one element and the thread's rows and columns. */
function arithmetic(map, thread, place, matrix) {
  const lines = [];
  const [row, col] = [Math.floor(place / map.cols), place % map.cols];
  if (map.layout) lines.push(["layout", map.layout]);
  if (map.stride) {
    const leaves = leavesOf(map, map.value[place]);
    const terms = leaves.map((n, i) => `${n}×${map.stride[i]}`);
    const start = map.offset[place] - leaves.reduce((sum, n, i) => sum + n * map.stride[i], 0);
    lines.push(["coordinate × stride", `${nest(map.profile, leaves)} → ${terms.join(" + ")} = ${map.offset[place] - start}`]);
    lines.push(["offset", `start of thread ${thread}: ${start} + ${map.offset[place] - start} = ${map.offset[place]}`]);
  }
  if (map.pitch) {
    const [down, right] = map.pitch;
    const total = row * down + col * right;
    lines.push([`${matrix}[${row}][${col}]`, `${row}×${down} + ${col}×${right} = ${total}`]);
  }
  const [rows, cols] = [indicesOf(map, thread, "row"), indicesOf(map, thread, "col")];
  if (rows.length * cols.length === valuesOf(map, thread).length) {
    for (const [name, list] of [["my_rows", rows], ["my_cols", cols]]) {
      const short = compress(list);
      lines.push([name, `[${list.join(", ")}]${short ? ` = ${short}` : ""}`]);
    }
  }
  return lines.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
}

// ---------------------------------------------------------------------------------------------- view

let views = 0; // radio buttons and labels need names that no other view has

async function render({ model, el }) {
  const maps = new Map();
  for (const packed of model.get("_maps")) maps.set(packed.name, await unpackMap(packed));
  const colors = Uint8Array.from(atob(model.get("_colors")), (c) => c.charCodeAt(0));
  const id = `tp${++views}`;
  const matrix = model.get("matrix");
  const last = maps.values().next().value.threads - 1;
  const now = { thread: 0, place: null, hover: null, value: null, map: null }; // what is on the screen

  const canvas = make("canvas", { class: "tp-tile", tabindex: 0, role: "application",
    "aria-roledescription": "thread picker", "aria-describedby": `${id}-keys` });
  const wrap = make("div", { class: "tp-wrap" }, canvas);
  const readout = make("div", { class: "tp-readout" });
  const live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
  const number = make("input", { type: "number", min: 0, max: last, step: 1, id: `${id}-n`, inputmode: "numeric" });
  const slider = make("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "thread" });
  const step = (by, label, sign) => make("button", { type: "button", "aria-label": label, onclick: () => move(by) }, sign);
  const radios = [...maps.keys()].map((name) => make("input", { type: "radio", name: `${id}-map`, value: name,
    onchange: () => choose({ map: name }) }));
  const zoom = make("div", { class: "tp-zoom", role: "img" });
  const body = make("tbody");
  const head = make("tr");
  const box = make("div", { class: "tp-box" }, make("table", { role: "grid", "aria-label": "layout and elements" },
    make("thead", {}, head), body));
  const sums = make("dl", { class: "tp-sums" });
  const root = make("section", { class: "cutetut-picker", "data-lm-suppress-shortcuts": "true",
    "aria-label": model.get("title") || "thread picker" },
    ...(model.get("title") ? [make("h4", { class: "tp-title" }, model.get("title"))] : []),
    ...(radios.length > 1 ? [make("fieldset", { class: "tp-maps" }, make("legend", {}, "map"),
      ...radios.map((radio) => make("label", {}, radio, make("span", {}, radio.value))))] : []),
    make("div", { class: "tp-controls" }, make("label", { for: `${id}-n` }, "thread"),
      step(-1, "previous thread", "◀"), number, step(1, "next thread", "▶"), slider),
    make("div", { class: "tp-main" },
      make("div", { class: "tp-left" }, wrap, readout,
        make("p", { class: "tp-keys", id: `${id}-keys` },
          "Click or tap an element. In the tile, arrow keys move by one thread or one row of threads.")),
      make("div", { class: "tp-right" }, zoom, box)),
    sums, live);
  const tile = new Tile(canvas, colors);

  /** Write a selection into the model; the change handlers bring it to the screen. */
  function choose(selection) {
    for (const [name, value] of Object.entries(selection)) model.set(name, value);
    model.save_changes();
  }
  const pick = (place) => choose({ thread: now.map.owner[place],
    element: [Math.floor(place / now.map.cols), place % now.map.cols] });
  const move = (by) => choose({ thread: Math.min(last, Math.max(0, model.get("thread") + by)) });

  /** Keep thread and element in agreement, by the same rule as ThreadPicker._follow in Python. */
  function follow(changed) {
    const [map, thread, element] = [maps.get(model.get("map")), model.get("thread"), model.get("element")];
    if (element === null) return changed === "element" ? (now.value = null) : undefined;
    const inside = element[0] < map.rows && element[1] < map.cols;
    const place = element[0] * map.cols + element[1];
    if (inside && (changed === "element" || map.owner[place] === thread)) {
      now.value = map.value[place];
      if (map.owner[place] !== thread) choose({ thread: map.owner[place] });
    } else {
      const moved = map.places[thread][now.value];
      choose({ element: moved === undefined ? null : [Math.floor(moved / map.cols), moved % map.cols] });
    }
  }

  let due = false; // one redraw for all traits that change together
  const changes = Object.fromEntries(["thread", "map", "element"].map((name) => [name, () => {
    follow(name);
    if (!due) queueMicrotask(show);
    due = true;
  }]));

  /** Bring the model's selection to the screen. */
  function show() {
    due = false;
    const [map, thread, element] = [maps.get(model.get("map")), model.get("thread"), model.get("element")];
    const [newMap, newThread] = [map !== now.map, map !== now.map || thread !== now.thread];
    Object.assign(now, { map, thread, hover: null, place: element && element[0] * map.cols + element[1] });
    if (newMap) newTile();
    if (newThread) showThread();
    mark(true);
    announce();
  }

  function newTile() {
    tile.prepare(now.map, wrap.clientWidth, themeOf(root));
    radios.forEach((radio) => (radio.checked = radio.value === model.get("map")));
    const columns = ["value", now.map.coords && "coordinate", now.map.offset && "offset", "element"];
    head.replaceChildren(...columns.filter(Boolean).map((text) => make("th", { scope: "col" }, text)));
  }

  function showThread() {
    if (document.activeElement !== number) number.value = now.thread;
    slider.value = now.thread;
    zoom.replaceChildren(...zoomBlocks(now.map, now.thread, matrix));
    body.replaceChildren(...tableRows(now.map, now.thread, matrix));
    zoom.setAttribute("aria-label", `elements of thread ${now.thread}; the table lists them`);
  }

  /** Mark the selected and hovered element in every view. */
  function mark(scroll) {
    tile.paint(now);
    const { map, thread, place, hover } = now;
    const mine = (p) => (p !== null && map.owner[p] === thread ? map.value[p] : null);
    const [chosen, hovered] = [mine(place), mine(hover)];
    for (const node of root.querySelectorAll("[data-value]")) {
      const value = Number(node.dataset.value);
      node.classList.toggle("is-selected", value === chosen);
      node.classList.toggle("is-hovered", value === hovered);
      if (node.tagName === "TR") node.setAttribute("aria-selected", String(value === chosen));
    }
    const rows = [...body.children];
    const shown = rows.find((row) => Number(row.dataset.value) === (hovered ?? chosen));
    rows.forEach((row) => (row.tabIndex = row === (shown ?? rows[0]) ? 0 : -1));
    if (scroll && shown) reveal(shown);
    readout.textContent = describe(hover ?? place);
    const first = mine(hover) !== null ? hover : place ?? map.places[thread].find((p) => p !== undefined);
    sums.replaceChildren(...(first === undefined ? [] : arithmetic(map, thread, first, matrix)));
  }

  /** Scroll the table, never the page. */
  function reveal(row) {
    const header = head.parentNode.offsetHeight;
    if (row.offsetTop - header < box.scrollTop) box.scrollTop = row.offsetTop - header;
    const bottom = row.offsetTop + row.offsetHeight - box.clientHeight;
    if (bottom > box.scrollTop) box.scrollTop = bottom;
  }

  function describe(place) {
    if (place === null) return `thread ${now.thread}: ${valuesOf(now.map, now.thread).length} elements`;
    const { map } = now;
    const offset = map.offset ? ` · offset ${map.offset[place]}` : "";
    const name = `${matrix}[${Math.floor(place / map.cols)}][${place % map.cols}]`;
    return `${name} · thread ${map.owner[place]} · value ${map.value[place]}${offset}`;
  }

  function announce() {
    const { map, thread } = now;
    canvas.setAttribute("aria-label", `${map.rows} by ${map.cols} tile, thread ${thread} selected`);
    const count = valuesOf(map, thread).length;
    live.textContent = now.place === null ? `thread ${thread}, ${count} elements` : describe(now.place);
  }

  function hoverAt(place, scroll) {
    if (place === now.hover) return;
    now.hover = place;
    mark(scroll);
  }

  canvas.addEventListener("pointermove", (event) => hoverAt(tile.at(event), true));
  for (const gone of ["pointerleave", "pointercancel"]) canvas.addEventListener(gone, () => hoverAt(null, false));
  canvas.addEventListener("click", (event) => {
    const place = tile.at(event);
    if (place !== null) pick(place);
  });
  canvas.addEventListener("keydown", (event) => {
    const width = model.get("_width");
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width, Home: -last, End: last }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (model.get("thread") + by >= 0 && model.get("thread") + by <= last) move(by);
    else if (Math.abs(by) === last) move(by);
  });
  number.addEventListener("input", () => {
    const thread = number.valueAsNumber;
    if (Number.isInteger(thread) && thread >= 0 && thread <= last) choose({ thread });
  });
  number.addEventListener("blur", () => (number.value = now.thread));
  slider.addEventListener("input", () => choose({ thread: slider.valueAsNumber }));
  for (const list of [zoom, body]) {
    const place = (event) => {
      const node = event.target.closest("[data-value]");
      return node ? now.map.places[now.thread][Number(node.dataset.value)] : null;
    };
    list.addEventListener("pointerover", (event) => hoverAt(place(event), list === zoom));
    list.addEventListener("pointerleave", () => hoverAt(null, false));
    list.addEventListener("click", (event) => place(event) !== null && pick(place(event)));
  }
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    const to = { ArrowUp: row.previousElementSibling, ArrowDown: row.nextElementSibling, Home: body.firstElementChild,
      End: body.lastElementChild, Enter: row, " ": row }[event.key];
    if (!to) return;
    event.preventDefault();
    const value = Number(to.dataset.value);
    pick(now.map.places[now.thread][value]);
    body.querySelector(`[data-value="${value}"]`).focus({ preventScroll: true });
  });

  function redraw() {
    if (!now.map || wrap.clientWidth === 0) return;
    tile.prepare(now.map, wrap.clientWidth, themeOf(root));
    tile.paint(now);
  }
  el.append(root);
  follow("element");
  show();
  const size = new ResizeObserver(redraw);
  size.observe(wrap);
  const unwatch = watchTheme(redraw);
  for (const [name, changed] of Object.entries(changes)) model.on(`change:${name}`, changed);
  return () => {
    size.disconnect();
    unwatch();
    for (const [name, changed] of Object.entries(changes)) model.off(`change:${name}`, changed);
  };
}

export default { render };
