// Layouts as text, shape:stride, read and evaluated; layout_text.py reads them by the same rules.
//
// An "index" counts coordinates colexicographically, as CuTe does: the first mode runs fastest. This file has no
// exports. Python puts it in front of a widget's own file; together they are one module.

const MOST = 16384; // elements that are drawn
const LARGEST = 2 ** 31 - 1; // offset that is drawn

/** What is wrong with a layout or an operation; `at` is the place in the text, counted from 0, if there is one. */
class LayoutError extends Error {
  constructor(message, at = null) {
    super(message);
    this.at = at;
  }
}

/** Read "shape:stride", a swizzle in front of it or not; throws a LayoutError as layout_text.py raises it. */
function readLayout(text) {
  const read = readPlain(text);
  check(read.shape, read.stride);
  return layoutOf(read.shape, read.stride, read.outer);
}

/** Read a layout that need not be drawn: { shape, stride, outer }. */
function readPlain(text) {
  if (!text.trim()) throw new LayoutError("type shape:stride, such as (4,8):(8,1)");
  refuseRunTime(text);
  const [outer, start] = readSwizzle(text);
  const reader = new Reader(text, start);
  const shape = reader.tree();
  if (!reader.take(":")) {
    if (reader.sign === null) throw new LayoutError("the stride is missing: write shape:stride, such as 8:1");
    throw reader.unexpected('":" and the stride');
  }
  const stride = reader.tree();
  if (reader.sign !== null) throw reader.unexpected("the end");
  refuseIncongruent(shape, stride);
  refuseSmall(shape);
  return { shape, stride, outer };
}

/** Read a tiler: a layout, a number n for n:1, or a tuple of tilers, { tuple: [...] }, one for each mode. */
function readTiler(text) {
  if (!text.trim()) throw new LayoutError("type a layout, such as 4:2, or a tuple of tilers, such as (2,4:2)");
  refuseRunTime(text);
  if (/^\s*S/.test(text)) return readPlain(text);
  const reader = new Reader(text);
  const tiler = reader.tiler();
  if (reader.sign !== null) throw reader.unexpected("the end");
  return tiler;
}

/** Read a tree of whole numbers, which is `wanted`; with `free`, "_" is a coordinate that is left open: null. */
function readTree(text, wanted = "a number, such as 24", free = false) {
  if (!text.trim()) throw new LayoutError(`type ${wanted}`);
  refuseRunTime(text);
  const reader = new Reader(text, 0, free);
  const tree = reader.tree();
  if (reader.sign !== null) throw reader.unexpected("the end");
  return tree;
}

function refuseRunTime(text) {
  if (!text.includes("?")) return;
  throw new LayoutError('"?" is a number known only at run time: type a number in its place', text.indexOf("?"));
}

/** The swizzle and offset that a text begins with, or null, and where the rest of the text starts. */
function readSwizzle(text) {
  const found = /^\s*S<\s*(-?\d+)\s*,\s*(-?\d+)\s*,\s*(-?\d+)\s*>\s*o\s*(-?\d+)\s*o(?![a-z])/.exec(text);
  if (!found) {
    if (!/^\s*S|\bo\b/.test(text)) return [null, 0];
    throw new LayoutError("a swizzled layout is S<B,M,S> o offset o shape:stride, such as " +
      "S<3,4,3> o 0 o (8,64):(64,1)");
  }
  const [b, m, s, offset] = found.slice(1).map(Number);
  const name = `S<${b},${m},${s}>`;
  if (Math.min(b, m) < 0) throw new LayoutError(`${name}: B and M are whole numbers from 0 on`);
  if (s < b) {
    throw new LayoutError(`${name}: S is less than B, so the bits that are read would be bits that are changed`);
  }
  if (b + m + s > 30) throw new LayoutError(`${name}: B + M + S is above 30, the bits of an offset here`);
  if (Math.abs(offset) > LARGEST) throw new LayoutError(`${offset} is too large: numbers up to ${LARGEST} are drawn`);
  return [{ b, m, s, offset }, found[0].length];
}

/** An offset behind a swizzle: bits M+S to M+S+B-1 change bits M to M+B-1 by exclusive or. */
function swizzled(outer, value) {
  if (!outer) return value;
  const sum = outer.offset + value;
  return sum ^ ((sum >> outer.s) & (((1 << outer.b) - 1) << outer.m));
}

/** The text token by token; `sign` is the next one, null at the end. */
class Reader {
  constructor(text, start = 0, free = false) {
    this.text = text.trimEnd();
    this.token = free ? /\s*(-?\d+|[(),:_])/y : /\s*(-?\d+|[(),:])/y;
    this.advance(start);
  }

