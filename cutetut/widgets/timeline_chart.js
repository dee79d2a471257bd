// The timeline's data, and its bars on a canvas. A "span" is an index into the columns of a run; times count
// from the run's first start. Python puts common.js in front of this file and timeline.js behind it: one module.

const LANE = 24; // CSS pixels, a bar's height with the space below it
const GAP = 10; // CSS pixels between rows
const TOP = 3; // CSS pixels above the first row, for the ring of a bar in it
const AXIS = 22; // CSS pixels, the axis below
const LABEL = 96; // CSS pixels for the rows' names at the left; where it is narrow they stand above the bars
const ABOVE = 17; // CSS pixels for a name above its row
const NARROW = 560; // CSS pixels, the width below which it is narrow

const numbers = (count) => Array.from({ length: count }, (_, i) => i);
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const written = (time) => String(Number(time.toFixed(1)));

/** A run as Python packed it: columns, its duration, and how many lanes each row has. */
function readRun(packed, rows) {
  const spans = numbers(packed.start.length);
  const lanes = rows.map((_, row) => Math.max(0, ...spans.filter((i) => packed.row[i] === row)
    .map((i) => packed.lane[i] + 1)));
  return { ...packed, spans, lanes, duration: Math.max(...packed.end, 1e-9) };
}

/** The spans that share a span's tile, in the order in which they began; without a tile it is alone. */
function linked(run, span) {
  if (span === null) return [];
  const tile = run.tile[span];
  if (tile === null) return [span];
  return run.spans.filter((i) => run.tile[i] === tile).sort((a, b) => run.start[a] - run.start[b]);
}

/** Round steps of 1, 2 or 5 that leave at least `least` pixels between the ticks of `window`. */
function ticksOf([from, to], pixels, least) {
  const rough = ((to - from) * least) / pixels;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const first = Math.ceil(from / step);
  return numbers(Math.floor(to / step) - first + 1).map((i) => (first + i) * step);
}

// --------------------------------------------------------------------------------------------- chart

/** The bars on a canvas, for one run and window. */
class Chart {
  constructor(canvas, rows, kinds) {
    Object.assign(this, { canvas, rows, kinds });
  }

  /** Size the canvas for a run, as wide as `width` CSS pixels. */
  prepare(run, width, theme) {
    const dpr = window.devicePixelRatio || 1;
    const narrow = width < NARROW;
    Object.assign(this, { run, theme, dpr, width, left: narrow ? 0 : LABEL, above: narrow ? ABOVE : 0 });
    this.tops = []; // of each row's first lane
    let y = TOP;
    for (const lanes of run.lanes) {
      this.tops.push(y + this.above);
      if (lanes) y += this.above + lanes * LANE + GAP;
    }
    this.height = y + AXIS;
    [this.canvas.width, this.canvas.height] = [Math.round(width * dpr), Math.round(this.height * dpr)];
    this.canvas.style.height = `${this.height}px`;
    this.hatch = this.hatched();
  }

