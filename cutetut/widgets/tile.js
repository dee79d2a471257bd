// A table of cells on a canvas, in which one can point at a cell: the tile of the pickers.
//
// This file has no exports. Python puts it in front of a widget's own file; together they are one module.

const MARGIN = { left: 34, top: 20, right: 12, bottom: 4 }; // CSS pixels around the tile, for the axis labels
const MAX_TILE = 520; // CSS pixels, the tallest a tile gets
const MAX_CELL = 44; // CSS pixels, the widest a cell gets
const LABEL_CELL = 30; // CSS pixels, from which size a cell has room for two lines

const INKS = ["#ffffff", "#1b1f24"]; // letters on dark and on light cells

/** A "place" is a flat cell index, row * cols + col. */
const rowOf = (map, place) => Math.floor(place / map.cols);
const colOf = (map, place) => place % map.cols;

/**
 * Draws a map: `rows`, `cols`, the `owner` of each place (lines part the cells of different owners) and
 * `rgb(place)`; `rowName(row)`, if given, labels the rows; `breaks`, if given, are numbers of rows and of cols after
 * which a gap repeats; `team(owner)`, if given, puts owners into teams, which lines part even where cells are small. The
 * cells are drawn once per size, theme and map; `fresh()` copies them, and marks go on top.
 */
class Tile {
  constructor(canvas) {
    this.canvas = canvas;
    this.base = document.createElement("canvas");
  }

