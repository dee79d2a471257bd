// What widgets share: a tile drawn on a canvas, the page's theme, and a short way to make HTML elements.
//
// This file has no exports. Python puts it in front of a widget's own file; together they are one module.

const MARGIN = { left: 34, top: 20, right: 12, bottom: 4 }; // CSS pixels around the tile, for the axis labels
const MAX_TILE = 520; // CSS pixels, the tallest a tile gets
const MAX_CELL = 44; // CSS pixels, the largest an element gets
const LABEL_CELL = 30; // CSS pixels, from which size an element carries its thread and value

/** A "place" is a flat element index, row * cols + col. */
const rowOf = (map, place) => Math.floor(place / map.cols);
const colOf = (map, place) => place % map.cols;

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
    const ticks = (size) => new Set([0, 1, 2, 3].map((i) => Math.round((i * size) / 4)).concat(size - 1));
    context.fillStyle = this.theme.muted;
    context.font = `${11 * dpr}px ${this.theme.mono}`;
    context.textAlign = "center";
    for (const col of ticks(map.cols)) context.fillText(col, left + (col + 0.5) * cell, top - 6 * dpr);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const row of ticks(map.rows)) context.fillText(row, left - 7 * dpr, top + (row + 0.5) * cell);
  }

  /** Copy the tile and mark the selected thread and element, and the hovered ones. */
  paint({ thread, place, hover }) {
    const { map, cell, theme, dpr } = this;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.base, 0, 0);
    context.globalAlpha = 0.6;
    context.fillStyle = theme.bg;
    context.fillRect(this.left, this.top, cell * map.cols, cell * map.rows);
    context.globalAlpha = 1;
    const mine = map.places[thread].filter((p) => p !== undefined);
    context.fillStyle = theme.accent;
    for (const p of mine) context.fillRect(...this.corner(p), cell, cell);
    if (cell >= LABEL_CELL * dpr) this.labels(context, thread);
    const line = Math.max(Math.round(dpr), Math.round(cell / 10));
    this.outline(context, mine, line);
    if (hover !== null) this.outline(context, map.places[map.owner[hover]], line);
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
      context.fillStyle = owner === thread ? theme["on-accent"] : theme.fg;
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
    context.lineWidth = line;
    for (const [color, gap] of [[this.theme.bg, 1.5 * line], [this.theme.fg, 0.5 * line]]) {
      context.strokeStyle = color;
      context.strokeRect(x - gap, y - gap, this.cell + 2 * gap, this.cell + 2 * gap);
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
    return [this.left + colOf(map, place) * cell, this.top + rowOf(map, place) * cell];
  }

  /** Whether the neighbour in direction (dx, dy) belongs to another thread or lies outside. */
  border(place, dx, dy) {
    const { owner, cols, rows } = this.map;
    const [col, row] = [colOf(this.map, place) + dx, rowOf(this.map, place) + dy];
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
  const names = ["bg", "fg", "muted", "accent", "on-accent", "mono"];
  return Object.fromEntries(names.map((name) => [name, read(name)]));
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