  advance(start) {
    const { token } = this;
    token.lastIndex = start;
    const found = token.exec(this.text);
    if (!found && start < this.text.length) {
      const at = start + this.text.slice(start).search(/\S/);
      throw new LayoutError(`character ${at + 1}, "${String.fromCodePoint(this.text.codePointAt(at))}": a layout has ` +
        "whole numbers, commas, parentheses and one colon", at);
    }
    this.sign = found ? found[1] : null;
    this.end = found ? token.lastIndex : this.text.length;
    this.at = this.end - (this.sign ?? "").length;
  }

  take(sign) {
    if (this.sign !== sign) return false;
    this.advance(this.end);
    return true;
  }

  /** A number, or an array of trees in parentheses. */
  tree() {
    return this.sign === "(" ? this.list(() => this.tree()) : this.number();
  }

  /** What stands in parentheses, read one by one. */
  list(one) {
    const opened = this.at;
    this.take("(");
    const branches = [one()];
    while (this.take(",") && this.sign !== ")") branches.push(one());
    if (this.sign === null || this.sign === ":") {
      throw new LayoutError(`the parenthesis at character ${opened + 1} is not closed`, opened);
    }
    if (!this.take(")")) throw this.unexpected('"," or ")"');
    return branches;
  }

  /** A number, a layout, or a tuple of such. */
  tiler() {
    const parts = this.sign === "(" ? this.list(() => this.tiler()) : this.number();
    if (this.sign === ":") return this.stride(parts);
    if (Array.isArray(parts)) return { tuple: parts };
    return { shape: parts, stride: parts === 1 ? 0 : 1, outer: null, plain: true };
  }

  /** The layout whose shape has been read, at the colon. */
  stride(parts) {
    const shapeOf = (part) => {
      if (Array.isArray(part)) return part.map(shapeOf);
      if (part.tuple) return part.tuple.map(shapeOf);
      if (part.plain) return part.shape;
      throw this.unexpected('"," or ")"');
    };
    const shape = typeof parts === "number" ? parts : shapeOf(parts);
    this.take(":");
    const stride = this.tree();
    refuseIncongruent(shape, stride);
    refuseSmall(shape);
    return { shape, stride, outer: null };
  }

  number() {
    if (this.sign === "_") {
      this.advance(this.end);
      return null;
    }
    if (this.sign === null || !/\d/.test(this.sign)) throw this.unexpected('a number or "("');
    if (Math.abs(Number(this.sign)) > LARGEST) {
      throw new LayoutError(`${BigInt(this.sign)} is too large: numbers up to ${LARGEST} are drawn`, this.at);
    }
    const value = Number(this.sign);
    this.advance(this.end);
    return value;
  }

  unexpected(expected) {
    if (this.sign === null) return new LayoutError(`the text ends where ${expected} should stand`, this.text.length);
    return new LayoutError(`character ${this.at + 1}, "${this.sign}": ${expected} should stand here`, this.at);
  }
}

function refuseSmall(shape) {
  const least = Math.min(...leavesOf(shape));
  if (least < 1) throw new LayoutError(`the shape has ${least}: each of its numbers is at least 1`);
}

/** Refuse what is too large to draw. */
function check(shape, stride) {
  const [sizes, strides] = [leavesOf(shape), leavesOf(stride)];
  const size = product(sizes.map(BigInt));
  if (size > MOST) throw new LayoutError(`size ${size}: layouts of up to ${MOST} elements are drawn`);
  const reach = sizes.reduce((sum, n, i) => sum + (n - 1) * Math.abs(strides[i]), 0);
  if (reach > LARGEST) throw new LayoutError(`it reaches offset ${reach}: offsets up to ${LARGEST} are drawn`);
}

function refuseIncongruent(shape, stride) {
  if (Array.isArray(shape) && Array.isArray(stride) && shape.length === stride.length) {
    shape.forEach((branch, i) => refuseIncongruent(branch, stride[i]));
  } else if (Array.isArray(shape) || Array.isArray(stride)) {
    throw new LayoutError(`shape and stride are nested differently: ${write(shape)} in the shape has ` +
      `${write(stride)} in the stride`);
  }
}

// --------------------------------------------------------------------------------------------- layouts

const write = (tree) => (Array.isArray(tree) ? `(${tree.map(write).join(",")})` : tree === null ? "_" : String(tree));
const leavesOf = (tree) => (Array.isArray(tree) ? tree.flatMap(leavesOf) : [tree]);
const product = (numbers) => numbers.reduce((one, other) => one * other, typeof numbers[0] === "bigint" ? 1n : 1);

