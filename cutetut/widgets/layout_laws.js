// The law of each operation, checked with numbers: at one index, to show it, and at all of them.
//
// CuTe DSL returns a layout also where its operation has no meaning, such as a composition whose right modes overlap.
// Then the law fails somewhere, and `brokenLaw` says where. The other layout_*.js files stand in front of this one.

/** What a law says: `text`, and `at(index)` of the result with words, whether it holds, and the indices of A and B. */
function lawOf(name, computed) {
  const make = LAWS[name];
  return { whole: () => null, ...make({ ...computed, name }) };
}

const MOST_SUMS = 2 ** 21; // offsets that a check looks at

const LAWS = {
  composition: throughLaw, logical_divide: throughLaw, zipped_divide: throughLaw, tiled_divide: throughLaw,
  flat_divide: throughLaw, coalesce: throughLaw, flatten: throughLaw, unflatten: throughLaw, group_modes: throughLaw,
  slice_: sliceLaw, dice: selectLaw, select: selectLaw, filter: filterLaw, filter_zeros: filterLaw,
  complement: complementLaw,
  logical_product: productLaw, zipped_product: productLaw, tiled_product: productLaw, flat_product: productLaw,
  blocked_product: productLaw, raked_product: productLaw, tile_to_shape: filledLaw, append: appendLaw,
  prepend: appendLaw, right_inverse: rightLaw, left_inverse: leftLaw, nullspace: nullLaw, max_common_layout: commonLaw,
  make_ordered_layout: orderLaw, make_layout_like: likeLaw, make_layout_tv: tvLaw, recast_layout: recastLaw,
};

/** What a law says at one index: words, and the indices of A and B it is about. */
const said = (words, { a = null, b = null } = {}) => ({ words, holds: true, a, b });

/** The same of a law that says that two numbers are equal. */
function equal(words, left, right, about) {
  if (left === right) return said(words, about);
  return { ...said(`${words}, but ${left} is not ${right}`, about), holds: false };
}

/** The same of a law that says what the result maps an index to. */
function gives(result, index, right, words, about) {
  const left = valueAt(result, index);
  return equal(`R(${index}) = ${left}, ${words}`, left, right, about);
}

const known = (index, layout) => (index >= 0 && index < sizeOf(layout.shape) ? index : null);
const indicesOf = (layout) => [...Array(sizeOf(layout.shape)).keys()];
const allValues = (layout) => indicesOf(layout).map((index) => valueAt(layout, index));

// the function stays, its modes are others
const SAME = new Set(["coalesce", "flatten", "unflatten", "group_modes"]);

/** R(i) = A(k), where k is what the same operation makes of the layout that maps each index to itself. */
function throughLaw({ name, layout, other, result }) {
  const composed = name === "composition" && !other.tuple;
  const indexOf = SAME.has(name) ? (index) => index : throughIndices(name, layout, other);
  const at = (index) => {
    const k = indexOf(index);
    if (k === null) return said(`R(${index}) is past the end of A: its tile is cut off`);
    const right = valueAt(layout, k);
    const step = composed ? `A(B(${index})) = A(${k})` : `A(${k})`;
    return gives(result, index, right, `${step} = ${right}`, { a: k, b: composed ? index : null });
  };
  const text = {
    composition: composed ? "R(c) = A(B(c))" : "R(c) = A(k), k composed mode by mode",
  }[name] ?? (SAME.has(name) ? "R(i) = A(i)" : "R(tile, rest) = A(k), every k once");
  const whole = () => (name === "composition" ? null : missed(indexOf, layout, result));
  return { text, at, whole };
}

/** A function from an index of the result to the index of A that it stands for; null where a mode is too short. */
function throughIndices(name, layout, other) {
  const run = name === "composition" ? composition : logicalDivide;
  const digits = [];
  let [below, real] = [1, 1];
  const walk = (shape, tiler) => {
    if (tiler?.tuple && isTuple(shape)) return together(shape.map((mode, i) => walk(mode, tiler.tuple[i])));
    const own = identity(shape);
    const size = sizeOf(shape);
    const reach = Math.max(size, tiler ? cosizeOf(run(own, tiler)) : 0);
    const scale = below;
    digits.push({ below, reach, size, real });
    [below, real] = [below * reach, real * size];
    return { shape, stride: scaled(own.stride, scale), outer: null };
  };
  const inner = OPERATIONS[name].run(walk(layout.shape, other), other, () => {});
  return (index) => {
    const value = valueAt(inner, index);
    let k = 0;
    for (const digit of digits) {
      const at = Math.floor(value / digit.below) % digit.reach;
      if (at >= digit.size) return null;
      k += at * digit.real;
    }
    return k;
  };
}

