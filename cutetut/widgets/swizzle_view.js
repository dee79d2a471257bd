// The swizzle view: how Swizzle<B,M,S> changes a byte offset bit by bit, and what that does to bank conflicts.
//
// Traits of the model, all both ways: `swizzle` [B, M, S], `row_bytes`, `access` (a key of ACCESSES) and `word`, the
// [row, column] of the 4-byte word selected, through which the access goes. `title` and `_ramp` (colours) are data
// that Python sends once. A "place" is a word of the tile, row * cols + col. Python puts common.js and tile.js in
// front of this file: one module, no bundler.

const BITS = 12; // of a byte offset: the largest tile, 32 rows of 128 bytes, has 4096
const BANKS = 32;
const WORD = 4; // bytes of one bank
const PIECE = 16; // bytes that stay together: one row of a core matrix
const LINE = BANKS * WORD;
const ATOMS = { INTER: [0, 16], SW32: [1, 32], SW64: [2, 64], SW128: [3, 128] }; // B and the bytes of a row; M is 4, S 3
const ROWS = [16, 32, 64, 128]; // bytes a row may have

// What is read at once: rows of the tile, bytes of each lane, their first bytes, and the words for it.
const ACCESSES = {
  "core matrix": { rows: 8, nbytes: PIECE,
    lanes: (rowBytes, row, col) => range(8, (lane) => lane * rowBytes + PIECE * Math.floor((col * WORD) / PIECE)),
    says: "8 rows of 16 bytes, one below the other: what ldmatrix, and WGMMA for a core matrix, read at once" },
  row: { rows: 32, nbytes: WORD,
    lanes: (rowBytes, row) => range(32, (lane) => row * rowBytes - ((row * rowBytes) % LINE) + lane * WORD),
    says: "the 32 lanes of a warp, 4 bytes each, one after the other: 128 bytes" },
  column: { rows: 32, nbytes: WORD,
    lanes: (rowBytes, row, col) => range(32, (lane) => lane * rowBytes + col * WORD),
    says: "the 32 lanes of a warp, 4 bytes each, one below the other" },
};

// --------------------------------------------------------------------------------------------- data

const range = (count, of) => Array.from({ length: count }, (_, i) => of(i));

/** Swizzle<B,M,S>: bits M+S.. of the offset are exclusive-ored onto the B bits from M on. */
const swizzled = ([b, m, s], offset) => offset ^ ((offset >> s) & (((1 << b) - 1) << m));

const bankOf = (offset) => Math.floor(offset / WORD) % BANKS;

/** Why B, M and S are no swizzle of offsets in the tile; null if they are one. */
function wrongWith([b, m, s]) {
  if (![b, m, s].every((n) => Number.isInteger(n) && n >= 0)) return "B, M and S are whole numbers from 0 on";
  if (m < 4) return `M is ${m}: at least 4 bits stay as they are, so that ${PIECE} bytes stay together`;
  if (s < b) return `S is ${s}, less than B, ${b}: the bits that are read would be bits that are changed`;
  if (m + s + b > BITS) return `M + S + B is ${m + s + b}: the offsets here have ${BITS} bits`;
  return null;
}

/** The first bytes of the words that an access asks for, before the swizzle. */
function askedFor(access, rowBytes, [row, col]) {
  const { lanes, nbytes } = ACCESSES[access];
  return lanes(rowBytes, row, col).flatMap((start) => range(nbytes / WORD, (i) => start + i * WORD));
}

/** How many different words each bank is asked for. */
function load(offsets) {
  const words = range(BANKS, () => new Set());
  for (const offset of offsets) words[bankOf(offset)].add(Math.floor(offset / WORD));
  return words.map((set) => set.size);
}

/** How often the banks have to deliver: as often as the busiest one. */
const wavefronts = (offsets) => Math.max(...load(offsets));

/** Bits of an offset, the highest first. */
const bitsOf = (offset) => range(BITS, (i) => (offset >> (BITS - 1 - i)) & 1);

const written = ([b, m, s]) => `S<${b},${m},${s}>`;
const span = (low, count) => (count === 1 ? `bit ${low}` : `bits ${low + count - 1}-${low}`);
const binary = (value, count) => value.toString(2).padStart(count, "0");

