// What the layout viewer draws and writes of one layout: a grid of its offsets, the memory strip, the loops.
//
// common.js, tile.js and the layout_*.js files stand in front of this file: one module, no bundler.

// offsets that the memory strip shows
const STRIP = 2048;
// an offset that no coordinate has
const PLAIN = [0xe4, 0xe7, 0xeb];

/** A function from a number between two ends to one of the ramp's colours. */
function shader(ramp, low, high) {
  const shade = (value) => Math.round(((value - low) / Math.max(1, high - low)) * (ramp.length / 3 - 1));
  return (value) => ramp.subarray(3 * shade(value), 3 * shade(value) + 3);
}

const least = (numbers) => numbers.reduce((a, b) => Math.min(a, b));
const most = (numbers) => numbers.reduce((a, b) => Math.max(a, b));

/** The map that a tile draws of a layout: each cell its own, coloured by its offset. */
function gridMap(layout, offsets, ramp) {
  const colour = shader(ramp, least(offsets), most(offsets));
  const rgb = (place) => colour(offsets[indexOf(layout, place)]);
  const steps = (leaves, total) => leaves.map((leaf) => leaf.below).filter((n) => n > 1 && n < total);
  const inRows = layout.modes.length > 1 ? leavesOf(layout.modes[0]).length : 0;
  return { rows: layout.rows, cols: layout.cols, owner: Int32Array.from(offsets, (_, place) => place), rgb,
    breaks: { rows: steps(layout.leaves.slice(0, inRows), layout.rows),
      cols: steps(layout.leaves.slice(inRows).map((leaf) => ({ below: leaf.below / layout.rows })), layout.cols) } };
}

/** The size of letters in CSS pixels with which texts of so many characters fit the tile's cells; 0 if none. */
function lettersFor(tile, characters) {
  const size = Math.min(14, (0.6 * tile.high) / tile.dpr, (tile.wide / tile.dpr - 3) / characters / 0.602);
  return size >= 7 ? size : 0;
}

/** A small grid of one layout, beside the main one: which of its indices the selected one came from. */
class Panel {
  constructor(name, chosen) {
    this.canvas = make("canvas", { class: "tp-tile" });
    this.label = make("p", { class: "tp-panel-name" });
    this.root = make("div", { class: "tp-panel" }, this.label, this.canvas);
    Object.assign(this, { name, tile: new Tile(this.canvas) });
    this.canvas.addEventListener("click", (event) => {
      const place = this.tile.at(event);
      if (place !== null) chosen(indexOf(this.layout, place));
    });
  }

  /** Show a layout that the text of `lay` in layout_algebra.js describes. */
  show(plain, ramp) {
    this.layout = layoutOf(plain.shape, plain.stride, plain.outer);
    this.offsets = Array.from({ length: this.layout.size }, (_, index) => offsetOf(this.layout, index));
    this.map = gridMap(this.layout, this.offsets, ramp);
    this.canvas.setAttribute("aria-label", `${this.name}: ${this.layout.rows} by ${this.layout.cols} offsets`);
    this.canvas.setAttribute("role", "img");
  }

  prepare(width, theme) {
    this.tile.prepare(this.map, width, theme, 14);
  }

  /** Mark one index, or none, and frame others. */
  paint(index, framed = []) {
    const { tile, layout, offsets } = this;
    tile.fresh();
    tile.steps(framed.filter((one) => one !== null).map((one) => placeOf(layout, one)));
    const selected = index === null ? null : placeOf(layout, index);
    if (selected !== null) {
      tile.fill([selected], tile.theme.accent);
      tile.ring(selected);
    }
    writeOffsets(this, selected);
    const where = index === null ? "" : ` · index ${index} · offset ${offsets[index]}`;
    this.label.textContent = `${this.name} = ${layout.text}${where}`;
  }
}

/** Write lines into each cell, in ink that stands out, where the cells have room for them. */
function writeCells({ tile, map }, linesAt, selected) {
  const lines = Array.from({ length: map.rows * map.cols }, (_, place) => linesAt(place));
  const room = lettersFor(tile, most(lines.flat().map((line) => line.length)));
  const size = lines[0].length > 1 ? Math.min(room, (0.36 * tile.high) / tile.dpr) : room;
  if (size < 7) return;
  tile.letters(size);
  const ink = (place) => (place === selected ? tile.theme["on-accent"] : inkOn(map.rgb(place)));
  lines.forEach((some, place) => tile.write(place, some, ink(place)));
}

/** Write each cell's offset into it. */
function writeOffsets(view, selected) {
  writeCells(view, (place) => [String(view.offsets[indexOf(view.layout, place)])], selected);
}

// ------------------------------------------------------------------------------------- the memory strip

/** The offsets in order, from the first to the last that is reached, each with the index that has it. */
class Strip {
  constructor(chosen) {
    this.canvas = make("canvas", { class: "tp-tile", role: "img" });
    this.label = make("p", { class: "tp-panel-name" });
    this.root = make("div", { class: "tp-strip" }, this.label);
    this.tile = new Tile(this.canvas);
    this.canvas.addEventListener("click", (event) => {
      const index = this.indices[this.tile.at(event) ?? -1]?.[0];
      if (index !== undefined) chosen(index);
    });
  }

  show(offsets, ramp) {
    [this.low, this.high] = [least(offsets), most(offsets)];
    this.offsets = offsets;
    const count = this.high - this.low + 1;
    if (count > STRIP) {
      this.map = null;
      this.canvas.remove();
      this.label.textContent = `memory: the offsets span ${count}; up to ${STRIP} are drawn here`;
      return;
    }
    this.root.append(this.canvas);
    this.indices = Array.from({ length: count }, () => []);
    offsets.forEach((offset, index) => this.indices[offset - this.low].push(index));
    this.colour = shader(ramp, 0, offsets.length - 1);
    this.canvas.setAttribute("aria-label", `memory: offsets ${this.low} to ${this.high}, each with its index`);
  }