  /** Draw square cells, as large as `width` CSS pixels allow in whole device pixels, but `least` high if they can. */
  prepare(map, width, theme, least = 0) {
    const dpr = window.devicePixelRatio || 1;
    const room = Math.min((width - MARGIN.left - MARGIN.right) / map.cols, MAX_TILE / map.rows, MAX_CELL);
    const wide = Math.max(1, Math.floor(room * dpr));
    const high = Math.max(wide, Math.floor(Math.min(least, MAX_TILE / map.rows) * dpr));
    const [left, top] = [Math.round(MARGIN.left * dpr), Math.round(MARGIN.top * dpr)];
    Object.assign(this, { map, theme, dpr, wide, high, left, top });
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = left + wide * map.cols + Math.round(MARGIN.right * dpr);
      canvas.height = top + high * map.rows + Math.round(MARGIN.bottom * dpr);
    }
    this.canvas.style.width = `${this.canvas.width / dpr}px`;
    this.canvas.style.height = `${this.canvas.height / dpr}px`;
    this.context = this.base.getContext("2d");
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.pixels(), left, top, wide * map.cols, high * map.rows);
    if (Math.min(wide, high) >= 5) this.separators();
    if (map.team && Math.min(wide, high) >= 3) this.separators(map.team);
    this.gaps();
    this.axes();
  }

  /** One pixel per cell, in its colour. */
  pixels() {
    const { map } = this;
    const image = new ImageData(map.cols, map.rows);
    for (let place = 0; place < map.owner.length; place++) image.data.set([...map.rgb(place), 255], 4 * place);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [map.cols, map.rows];
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  /** The width of the lines between owners, in device pixels. */
  get separator() {
    return Math.max(1, Math.round(this.dpr / 2));
  }

  /** Lines between cells of different owners, or of different teams of owners, so that no border depends on colour. */
  separators(team = null) {
    const width = this.separator;
    this.context.fillStyle = team ? this.theme.fg : this.theme.bg;
    for (let place = 0; place < this.map.owner.length; place++) {
      const [x, y] = this.corner(place);
      if (this.border(place, 0, -1, team)) this.context.fillRect(x, y, this.wide, width);
      if (this.border(place, -1, 0, team)) this.context.fillRect(x, y, width, this.high);
    }
  }

  /** Gaps between groups of rows and of columns, the wider the larger the group. */
  gaps() {
    const { map, left, top, wide, high, context } = this;
    const { rows, cols } = map.breaks ?? { rows: [], cols: [] };
    const gap = (level) => this.separator * (Math.min(wide, high) >= 5 ? 3 + 2 * level : 1 + level);
    context.fillStyle = this.theme.bg;
    rows.forEach((step, level) => {
      for (let row = step; row < map.rows; row += step) {
        context.fillRect(left, top + row * high - Math.floor(gap(level) / 2), wide * map.cols, gap(level));
      }
    });
    cols.forEach((step, level) => {
      for (let col = step; col < map.cols; col += step) {
        context.fillRect(left + col * wide - Math.floor(gap(level) / 2), top, gap(level), high * map.rows);
      }
    });
  }

  axes() {
    const { map, dpr, wide, high, left, top, context } = this;
    const some = (size) => new Set([0, 1, 2, 3].map((i) => Math.round((i * size) / 4)).concat(size - 1));
    const ticks = (size, room) => (room >= 18 * dpr ? Array(size).keys() : some(size));
    context.fillStyle = this.theme.muted;
    context.font = `${11 * dpr}px ${this.theme.mono}`;
    context.textAlign = "center";
    for (const col of ticks(map.cols, wide)) context.fillText(col, left + (col + 0.5) * wide, top - 6 * dpr);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const rowName = map.rowName ?? String;
    for (const row of ticks(map.rows, high)) context.fillText(rowName(row), left - 7 * dpr, top + (row + 0.5) * high);
  }

  /** Show the cells without any marks; what is drawn next goes on top. */
  fresh() {
    this.context = this.canvas.getContext("2d");
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.drawImage(this.base, 0, 0);
  }

  /** Let all cells step back: the paper's colour covers them so much. */
  dim(strength = 0.6) {
    this.context.globalAlpha = strength;
    this.context.fillStyle = this.theme.bg;
    this.context.fillRect(this.left, this.top, this.wide * this.map.cols, this.high * this.map.rows);
    this.context.globalAlpha = 1;
  }

  /** Fill cells with a CSS colour, up to the lines between owners. */
  fill(places, color) {
    const width = Math.min(this.wide, this.high) >= 5 ? this.separator : 0;
    this.context.fillStyle = color;
    for (const place of places) {
      const [x, y] = this.corner(place);
      const [left, top] = [this.border(place, -1, 0) ? width : 0, this.border(place, 0, -1) ? width : 0];
      this.context.fillRect(x + left, y + top, this.wide - left, this.high - top);
    }
  }

  /** Set the font of `write` to a size in CSS pixels. */
  letters(size) {
    this.context.font = `${Math.round(size * this.dpr)}px ${this.theme.mono}`;
    this.context.textAlign = "center";
    this.context.textBaseline = "middle";
  }

  /** Write lines of text into a cell, or into `span` cells of its row. */
  write(place, lines, color, span = 1) {
    const [x, y] = this.corner(place);
    this.context.fillStyle = color;
    lines.forEach((line, i) => {
      const at = lines.length === 1 ? 0.52 : 0.32 + 0.38 * i;
      this.context.fillText(line, x + (span * this.wide) / 2, y + at * this.high);
    });
  }

  /** The width of a mark, in device pixels. */
  get line() {
    return Math.round(this.dpr * Math.min(2, Math.max(1, Math.min(this.wide, this.high) / this.dpr / 10)));
  }

  /** Outline cells on the sides where the neighbour belongs to another owner. */
  outline(places) {
    const { line, wide, high, context } = this;
    context.fillStyle = this.theme.fg;
    for (const place of places) {
      const [x, y] = this.corner(place);
      if (this.border(place, 0, -1)) context.fillRect(x - line, y - line, wide + 2 * line, line);
      if (this.border(place, 0, 1)) context.fillRect(x - line, y + high, wide + 2 * line, line);
      if (this.border(place, -1, 0)) context.fillRect(x - line, y - line, line, high + 2 * line);
      if (this.border(place, 1, 0)) context.fillRect(x + wide, y - line, line, high + 2 * line);
    }
  }

  /** Ring one cell in two tones, `bold` times the usual line, and point at it from both axes. */
  ring(place, bold = 1) {
    const { context, wide } = this;
    const [x, y] = this.corner(place);
    const line = bold * this.line;
    context.lineWidth = line;
    for (const [color, gap] of [[this.theme.bg, 1.5 * line], [this.theme.fg, 0.5 * line]]) {
      context.strokeStyle = color;
      context.strokeRect(x - gap, y - gap, wide + 2 * gap, this.high + 2 * gap);
    }
    const dart = 5 * this.dpr;
    context.fillStyle = this.theme.fg;
    context.beginPath();
    for (const [px, py, dx, dy] of [[this.left, y + this.high / 2, -dart, 0], [x + wide / 2, this.top, 0, -dart]]) {
      context.moveTo(px, py);
      context.lineTo(px + dx - dy / 1.5, py + dy - dx / 1.5);
      context.lineTo(px + dx + dy / 1.5, py + dy + dx / 1.5);
    }
    context.fill();
  }

  /** Frame cells from inside, the later the stronger: the last steps of a way. */
  steps(places) {
    const { context, line, theme, wide, high } = this;
    places.forEach((place, step) => {
      const [x, y] = this.corner(place);
      context.globalAlpha = 0.2 + (0.8 * step) / places.length;
      for (const [color, width] of [[theme.bg, 3 * line], [theme.accent, 1.5 * line]]) {
        context.strokeStyle = color;
        context.lineWidth = width;
        context.strokeRect(x + width / 2, y + width / 2, wide - width, high - width);
      }
    });
    context.globalAlpha = 1;
  }

  corner(place) {
    return [this.left + colOf(this.map, place) * this.wide, this.top + rowOf(this.map, place) * this.high];
  }

  /** Whether the neighbour in direction (dx, dy) lies outside or belongs to another owner, or to one of another team. */
  border(place, dx, dy, team = null) {
    const { owner, cols, rows } = this.map;
    const [col, row] = [colOf(this.map, place) + dx, rowOf(this.map, place) + dy];
    if (col < 0 || row < 0 || col >= cols || row >= rows) return true;
    const [mine, other] = [owner[place], owner[row * cols + col]];
    return team ? team(mine) !== team(other) : mine !== other;
  }

  /** The place under a pointer event, or null. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const col = Math.floor(((event.clientX - box.left) * this.dpr - this.left) / this.wide);
    const row = Math.floor(((event.clientY - box.top) * this.dpr - this.top) / this.high);
    const inside = col >= 0 && row >= 0 && col < this.map.cols && row < this.map.rows;
    return inside ? row * this.map.cols + col : null;
  }
}

/** Dark or light letters on a colour, whichever stands out more. */
function inkOn([red, green, blue]) {
  const linear = (c) => (c <= 10 ? c / 3295 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return INKS[Number(0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.18)];
}

/** Call `hover(place or null)` and `pick(place)` as a pointer moves over a tile and clicks or taps it. */
function pointAt(tile, hover, pick) {
  const { canvas } = tile;
  canvas.addEventListener("pointermove", (event) => hover(tile.at(event)));
  for (const gone of ["pointerleave", "pointercancel"]) canvas.addEventListener(gone, () => hover(null));
  canvas.addEventListener("click", (event) => {
    const place = tile.at(event);
    if (place !== null) pick(place);
  });
}