/** What is wrong where a result does not reach every index of the layout. */
function missed(indexOf, layout, result) {
  const reached = new Set(indicesOf(result).map(indexOf));
  const first = indicesOf(layout).find((k) => !reached.has(k));
  return first === undefined ? null : `R leaves out index ${first} of A`;
}

function sliceLaw({ layout, other, result }) {
  const indices = identity(layout.shape);
  const through = slice(indices, other);
  const zeroed = (tree) => (tree === null ? 0 : isTuple(tree) ? tree.map(zeroed) : tree);
  const base = crd2idx(zeroed(other), indices);
  const start = valueAt(layout, base);
  const at = (index) => {
    const k = base + (isTuple(through.shape) && !through.shape.length ? 0 : valueAt(through, index));
    const [left, right] = [valueAt(result, index) + start, valueAt(layout, k)];
    return equal(`R(${index}) + ${start} = ${left}, A(${k}) = ${right}`, left, right, { a: known(k, layout) });
  };
  const text = `R(i) + ${start} = A(k): the offset ${start} of the fixed coordinates is not in R`;
  return { text, at };
}

function selectLaw({ name, layout, other, result }) {
  const dicing = name === "dice";
  const modes = dicing ? diced(layout, other) : other.map((number) => modesOf(layout)[number]);
  const through = (dicing ? dice : selected)(identity(layout.shape), other);
  const once = dicing || new Set(other).size === other.length;
  const at = (index) => {
    let rest = index;
    const parts = modes.map((mode) => {
      const size = sizeOf(mode.shape);
      const here = rest % size;
      rest = Math.floor(rest / size);
      return crd2idx(here, mode);
    });
    const right = swizzled(layout.outer, parts.reduce((sum, part) => sum + part, 0));
    const k = once ? known(valueAt(through, index), layout) : null;
    return gives(result, index, right, `from ${parts.join(" + ")}`, { a: k });
  };
  return { text: "R(i, j, ...) = M(i) + N(j) + ..., where M, N, ... are the modes asked for", at };
}

function filterLaw({ layout, result }) {
  const values = allValues(layout);
  const firsts = new Map(values.map((offset, index) => [offset, index]).reverse());
  const at = (index) => {
    const offset = valueAt(result, index);
    const first = firsts.get(offset) ?? null;
    return { words: first === null ? `A has no offset ${offset}` : `R(${index}) = ${offset} = A(${first})`,
      holds: first !== null, a: first, b: null };
  };
  const whole = () => (new Set(values).size === new Set(allValues(result)).size ? null : "R leaves out an offset of A");
  return { text: "R has the offsets of A, without repeats of stride 0", at, whole };
}

function complementLaw({ layout, other, result }) {
  const at = (index) => {
    const start = valueAt(result, index);
    return said(`copy ${index} of A starts at R(${index}) = ${start}`);
  };
  const whole = () => {
    const wrong = misplaced(layout, allValues(result).map((start, j) => [j, start]));
    const covered = sizeOf(result.shape) * new Set(allValues(layout)).size;
    return wrong ?? (covered < other ? `the copies of A have ${covered} of ${other} offsets` : null);
  };
  return { text: `A(i) + R(j) has every offset below ${other} once`, at, whole };
}

/** Where copies of a layout that cover all offsets once start, each at the lowest offset still free; null if none. */
function lowestStarts(layout, wanted) {
  const own = [...new Set(allValues(layout))];
  const covered = new Set();
  const starts = [];
  for (let start = 0; starts.length < wanted; start++) {
    if (covered.has(start)) continue;
    for (const offset of own) {
      if (covered.has(start + offset)) return null;
      covered.add(start + offset);
    }
    starts.push(start);
  }
  return starts;
}

/** What is wrong with [number, start] of copies, or null; not looked for where it would take long. */
function misplaced(layout, copies) {
  const wanted = Math.max(...copies.map(([number]) => number)) + 1;
  if (wanted * sizeOf(layout.shape) > MOST_SUMS) return null;
  const starts = lowestStarts(layout, wanted);
  if (!starts) return "copies of A cannot cover all offsets once: its strides leave gaps that no copy fills";
  const [number, start] = copies.find(([j, at]) => starts[j] !== at) ?? [null];
  return number === null ? null : `copy ${number} of A starts at ${start}, but offset ${starts[number]} is free`;
}