/** A layout, its modes, and its leaves: innermost modes with `below`, the product of the shapes before them. */
function layoutOf(shape, stride, outer = null) {
  const leaves = [];
  let below = 1;
  const collect = (n, d, name) => {
    if (Array.isArray(n)) return n.forEach((branch, i) => collect(branch, d[i], name ? `${name}.${i}` : `${i}`));
    leaves.push({ name: name || "0", shape: n, stride: d, below });
    below *= n;
  };
  collect(shape, stride, "");
  const modes = Array.isArray(shape) ? shape : [shape];
  const rows = modes.length > 1 ? product(leavesOf(modes[0])) : 1;
  const front = outer ? `S<${outer.b},${outer.m},${outer.s}> o ${outer.offset} o ` : "";
  const text = `${front}${write(shape)}:${write(stride)}`;
  return { text, shape, stride, outer, leaves, modes, size: below, rows, cols: below / rows };
}

/** The coordinate of an index, leaf by leaf. */
const coordinates = (layout, index) => layout.leaves.map((leaf) => Math.floor(index / leaf.below) % leaf.shape);

/** Where a layout puts an index: the sum of coordinate times stride. */
const linearOf = (layout, index) =>
  coordinates(layout, index).reduce((sum, at, i) => sum + at * layout.leaves[i].stride, 0);

/** The same behind the layout's swizzle, if it has one. */
const offsetOf = (layout, index) => swizzled(layout.outer, linearOf(layout, index));

/** Numbers of leaves in the nesting of a shape: ((1,0),3), as CuTe prints a coordinate. */
function nest(shape, numbers) {
  const rest = [...numbers];
  const walk = (tree) => (Array.isArray(tree) ? `(${tree.map(walk).join(",")})` : String(rest.shift()));
  return walk(shape);
}

/** The coordinate with one number per mode: (5,3). */
function flatCoordinate(layout, index) {
  let rest = index;
  return layout.modes.map((mode) => {
    const size = product(leavesOf(mode));
    const at = rest % size;
    rest = Math.floor(rest / size);
    return at;
  });
}

const placeOf = (layout, index) => (index % layout.rows) * layout.cols + Math.floor(index / layout.rows);
const indexOf = (layout, place) => Math.floor(place / layout.cols) + (place % layout.cols) * layout.rows;

/** One sentence about which offsets the layout reaches, and its rank and depth. */
function summary(layout, offsets) {
  const reached = new Set(offsets).size;
  const [low, high] = [offsets.reduce((a, b) => Math.min(a, b)), offsets.reduce((a, b) => Math.max(a, b))];
  // CuTe's cosize of a swizzled layout is that of the layout behind it
  const plain = low >= 0 && !layout.outer;
  const span = plain ? `cosize ${high + 1}` : `offsets ${low} to ${high}`;
  const missing = plain ? high + 1 - reached : 0;
  const shared = reached < layout.size ? `${layout.size} coordinates share ${reached} offsets` : "no offset is shared";
  const nesting = `rank ${layout.modes.length}, depth ${depthOf(layout.shape)}`;
  const gaps = missing ? `, ${missing} below the cosize are left out` : "";
  return `size ${layout.size}, ${span}: ${shared}${gaps}; ${nesting}`;
}

/** What a swizzle does to an offset, in words: the bits that it reads, moved to those that it changes. */
function exclusiveOr(outer, linear) {
  const start = outer.offset + linear;
  const before = outer.offset ? `(${outer.offset} + ${linear})` : String(linear);
  const moved = (start >> outer.s) & (((1 << outer.b) - 1) << outer.m);
  return `${before} xor ${moved} = ${swizzled(outer, linear)}`;
}

/** Lines of arithmetic for one index. */
function arithmetic(layout, index) {
  const at = coordinates(layout, index);
  const { leaves, modes } = layout;
  const sum = (terms, total) => (terms.length > 1 ? `${terms.join(" + ")} = ${total}` : `${terms[0]} = ${total}`);
  const linear = linearOf(layout, index);
  const name = layout.outer ? "before the swizzle" : "offset";
  const lines = [[name, sum(leaves.map((leaf, i) => `${at[i]}×${leaf.stride}`), linear)]];
  if (modes.length > 1 && leaves.length > modes.length) {
    let next = 0;
    const parts = modes.map((mode) => leavesOf(mode).reduce((total) => total + at[next] * leaves[next++].stride, 0));
    lines.push(["mode by mode", sum(parts, linear)]);
  }
  if (layout.outer) lines.push(["offset", exclusiveOr(layout.outer, linear)]);
  lines.push(["1-D index", sum(leaves.map((leaf, i) => `${at[i]}×${leaf.below}`), index)]);
  if (leaves.length > 1) {
    const back = leaves.map((leaf, i) => {
      const divided = leaf.below > 1 ? `⌊${index}/${leaf.below}⌋` : `${index}`;
      return i < leaves.length - 1 ? `${divided} mod ${leaf.shape} = ${at[i]}` : `${divided} = ${at[i]}`;
    });
    lines.push(["and back", back.join(", ")]);
  }
  return lines;
}