/** What happens to one offset, as lines of text. */
function steps(swizzle, rowBytes, offset) {
  const [b, m, s] = swizzle;
  const to = swizzled(swizzle, offset);
  const row = Math.floor(offset / rowBytes);
  const lines = [["byte offset", `row ${row} × ${rowBytes} + ${offset % rowBytes} = ${offset}`]];
  if (b > 0) {
    const [high, low] = [(offset >> (m + s)) & ((1 << b) - 1), (offset >> m) & ((1 << b) - 1)];
    lines.push([`${span(m + s, b)} onto ${span(m, b)}`,
      `${binary(high, b)} xor ${binary(low, b)} = ${binary(high ^ low, b)}`]);
  }
  lines.push(["swizzled", b > 0 ? `${offset} → ${to}` : `${offset}: B is 0, no bit changes`]);
  lines.push(["bank = offset / 4 mod 32", `${bankOf(offset)} → ${bankOf(to)}`]);
  return lines;
}

// --------------------------------------------------------------------------------------------- view

/** One of the two tiles: without the swizzle, or with it. */
class Side {
  constructor(name, view) {
    const help = `${view.id}-keys`;
    this.canvas = make("canvas", { class: "tp-tile", tabindex: 0, role: "application",
      "aria-roledescription": "swizzle view", "aria-describedby": help });
    this.wrap = make("div", {}, this.canvas);
    this.head = make("div", { class: "tp-side" });
    this.count = make("div", { class: "tp-count" });
    this.banks = make("div", { class: "tp-banks", role: "img" });
    this.root = make("div", { class: "tp-left", "data-side": name }, this.head, this.wrap, this.count, this.banks,
      make("div", { class: "tp-ends" }, make("span", {}, "bank 0"), make("span", {}, "words per bank"),
        make("span", {}, "31")));
    this.tile = new Tile(this.canvas);
  }

  /** Take a state: how offsets move, the shape of the tile, and what is asked for. */
  take({ rowBytes, rows, asked }, move, ramp) {
    const cols = rowBytes / WORD;
    this.bank = (place) => bankOf(move(place * WORD));
    const shade = (place) => Math.round((this.bank(place) / (BANKS - 1)) * (ramp.length / 3 - 1));
    const rgb = (place) => ramp.subarray(3 * shade(place), 3 * shade(place) + 3);
    const owner = Int32Array.from({ length: rows * cols }, (_, place) => Math.floor((place * WORD) / PIECE));
    this.map = { rows, cols, owner, rgb, breaks: { rows: rows > 8 ? [8] : [], cols: [] } };
    this.asked = asked.map((offset) => offset / WORD);
    this.load = load(asked.map(move));
    this.most = Math.max(...this.load);
  }

  /** Say what the banks have to do. */
  say(title, ramp) {
    this.head.textContent = title;
    const conflicts = this.most - 1;
    this.count.textContent = `${this.most} wavefront${this.most > 1 ? "s" : ""}: ` +
      (conflicts ? `${conflicts} more than needed` : "no bank conflict");
    this.count.classList.toggle("is-conflict", conflicts > 0);
    this.banks.setAttribute("aria-label", `words asked of each bank: ${this.load.join(" ")}`);
    this.banks.replaceChildren(...this.load.map((words, bank) => {
      const [r, g, b] = ramp.subarray(3 * Math.round((bank / (BANKS - 1)) * (ramp.length / 3 - 1)));
      const height = `${(100 * words) / Math.max(8, this.most)}%`;
      return make("span", { style: `--tp-height:${height};--tp-bank:rgb(${r},${g},${b})` });
    }));
    this.canvas.setAttribute("aria-label", `${this.map.rows} by ${this.map.cols} words ${title}, ` +
      this.count.textContent);
  }

  prepare(theme) {
    this.width = this.wrap.clientWidth || this.width || 0;
    this.tile.prepare(this.map, this.width, theme, 26);
  }

  /** The tile, dimmed but for what is asked for; in the accent colour, the words that have to wait for another. */
  paint(place, hover) {
    const { tile, map, asked } = this;
    tile.fresh();
    tile.dim();
    for (const word of asked) tile.fill([word], this.waits(word) ? tile.theme.accent : `rgb(${map.rgb(word).join()})`);
    tile.ring(place, 2);
    if (hover !== null && hover !== place) tile.ring(hover);
    this.labels();
  }

  /** In each piece, the number of the group of 4 banks that it lies in. */
  labels() {
    const { tile, map, asked } = this;
    const words = PIECE / WORD;
    const size = Math.min(12, (0.6 * tile.high) / tile.dpr, (words * tile.wide) / tile.dpr / 1.4);
    if (size >= 7) {
      tile.letters(size);
      const mine = new Set(asked.map((word) => word - (word % words)));
      for (let first = 0; first < map.owner.length; first += words) {
        const covered = asked.includes(first);
        const ink = covered ? (this.waits(first) ? tile.theme["on-accent"] : inkOn(map.rgb(first))) : tile.theme.fg;
        if (!mine.has(first) || covered) tile.write(first, [String(this.bank(first) / words)], ink, words);
      }
    }
  }