  /** A pattern of diagonal lines, for waiting. */
  hatched() {
    const size = Math.round(6 * this.dpr);
    const cell = document.createElement("canvas");
    [cell.width, cell.height] = [size, size];
    const context = cell.getContext("2d");
    context.strokeStyle = this.theme.muted;
    context.lineWidth = this.dpr;
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift, size);
      context.lineTo(shift + size, 0);
    }
    context.stroke();
    const pattern = this.canvas.getContext("2d").createPattern(cell, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / this.dpr)); // bars are drawn in CSS pixels
    return pattern;
  }

  x(time) {
    const [from, to] = this.window;
    return this.left + ((time - from) / (to - from)) * (this.width - this.left);
  }

  time(x) {
    const [from, to] = this.window;
    return from + ((x - this.left) / (this.width - this.left)) * (to - from);
  }

  /** The rectangle of a span, at least a pixel wide, in CSS pixels. */
  box(i) {
    const { run } = this;
    const [from, to] = [this.x(run.start[i]), this.x(run.end[i])];
    return [from, this.tops[run.row[i]] + run.lane[i] * LANE, Math.max(to - from, 1), LANE - 3];
  }

  paint(part, { chosen, hover, marked }) {
    this.window = part;
    const { run, dpr, theme } = this;
    const context = (this.context = this.canvas.getContext("2d"));
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.axis();
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.width - this.left, this.height - AXIS);
    context.clip();
    this.visible = run.spans.filter((i) => run.end[i] >= part[0] && run.start[i] <= part[1]);
    const links = new Set(marked);
    for (const i of this.visible) this.bar(i, marked.length > 0 && !links.has(i));
    for (const i of marked) this.ring(i, 1);
    if (chosen !== null) this.ring(chosen, 3);
    if (hover !== null) this.ring(hover, 2);
    context.restore();
    this.names(theme);
  }

  bar(i, dimmed) {
    const { context, run, theme } = this;
    const [x, y, width, height] = this.box(i);
    const kind = this.kinds[run.kind[i]];
    const seen = width > 4 ? width - 1 : width; // neighbours stay apart
    context.fillStyle = theme.bg;
    context.fillRect(x, y, seen, height);
    context.globalAlpha = dimmed ? 0.25 : 1;
    context.fillStyle = kind.wait ? this.hatch : kind.color;
    context.fillRect(x, y, seen, height);
    if (kind.wait && width > 4) this.outline(x + 0.5, y + 0.5, width - 2, height - 1, theme.muted, 1);
    context.globalAlpha = 1;
    this.label(i, dimmed ? theme.muted : kind.wait ? theme.fg : kind.ink, [x, y, width, height], kind.wait);
  }

  /** The tile's number, where there is room for it on the part of the bar that is seen. */
  label(i, color, [x, y, width, height], hatched) {
    const { context, run, theme } = this;
    if (run.tile[i] === null) return;
    const [from, to] = [Math.max(x, this.left), Math.min(x + width, this.width)];
    context.font = `11px ${theme.mono}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const room = context.measureText(run.tile[i]).width + 6;
    if (to - from < room) return;
    const [middle, centre] = [(from + to) / 2, y + height / 2 + 0.5];
    context.fillStyle = theme.bg;
    if (hatched) context.fillRect(middle - room / 2, y + 3, room, height - 6);
    context.fillStyle = color;
    context.fillText(run.tile[i], middle, centre);
  }

  /** Ring a span in two tones. */
  ring(i, line) {
    const [x, y, width, height] = this.box(i);
    const wide = Math.max(width - 1, 2);
    this.outline(x - line / 2, y - line / 2, wide + line, height + line, this.theme.fg, line);
    if (line > 1) this.outline(x + 0.5, y + 0.5, wide - 1, height - 1, this.theme.bg, 1);
  }

  outline(x, y, width, height, color, line) {
    this.context.strokeStyle = color;
    this.context.lineWidth = line;
    this.context.strokeRect(x, y, width, height);
  }

  axis() {
    const { context, theme, height } = this;
    context.font = `11px ${theme.mono}`;
    context.textBaseline = "middle";
    for (const tick of ticksOf(this.window, this.width - this.left, 90)) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.strokeStyle = theme.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height - AXIS + 4);
      context.stroke();
      const text = written(tick);
      const half = context.measureText(text).width / 2;
      context.textAlign = "left";
      context.fillStyle = theme.muted;
      context.fillText(text, clamp(x, this.left + half, this.width - half - 1) - half, height - AXIS / 2 + 2);
    }
  }

  names(theme) {
    const { context, run } = this;
    context.fillStyle = theme.fg;
    context.font = `12px ${theme.mono}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    run.lanes.forEach((lanes, row) => {
      if (!lanes) return;
      const y = this.above ? this.tops[row] - ABOVE / 2 : this.tops[row] + (LANE - 3) / 2;
      context.fillText(this.rows[row], 0, y, this.above ? this.width : LABEL - 8);
    });
  }

  /** The CSS pixel of a pointer event, from the canvas's left. */
  across(event) {
    return event.clientX - this.canvas.getBoundingClientRect().left;
  }

  /** The span under a pointer event, or null; a bar of a few pixels may be missed by as many. */
  at(event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    const x = this.across(event);
    if (x < this.left) return null;
    const hits = this.visible.map((i) => [i, this.box(i)])
      .filter(([, box]) => y >= box[1] && y < box[1] + LANE)
      .map(([i, box]) => [i, Math.max(box[0] - x, x - box[0] - box[2], 0)])
      .filter(([, away]) => away <= 3);
    return hits.length ? hits.reduce((best, hit) => (hit[1] < best[1] ? hit : best))[0] : null;
  }
}
