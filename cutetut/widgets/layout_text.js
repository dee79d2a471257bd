// Layouts as text, shape:stride, read and evaluated; layout_text.py reads them by the same rules.
//
// An "index" counts coordinates colexicographically, as CuTe does: the first mode runs fastest. This file has no
// exports. Python puts it in front of a widget's own file; together they are one module.

const MOST = 16384; // elements that are drawn
const LARGEST = 2 ** 31 - 1; // offset that is drawn

class LayoutError extends Error {}

/** Read "shape:stride"; throws a LayoutError that says where and what to change, as layout_text.py does. */
function readLayout(text) {
  refuseOtherKinds(text);
  const reader = new Reader(text);
  const shape = reader.tree();
  if (!reader.take(":")) {
    if (reader.sign === null) throw new LayoutError("the stride is missing: write shape:stride, such as 8:1");
    throw reader.unexpected('":" and the stride');
  }
  const stride = reader.tree();
  if (reader.sign !== null) throw reader.unexpected("the end");
  check(shape, stride);
  return layoutOf(shape, stride);
}

function refuseOtherKinds(text) {
  if (!text.trim()) throw new LayoutError("type shape:stride, such as (4,8):(8,1)");
  if (/S<| o /.test(text)) {
    throw new LayoutError('this is a swizzle in front of a layout: type what stands behind the last "o", and look ' +
      "at the swizzle in the swizzle view");
  }
  if (text.includes("?")) {
    throw new LayoutError('"?" is a number known only at run time: type a number in its place');
  }
}

/** The text token by token; `sign` is the next one, null at the end. */
class Reader {
  constructor(text) {
    this.text = text.trimEnd();
    this.advance(0);
  }

  advance(start) {
    const token = /\s*(-?\d+|[(),:])/y;
    token.lastIndex = start;
    const found = token.exec(this.text);
    if (!found && start < this.text.length) {
      const at = start + this.text.slice(start).search(/\S/);
      throw new LayoutError(`character ${at + 1}, "${String.fromCodePoint(this.text.codePointAt(at))}": a layout has ` +
        "whole numbers, commas, parentheses and one colon");
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
    const opened = this.at;
    if (!this.take("(")) return this.number();
    const branches = [this.tree()];
    while (this.take(",") && this.sign !== ")") branches.push(this.tree());
    if (this.sign === null || this.sign === ":") {
      throw new LayoutError(`the parenthesis at character ${opened + 1} is not closed`);
    }
    if (!this.take(")")) throw this.unexpected('"," or ")"');
    return branches;
  }

  number() {
    if (this.sign === null || !/\d/.test(this.sign)) throw this.unexpected('a number or "("');
    if (Math.abs(Number(this.sign)) > LARGEST) {
      throw new LayoutError(`${BigInt(this.sign)} is too large: numbers up to ${LARGEST} are drawn`);
    }
    const value = Number(this.sign);
    this.advance(this.end);
    return value;
  }

  unexpected(expected) {
    if (this.sign === null) return new LayoutError(`the text ends where ${expected} should stand`);
    return new LayoutError(`character ${this.at + 1}, "${this.sign}": ${expected} should stand here`);
  }
}

function check(shape, stride) {
  refuseIncongruent(shape, stride);
  const [sizes, strides] = [leavesOf(shape), leavesOf(stride)];
  const least = Math.min(...sizes);
  if (least < 1) throw new LayoutError(`the shape has ${least}: each of its numbers is at least 1`);
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

const write = (tree) => (Array.isArray(tree) ? `(${tree.map(write).join(",")})` : String(tree));
const leavesOf = (tree) => (Array.isArray(tree) ? tree.flatMap(leavesOf) : [tree]);
const product = (numbers) => numbers.reduce((one, other) => one * other, typeof numbers[0] === "bigint" ? 1n : 1);

/** A layout, its modes, and its leaves: innermost modes with `below`, the product of the shapes before them. */
function layoutOf(shape, stride) {
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
  return { text: `${write(shape)}:${write(stride)}`, shape, leaves, modes, size: below, rows, cols: below / rows };
}

/** The coordinate of an index, leaf by leaf. */
const coordinates = (layout, index) => layout.leaves.map((leaf) => Math.floor(index / leaf.below) % leaf.shape);

/** Where a layout puts an index: the sum of coordinate times stride. */
const offsetOf = (layout, index) =>
  coordinates(layout, index).reduce((sum, at, i) => sum + at * layout.leaves[i].stride, 0);

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

/** One sentence about which offsets the layout reaches. */
function summary(layout, offsets) {
  const reached = new Set(offsets).size;
  const [low, high] = [offsets.reduce((a, b) => Math.min(a, b)), offsets.reduce((a, b) => Math.max(a, b))];
  const span = low < 0 ? `offsets ${low} to ${high}` : `cosize ${high + 1}`;
  const missing = low < 0 ? 0 : high + 1 - reached;
  const shared = reached < layout.size ? `${layout.size} coordinates share ${reached} offsets` : "no offset is shared";
  return `size ${layout.size}, ${span}: ${shared}` + (missing ? `, ${missing} below the cosize are left out` : "");
}

/** Lines of arithmetic for one index. */
function arithmetic(layout, index) {
  const at = coordinates(layout, index);
  const { leaves, modes } = layout;
  const sum = (terms, total) => (terms.length > 1 ? `${terms.join(" + ")} = ${total}` : `${terms[0]} = ${total}`);
  const lines = [["offset", sum(leaves.map((leaf, i) => `${at[i]}×${leaf.stride}`), offsetOf(layout, index))]];
  if (modes.length > 1 && leaves.length > modes.length) {
    let next = 0;
    const parts = modes.map((mode) => leavesOf(mode).reduce((total) => total + at[next] * leaves[next++].stride, 0));
    lines.push(["mode by mode", sum(parts, offsetOf(layout, index))]);
  }
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