function productLaw({ name, layout, other, result, note }) {
  if (other.tuple) return modewiseLaw(layout, other, result);
  const places = completed(inside(layout), sizeOf(layout.shape) * cosizeOf(other), () => {});
  // where modes overlap, C has no other place
  const startOf = (place) => (place === 0 ? 0 : valueAt(places, place));
  const [blocks, copies] = pairIndices(name, layout, other);
  const at = (index) => {
    const [a, b] = [valueAt(blocks, index), valueAt(copies, index)];
    const [block, place] = [valueAt(inside(layout), a), valueAt(other, b)];
    const start = startOf(place);
    const sum = `A(${a}) + C(B(${b})) = ${block} + C(${place}) = ${block} + ${start}`;
    return gives(result, index, swizzled(layout.outer, block + start), sum, { a, b });
  };
  const whole = () => misplaced(inside(layout), allValues(other).map((place) => [place, startOf(place)]));
  return { text: `R = A(i) + C(B(j)), C = ${writeLayout(places)}, the complement of A`, at, whole };
}

/** The law of the blocked product that fills a shape. */
function filledLaw({ layout, other, result }) {
  return productLaw({ name: "blocked_product", layout, other: copiesToFill(layout, other), result });
}

/** The law of a logical product by a tuple: that of each mode which has a tiler. */
function modewiseLaw(layout, other, result) {
  const [modes, own] = [modesOf(result), modesOf(layout)];
  const parts = other.tuple.map((tiler, i) =>
    productLaw({ name: "logical_product", layout: own[i], other: tiler, result: modes[i] }));
  const at = (index) => {
    let rest = index;
    const found = parts.map((part, i) => {
      const size = sizeOf(modes[i].shape);
      const here = part.at(rest % size);
      rest = Math.floor(rest / size);
      return here;
    });
    const wrong = found.findIndex(({ holds }) => !holds);
    const words = found.map((part, i) => `mode ${i}: ${part.words}`);
    return { words: wrong < 0 ? words.join("; ") : words[wrong], holds: wrong < 0, a: null, b: null };
  };
  const whole = () => parts.map((part) => part.whole()).find((wrong) => wrong !== null) ?? null;
  return { text: "mode by mode, R(i, j) = A(i) + C(B(j)), C the complement of A", at, whole };
}

/** For each index of a product, the index of A and that of B, as two layouts shaped like it. */
function pairIndices(name, layout, other) {
  const still = ({ shape }) => lay(shape, JSON.parse(JSON.stringify(shape), (_, leaf) => (isTuple(leaf) ? leaf : 0)));
  const paired = { blocked_product: (a, b) => zipped(a, b), raked_product: (a, b) => zipped(b, a) }[name];
  const rank = Math.max(modesOf(layout).length, modesOf(other).length);
  const parts = paired ? [padded(inside(layout), rank), padded(other, rank)] : [inside(layout), other];
  const [a, b] = parts.map(({ shape }) => identity(shape));
  const join = paired ?? ((one, two) => together([one, two]));
  return [join(a, still(b)), join(still(a), b)];
}

function appendLaw({ name, layout, other, result }) {
  const first = name === "append" ? layout : other;
  const size = sizeOf(first.shape);
  const at = (index) => {
    const [one, two] = [index % size, Math.floor(index / size)];
    const [a, b] = name === "append" ? [one, two] : [two, one];
    const sum = valueAt(inside(layout), a) + valueAt(other, b);
    return gives(result, index, swizzled(layout.outer, sum), `from A(${a}) and B(${b})`, { a, b });
  };
  return { text: name === "append" ? "R(i, j) = A(i) + B(j)" : "R(j, i) = A(i) + B(j)", at };
}

function rightLaw({ layout, result }, wanted = (index) => index) {
  const at = (index) => {
    const k = valueAt(result, index);
    const back = valueAt(layout, k);
    return equal(`A(R(${index})) = A(${k}) = ${back}`, back, wanted(index), { a: known(k, layout) });
  };
  return { text: "A(R(k)) = k", at };
}

function leftLaw({ layout, result }) {
  const values = allValues(layout);
  const at = (index) => {
    const k = valueAt(result, index);
    const there = values[k] === index;
    return there ? said(`R(A(${k})) = R(${index}) = ${k}`, { a: k }) : said(`no index of A has offset ${index}`);
  };
  const whole = () => {
    const first = values.findIndex((offset, index) => valueAt(result, offset) !== index);
    return first < 0 ? null : `R(A(${first})) is ${valueAt(result, values[first])}, not ${first}: A repeats an offset`;
  };
  return { text: "R(A(i)) = i", at, whole };
}