  /** Whether another word that is asked for, further up, is in the same bank. */
  waits(word) {
    return this.asked.some((other) => other < word && this.bank(other) === this.bank(word));
  }
}

class SwizzleView {
  constructor(model) {
    Object.assign(this, { model, id: newId(), hover: null });
    this.ramp = Uint8Array.from(atob(model.get("_ramp")), (c) => c.charCodeAt(0));
    this.build();
  }

  // ---- the page

  build() {
    this.sides = [new Side("without", this), new Side("with", this)];
    this.atoms = tabs(`${this.id}-atom`, "layout atom", Object.keys(ATOMS), (name) => this.take(name));
    this.accesses = tabs(`${this.id}-access`, "access", Object.keys(ACCESSES), (access) => this.choose({ access }));
    this.message = make("p", { class: "tp-message", role: "status" });
    this.says = make("p", { class: "tp-keys tp-says" });
    this.bits = make("table", { class: "tp-bits", "aria-label": "bits of the byte offset" });
    this.sums = make("dl", { class: "tp-sums" });
    this.readout = make("div", { class: "tp-readout" });
    this.live = make("div", { class: "tp-hidden", role: "status", "aria-live": "polite" });
    const help = "A cell is one word of 4 bytes, in the colour of its bank; a number is the group of 4 banks that holds " +
      "16 bytes. Click or tap a word, or move with the arrow keys.";
    this.root = frame("swizzle view", this.model.get("title"), this.atoms.root, this.fields(), this.message,
      this.accesses.root, this.says, make("div", { class: "tp-sides" }, ...this.sides.map((side) => side.root)),
      make("p", { class: "tp-keys", id: `${this.id}-keys` }, help), this.readout,
      make("div", { class: "tp-box" }, this.bits), this.sums, this.live);
  }

  /** Boxes for B, M and S, and for the bytes of a row. */
  fields() {
    this.numbers = ["B", "M", "S"].map((name) => make("input", { type: "number", min: 0, max: BITS, step: 1,
      id: `${this.id}-${name}`, inputmode: "numeric", oninput: () => this.type() }));
    this.rowChoice = make("select", { id: `${this.id}-row`,
      onchange: () => this.choose({ row_bytes: Number(this.rowChoice.value) }) },
      ...ROWS.map((n) => make("option", { value: n }, String(n))));
    const boxes = this.numbers.map((box, i) => [make("label", { for: box.id }, "BMS"[i]), box]);
    return make("div", { class: "tp-controls tp-fields" }, ...boxes.flat(),
      make("span", { class: "tp-pair" }, make("label", { for: this.rowChoice.id }, "bytes in a row"), this.rowChoice));
  }

  // ---- the selection

  /** Write into the model; another tile keeps the word where it can. */
  choose(values) {
    const state = { access: this.model.get("access"), row_bytes: this.model.get("row_bytes"), ...values };
    const [row, col] = values.word ?? this.model.get("word");
    const word = [row % ACCESSES[state.access].rows, col % (state.row_bytes / WORD)];
    assign(this.model, { ...values, word });
  }

  take(name) {
    const [b, rowBytes] = ATOMS[name];
    this.choose({ swizzle: [b, 4, 3], row_bytes: rowBytes });
  }

  /** Take B, M and S as the reader typed them, or say what is wrong with them. */
  type() {
    const swizzle = this.numbers.map((box) => (box.value === "" ? NaN : box.valueAsNumber));
    this.refused = wrongWith(swizzle);
    if (!this.refused) this.choose({ swizzle });
    this.say();
  }

  // ---- the screen

  /** Bring the model's state to the screen. */
  show() {
    this.due = false;
    const [swizzle, rowBytes, access, word] = ["swizzle", "row_bytes", "access", "word"].map((t) => this.model.get(t));
    const rows = ACCESSES[access].rows;
    Object.assign(this, { swizzle, rowBytes, access, hover: null, place: (word[0] * rowBytes) / WORD + word[1] });
    const typed = this.numbers.map((box) => box.valueAsNumber);
    if (wrongWith(typed) === null || !this.refused) {
      this.numbers.forEach((box, i) => {
        if (typed[i] !== swizzle[i]) box.value = swizzle[i];
      });
    }
    this.rowChoice.value = rowBytes;
    this.atoms.show(Object.keys(ATOMS).find((name) =>
      [ATOMS[name][0], 4, 3].join() === swizzle.join() && ATOMS[name][1] === rowBytes));
    this.accesses.show(access);
    this.says.textContent = ACCESSES[access].says;
    const asked = askedFor(access, rowBytes, word);
    const moves = [(offset) => offset, (offset) => swizzled(swizzle, offset)];
    this.sides.forEach((side, i) => {
      side.take({ rowBytes, rows, asked }, moves[i], this.ramp);
      side.say(i ? `with ${written(swizzle)}` : "without a swizzle", this.ramp);
    });
    this.prepare();
    this.say();
    this.mark();
    this.live.textContent = this.sides.map((side) => `${side.head.textContent}: ${side.count.textContent}`).join("; ");
  }