  /** Rows of up to 32 offsets, 16 on a phone. */
  prepare(width, theme) {
    if (this.high - this.low >= STRIP) return;
    const cols = Math.min(this.indices.length, width < 500 ? 16 : 32);
    const rows = Math.ceil(this.indices.length / cols);
    const rgb = (place) => (this.indices[place]?.length ? this.colour(this.indices[place][0]) : PLAIN);
    this.map = { rows, cols, owner: Int32Array.from({ length: rows * cols }, (_, place) => place), rgb,
      rowName: (row) => String(this.low + row * cols) };
    this.tile.prepare(this.map, width, theme, 16);
  }

  /** Mark the offset of an index. */
  paint(index) {
    if (!this.map) return;
    const { tile, indices, map } = this;
    const selected = this.offsets[index] - this.low;
    tile.fresh();
    tile.fill(Array.from({ length: map.owner.length - indices.length }, (_, i) => indices.length + i), tile.theme.bg);
    tile.fill([selected], tile.theme.accent);
    tile.ring(selected);
    const count = ([first, ...more]) => (more.length ? `${first}+${more.length}` : String(first ?? ""));
    writeCells(this, (place) => [count(indices[place] ?? [])], selected);
    this.label.textContent = "memory: each cell is an offset, in it the index that has it" +
      ` · offset ${this.offsets[index]}${this.sharing(indices[selected])}`;
  }

  /** Which indices share an offset, in words. */
  sharing(indices) {
    if (indices.length < 2) return "";
    return `: indices ${indices.slice(0, 6).join(", ")}${indices.length > 6 ? " and more" : ""}`;
  }
}

// ----------------------------------------------------------------------------------------- the loops

/** The nested loop that a layout stands for, in Python, with the numbers of one index as comments. */
function loopOf(layout, index) {
  const at = coordinates(layout, index);
  const names = layout.leaves.map((leaf) => `i${leaf.name.replaceAll(".", "_")}`);
  const lines = [];
  [...layout.leaves.keys()].reverse().forEach((leaf, depth) => {
    const { shape } = layout.leaves[leaf];
    lines.push([`${"    ".repeat(depth)}for ${names[leaf]} in range(${shape}):`, `${names[leaf]} = ${at[leaf]}`]);
  });
  const pad = "    ".repeat(names.length);
  const sum = layout.leaves.map((leaf, i) => `${names[i]} * ${leaf.stride}`).join(" + ");
  lines.push([`${pad}offset = ${layout.outer?.offset ? `${layout.outer.offset} + ` : ""}${sum}`,
    String(linearOf(layout, index) + (layout.outer?.offset ?? 0))]);
  if (layout.outer) {
    const { b, m, s } = layout.outer;
    lines.push([`${pad}offset ^= (offset >> ${s}) & ${((1 << b) - 1) << m}`, String(offsetOf(layout, index))]);
  }
  const wide = most(lines.map(([code]) => code.length));
  return lines.map(([code, value]) => `${code.padEnd(wide)}  # ${value}`).join("\n");
}

// ------------------------------------------------------------------------------- threads and values

/** The tile of a thread-value layout: in each cell the thread that owns it, and as which of its values. */
class TvPanel {
  constructor(chosen) {
    this.canvas = make("canvas", { class: "tp-tile", role: "img" });
    this.label = make("p", { class: "tp-panel-name" });
    this.root = make("div", { class: "tp-panel" }, this.label, this.canvas);
    this.tile = new Tile(this.canvas);
    this.canvas.addEventListener("click", (event) => {
      const index = this.indexAt.get(this.tile.at(event));
      if (index !== undefined) chosen(index);
    });
  }

  /** `offsets`: the place in the tile, counted down its columns, of each (thread, value). */
  show(tiler, threads, offsets, ramp) {
    const rows = tiler.length > 1 ? tiler[0] : 1;
    const cols = product(tiler) / rows;
    this.threads = threads;
    this.placeAt = offsets.map((offset) => (offset % rows) * cols + Math.floor(offset / rows));
    this.indexAt = new Map(this.placeAt.map((place, index) => [place, index]));
    const thread = (place) => (this.indexAt.get(place) ?? 0) % threads;
    const colour = shader(ramp, 0, threads - 1);
    const owner = Int32Array.from({ length: rows * cols }, (_, place) => thread(place));
    this.map = { rows, cols, owner, rgb: (place) => colour(thread(place)) };
    this.canvas.setAttribute("aria-label", `tile of ${rows} by ${cols}: the thread and value of each element`);
  }

  prepare(width, theme) {
    this.tile.prepare(this.map, width, theme, 28);
  }

  paint(index) {
    const { tile, map, threads, indexAt } = this;
    tile.fresh();
    const selected = this.placeAt[index];
    tile.outline(this.placeAt.filter((_, other) => other % threads === index % threads));
    tile.fill([selected], tile.theme.accent);
    tile.ring(selected);
    const valueOf = (of) => Math.floor((of ?? 0) / threads);
    writeCells(this, (place) => [`T${map.owner[place]}`, `V${valueOf(indexAt.get(place))}`], selected);
    this.label.textContent = `tile ${map.rows}×${map.cols}: thread ${index % threads}, value ${valueOf(index)} ` +
      `is row ${Math.floor(selected / map.cols)}, column ${selected % map.cols}`;
  }
}