function nullLaw({ layout, result }) {
  const { at } = rightLaw({ layout, result }, () => 0);
  const whole = () => {
    const wanted = sizeOf(layout.shape) / sizeOf(filterZeros(layout).shape);
    return new Set(allValues(result)).size === wanted ? null : `R does not have ${wanted} indices of A`;
  };
  return { text: "A(R(i)) = 0, with every index of A that only modes of stride 0 tell from 0", at, whole };
}

function commonLaw({ layout, other, result }) {
  const at = (index) => {
    const k = valueAt(result, index);
    const about = { a: known(k, layout), b: known(k, other) };
    if (about.a === null) return { ...said(`R(${index}) = ${k} is past the end of A`, about), holds: false };
    const [one, two] = [valueAt(layout, k), valueAt(other, k)];
    return equal(`R(${index}) = ${k}, A(${k}) = ${one}, B(${k}) = ${two}`, one === index ? two : one, index, about);
  };
  return { text: `A(R(k)) = B(R(k)) = k for k below ${sizeOf(result.shape)}, which is cute.max_common_vector`, at };
}

function orderLaw({ layout, other, result }) {
  const parts = orderParts(layout.shape, other);
  // of equal orders the first is the lower
  const unlike = parts.map(({ key }, i) => key + i / parts.length);
  const counted = ordered(parts.map(({ size }) => size), unlike);
  const at = (index) => {
    const right = valueAt(counted, index);
    return gives(result, index, right, `in this order it is number ${right}`, { a: index });
  };
  return { text: "R counts the coordinates of A's shape, the mode of the lowest order fastest", at };
}

function likeLaw({ layout, result }) {
  const offsets = [...new Set(allValues(layout))].sort((one, two) => one - two);
  const below = new Map(offsets.map((offset, count) => [offset, count]));
  const at = (index) => {
    const own = valueAt(layout, index);
    const right = below.get(own);
    return gives(result, index, right, `A(${index}) = ${own} has ${right} below it`, { a: index });
  };
  return { text: "R(i) = the number of A's offsets that are below A(i)", at };
}

function tvLaw({ layout, other, result }) {
  const tile = rakedProduct(layout, other);
  const count = sizeOf(layout.shape);
  const at = (index) => {
    const [thread, held] = [index % count, Math.floor(index / count)];
    const place = valueAt(result, index);
    const places = sizeOf(tile.shape);
    if (place >= places) {
      const words = `R(${thread}, ${held}) = ${place}, but the tile has ${places} places`;
      return { words, holds: false, a: thread, b: held };
    }
    const back = valueAt(tile, place);
    const words = `R(${thread}, ${held}) = ${place}: place ${place} of the tile is thread ${thread}, value ${held}`;
    return equal(words, back, index, { a: thread, b: held });
  };
  return { text: "R(thread, value) = the place in the tile, counted down its columns", at };
}

function recastLaw({ layout, other, result }) {
  const [wide, old] = other;
  const grain = Math.min(wide, old);
  const parts = (offset, bits) => Array.from({ length: bits / grain }, (_, k) => (offset * bits) / grain + k);
  const at = (index) => {
    const offset = valueAt(result, index);
    return said(`R(${index}) = ${offset}: bits ${offset * wide} to ${(offset + 1) * wide - 1}`);
  };
  const whole = () => {
    const before = new Set(allValues(layout).flatMap((offset) => parts(offset, old)));
    const after = allValues(result).map((offset) => parts(offset, wide));
    const reached = new Set(after.flat());
    const lost = [...before].find((part) => !reached.has(part));
    if (lost !== undefined) return `R leaves out bits ${lost * grain} to ${(lost + 1) * grain - 1} of A`;
    const strange = after.findIndex((some) => !some.some((part) => before.has(part)));
    return strange < 0 ? null : `R(${strange}) has no bit of A`;
  };
  return { text: `the same bits, ${wide} at a time in place of ${old}`, at, whole };
}

/** The first place where a result breaks its law, in words, or null. */
function brokenLaw(name, computed) {
  const law = lawOf(name, computed);
  for (let index = 0; index < sizeOf(computed.result.shape); index++) {
    const { holds, words } = law.at(index);
    if (!holds) return words;
  }
  return law.whole();
}