  say() {
    this.message.textContent = this.refused ?? "";
    this.message.classList.toggle("is-wrong", Boolean(this.refused));
    for (const box of this.numbers) box.setAttribute("aria-invalid", String(Boolean(this.refused)));
  }

  mark() {
    for (const side of this.sides) side.paint(this.place, this.hover);
    const offset = (this.hover ?? this.place) * WORD;
    this.readout.textContent = this.describe(offset);
    this.showBits(offset);
    this.sums.replaceChildren(...definitions(steps(this.swizzle, this.rowBytes, offset)));
  }

  describe(offset) {
    const [row, byte] = [Math.floor(offset / this.rowBytes), offset % this.rowBytes];
    const to = swizzled(this.swizzle, offset);
    return `row ${row}, word ${byte / WORD} · byte ${offset} → ${to} · bank ${bankOf(offset)} → ${bankOf(to)}`;
  }

  /** The offset, the bits that are read where they are applied, and the result, one bit below the other. */
  showBits(offset) {
    const [b, m, s] = this.swizzle;
    const inside = (bit, low) => bit >= low && bit < low + b;
    const kind = (bit) => (inside(bit, m) ? "is-target" : inside(bit, m + s) ? "is-source" : null);
    const numbers = range(BITS, (i) => BITS - 1 - i);
    const [from, to] = [bitsOf(offset), bitsOf(swizzled(this.swizzle, offset))];
    const shifted = bitsOf((offset >> s) & (((1 << b) - 1) << m));
    const line = (name, text, classes) => make("tr", {}, make("th", { scope: "row" }, name),
      ...numbers.map((bit, i) => make("td", { class: classes(bit) }, text(bit, i))));
    this.bits.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "row" }, "bit"),
        ...numbers.map((bit) => make("th", { scope: "col" }, String(bit))))),
      make("tbody", {}, line("offset", (bit, i) => String(from[i]), kind),
        line(`>> ${s}`, (bit, i) => (inside(bit, m) ? String(shifted[i]) : ""), (bit) => (inside(bit, m) ? "is-source" : null)),
        line("xor", (bit, i) => String(to[i]), (bit) => (inside(bit, m) ? "is-target" : null))));
  }

  /** Fit the tiles to their places. JupyterLab hides its page while it changes the theme. */
  prepare() {
    const theme = themeOf(this.root);
    for (const side of this.sides) side.prepare(theme);
  }

  redraw() {
    if (!this.swizzle) return;
    this.prepare();
    for (const side of this.sides) side.paint(this.place, this.hover);
  }

  // ---- pointer, keys, model

  hoverAt(place) {
    if (place === this.hover) return;
    this.hover = place;
    this.mark();
  }

  key(event) {
    const { rows, cols } = this.sides[0].map;
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const [row, col] = this.model.get("word").map((at, i) => at + by[i]);
    if (row >= 0 && row < rows && col >= 0 && col < cols) this.choose({ word: [row, col] });
  }

  /** Follow the model, the reader, the size and the theme; returns how to stop. */
  listen() {
    for (const { tile, canvas } of this.sides) {
      pointAt(tile, (place) => this.hoverAt(place), (place) => {
        const { cols } = tile.map;
        this.choose({ word: [Math.floor(place / cols), place % cols] });
      });
      canvas.addEventListener("keydown", (event) => this.key(event));
    }
    const changed = () => {
      if (!this.due) queueMicrotask(() => this.show()); // one redraw for all traits that change together
      this.due = true;
    };
    const stops = [watchModel(this.model, ["swizzle", "row_bytes", "access", "word"], changed),
      watchLook(this.sides[0].wrap, () => this.redraw())];
    return () => stops.forEach((stop) => stop());
  }
}

function render({ model, el }) {
  const view = new SwizzleView(model);
  el.append(view.root);
  view.show();
  return view.listen();
}

export { swizzled, askedFor, wavefronts, wrongWith };
export default { render };
