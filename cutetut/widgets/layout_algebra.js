// CuTe's layout algebra in the browser: what cute.coalesce, cute.composition, cute.complement and the inverses return.
//
// A layout here is { shape, stride, outer }: two trees (a number, or an array of trees) of the same nesting, and
// `outer`, the swizzle and offset in front, or null. What cannot be done throws a LayoutError that says why. The
// results equal CuTe DSL's, nesting included; the tests ask CuTe DSL thousands of times. CuTe DSL also answers where
// an operation has no meaning, and so does this file; layout_laws.js finds those answers. layout_text.js stands in
// front of this file: one module, no bundler.

// numbers of layouts and of offsets
const EXACT = 2 ** 31 - 1;

/** A layout of a shape and a stride; refuses numbers that a GPU would not address. */
function lay(shape, stride, outer = null) {
  for (const number of [...leavesOf(shape), ...leavesOf(stride)]) {
    if (Math.abs(number) > EXACT) throw new LayoutError(`the result has the number ${number}, above ${EXACT}`);
  }
  return { shape, stride, outer };
}

const isTuple = Array.isArray;
const sizeOf = (tree) => product(leavesOf(tree));
const ceilDiv = (a, b) => Math.ceil(a / b);
const depthOf = (tree) => (isTuple(tree) ? 1 + Math.max(0, ...tree.map(depthOf)) : 0);
const modesOf = ({ shape, stride }) => (isTuple(shape) ? shape.map((n, i) => lay(n, stride[i])) : [lay(shape, stride)]);
const together = (layouts, outer = null) =>
  lay(layouts.map((one) => one.shape), layouts.map((one) => one.stride), outer);
const inside = (layout) => lay(layout.shape, layout.stride);
const writeLayout = (layout) => {
  const plain = `${write(layout.shape)}:${write(layout.stride)}`;
  const { outer } = layout;
  return outer ? `S<${outer.b},${outer.m},${outer.s}> o ${outer.offset} o ${plain}` : plain;
};

/** The innermost modes as [shape, stride] pairs. */
function pairsOf({ shape, stride }) {
  const strides = leavesOf(stride);
  return leavesOf(shape).map((n, i) => [n, strides[i]]);
}

/** A flat layout of [shape, stride] pairs: a plain mode where there is one, 1:0 where there is none. */
function flat(pairs) {
  if (pairs.length === 0) return lay(1, 0);
  if (pairs.length === 1) return lay(...pairs[0]);
  return lay(pairs.map(([n]) => n), pairs.map(([, d]) => d));
}

/** The strides that make a shape compact, the first mode fastest. */
function compact(shape) {
  const { stride } = identity(shape);
  const walk = (n, d) => (isTuple(n) ? n.map((branch, i) => walk(branch, d[i])) : n === 1 ? 0 : d);
  // as CuTe writes it: along one element there is no step
  return lay(shape, walk(shape, stride));
}

/** The layout of a shape that maps each index to itself; past its end too, so it steps along one element as well. */
function identity(shape) {
  let next = 1;
  const walk = (tree) => {
    if (isTuple(tree)) return tree.map(walk);
    const stride = next;
    next *= tree;
    return stride;
  };
  return lay(shape, walk(shape));
}

const scaled = (tree, by) => (isTuple(tree) ? tree.map((branch) => scaled(branch, by)) : tree * by);

/** The layout of a shape in which each mode steps over all modes with a lower order. */
function ordered(shape, order) {
  const parts = orderParts(shape, order);
  const walk = (n, key) => {
    if (isTuple(key)) return n.map((branch, i) => walk(branch, key[i]));
    return scaled(compact(n).stride, product(parts.filter((part) => part.key < key).map(({ size }) => size)));
  };
  return lay(shape, walk(shape, order));
}

/** The size and the order of each mode that an order has a number for. */
function orderParts(shape, order) {
  if (!isTuple(order)) return [{ size: sizeOf(shape), key: order }];
  refuseMisfit(order, shape, "order");
  return order.flatMap((key, i) => orderParts(shape[i], key));
}

/** The compact layout with the order of a layout's strides; where one is 0, it stays 0. */
function layoutLike(layout) {
  return lay(layout.shape, ordered(filterZeros(layout).shape, layout.stride).stride);
}

/** The largest offset and one; a swizzle moves offsets only inside blocks, which count whole. */
function cosizeOf(layout) {
  return 1 + pairsOf(layout).reduce((sum, [n, d]) => sum + (n - 1) * Math.abs(d), 0);
}

// ------------------------------------------------------------------------------------- coordinates

/** The index of a coordinate, or the coordinate's product with a stride; throws where they do not fit. */
function crd2idx(coordinate, { shape, stride }) {
  if (isTuple(coordinate)) {
    refuseMisfit(coordinate, shape);
    return coordinate.reduce((sum, at, i) => sum + crd2idx(at, lay(shape[i], stride[i])), 0);
  }
  if (!isTuple(shape)) return coordinate * stride;
  let rest = coordinate;
  return shape.reduce((sum, mode, i) => {
    const size = sizeOf(mode);
    // the last mode takes all that is left
    const at = i < shape.length - 1 ? rest % size : rest;
    rest = Math.floor(rest / size);
    return sum + crd2idx(at, lay(mode, stride[i]));
  }, 0);
}

/** The nested coordinate of an index. */
function idx2crd(index, shape) {
  let rest = index;
  const walk = (tree, last) => {
    if (isTuple(tree)) return tree.map((branch, i) => walk(branch, last && i === tree.length - 1));
    const at = last ? rest : rest % tree;
    rest = Math.floor(rest / tree);
    return at;
  };
  return walk(shape, true);
}

/** What a layout maps an index to, its swizzle and offset included. */
function valueAt(layout, index) {
  return swizzled(layout.outer, crd2idx(index, layout));
}

/** Keep the modes where the coordinate has "_" (null), drop the fixed ones together with their offset. */
function slice(layout, coordinate) {
  refuseSwizzle(layout, "slice_");
  const kept = picked(layout, coordinate, (at) => at === null);
  if (kept.length === 0) return lay([], []);
  return coordinate === null ? layout : together(kept);
}

/** Keep the modes where the coordinate has a number, drop those where it has "_" (null). */
function dice(layout, coordinate) {
  return isTuple(coordinate) || coordinate === null ? together(diced(layout, coordinate), layout.outer) : layout;
}

const diced = (layout, coordinate) => picked(layout, coordinate, (at) => at !== null);

/** The modes with a wanted coordinate, in one list: nested ones stand beside the others, as CuTe has them. */
function picked(layout, coordinate, wanted) {
  if (!isTuple(coordinate)) return wanted(coordinate) ? [layout] : [];
  refuseMisfit(coordinate, layout.shape);
  return modesOf(layout).flatMap((mode, i) => picked(mode, coordinate[i], wanted));
}

function refuseMisfit(tree, shape, name = "coordinate") {
  if (isTuple(shape) && shape.length === tree.length) return;
  throw new LayoutError(`${name} ${write(tree)} does not fit shape ${write(shape)}`);
}

function refuseSwizzle(layout, name) {
  if (layout?.outer) throw new LayoutError(`${name} of a swizzled layout is not shown here: remove the swizzle`);
}

/** Some modes of a layout, in the order of their numbers. */
function selected(layout, numbers) {
  const modes = modesOf(layout);
  const missing = numbers.find((number) => number < 0 || number >= modes.length);
  if (missing !== undefined) throw new LayoutError(`no mode ${missing}: the layout has ${modes.length}`);
  return together(numbers.map((number) => modes[number]), layout.outer);
}

/** A layout whose modes from `first` to the one before `end` are one. */
function grouped(layout, [first, end]) {
  const modes = modesOf(layout);
  if (first < 0 || first >= end || end > modes.length) {
    throw new LayoutError(`modes ${first} to ${end}: the first is below the second, which is at most ${modes.length}`);
  }
  const one = together(modes.slice(first, end));
  if (!isTuple(layout.shape)) return { ...one, outer: layout.outer };
  return together([...modes.slice(0, first), one, ...modes.slice(end)], layout.outer);
}

/** The modes of one layout and then those of another. */
function appended(layout, mode) {
  refuseSwizzle(mode, "append");
  const modes = isTuple(layout.shape) ? modesOf(layout) : [inside(layout)];
  return together([...modes, mode], layout.outer);
}

function prepended(layout, mode) {
  refuseSwizzle(mode, "prepend");
  const modes = isTuple(layout.shape) ? modesOf(layout) : [inside(layout)];
  return together([mode, ...modes], layout.outer);
}

// ---------------------------------------------------------------------------------- simplification

/** Merge neighbours of which the second goes on where the first ends; leave out modes of size 1. */
function merged(pairs) {
  const kept = [];
  for (const [n, d] of pairs) {
    const last = kept.at(-1);
    if (n === 1) continue;
    if (last && last[0] * last[1] === d) last[0] *= n;
    else kept.push([n, d]);
  }
  return kept;
}

/** The same function with as few modes as can be; with a profile, mode by mode. */
function coalesce(layout, profile = 1) {
  if (!isTuple(profile)) return { ...flat(merged(pairsOf(layout))), outer: layout.outer };
  const modes = modesOf(layout);
  if (!isTuple(layout.shape) || profile.length > modes.length) {
    throw new LayoutError(`the profile ${write(profile)} has ${profile.length} modes, the layout has ${modes.length}`);
  }
  return together(modes.map((mode, i) => (i < profile.length ? coalesce(mode, profile[i]) : mode)), layout.outer);
}

/** The same modes in one list; CuTe DSL 4.8.1 leaves those of a swizzled layout as they are. */
function flatten(layout) {
  if (layout.outer || !isTuple(layout.shape)) return layout;
  return lay(leavesOf(layout.shape), leavesOf(layout.stride));
}

/** The innermost modes, nested like a profile; those that it has no place for are lost. */
function unflatten(layout, profile) {
  const pairs = pairsOf(layout);
  const places = leavesOf(profile).length;
  if (places > pairs.length) {
    throw new LayoutError(`the profile ${write(profile)} has ${places} places, the layout has ${pairs.length} modes`);
  }
  const walk = (tree) => (isTuple(tree) ? together(tree.map(walk)) : lay(...pairs.shift()));
  return walk(profile);
}

/** A layout with shape 1 wherever the stride is 0. */
function filterZeros(layout) {
  const walk = (n, d) => (isTuple(n) ? n.map((branch, i) => walk(branch, d[i])) : d === 0 ? 1 : n);
  return lay(walk(layout.shape, layout.stride), layout.stride, layout.outer);
}

/** The same offsets, without the coordinates that only repeat one. */
const filter = (layout) => coalesce(filterZeros(layout));

// ------------------------------------------------------------------------------------- composition

/** The layout R with R(c) = A(B(c)); B is a layout, or a tiler: a tuple that is composed mode by mode. */
function composition(layout, other, note = () => {}) {
  if (other.outer) throw new LayoutError("the right layout is swizzled: only the left one may be");
  if (layout.outer) return { ...composition(inside(layout), other, note), outer: layout.outer };
  if (other.tuple) return together(byMode(layout, other, (mode, tiler) => composition(mode, tiler, note)));
  const left = coalescedFor(layout);
  note(`as one list of modes, the left layout is ${writeLayout(coalesce(layout))}`);
  return composed(left, other, note);
}

/** What an operation makes of each mode that a tuple { tuple: [tilers] } has a tiler for. */
function byMode(layout, tiler, operation) {
  const tilers = tiler.tuple;
  const modes = modesOf(layout);
  if (tilers.length > modes.length) {
    throw new LayoutError(`the tiler ${writeTiler(tiler)} has ${tilers.length} modes, the layout ` +
      `${writeLayout(layout)} has ${modes.length}`);
  }
  return tilers.map((one, i) => operation(modes[i], one));
}

/** A tiler as a reader types it. */
function writeTiler(tiler) {
  if (tiler.tuple) return `(${tiler.tuple.map(writeTiler).join(",")})`;
  return tiler.plain ? String(tiler.shape) : writeLayout(tiler);
}

/** The left layout's modes, merged. The last one is endless, so it is kept where its size is 1. */
function coalescedFor(layout) {
  const pairs = pairsOf(layout);
  const last = pairs.pop();
  return merged([...pairs, last[0] === 1 ? [2, last[1]] : last]);
}

function composed(left, { shape, stride }, note) {
  if (isTuple(shape)) return together(shape.map((n, i) => composed(left, lay(n, stride[i]), note)));
  if (stride === 0) {
    note(`${shape}:0 stays at index 0, so it becomes ${shape}:0`);
    return lay(shape, 0);
  }
  if (left.length === 1) {
    const step = stride * left[0][1];
    note(`${shape}:${stride} in ${left[0][0]}:${left[0][1]}: steps of ${stride}×${left[0][1]} = ${step}`);
    return lay(shape, step);
  }
  const found = flat(walked(left, shape, stride, note));
  note(`so ${shape}:${stride} becomes ${writeLayout(found)}`);
  return found;
}

/** Walk `count` steps of `step` through the left modes; returns the modes that this walk has. */
function walked(left, count, step, note) {
  const found = [];
  let [rest, pace] = [count, step];
  for (const [n, d] of left.slice(0, -1)) {
    if (n === 0) throw overlap();
    if (pace % n !== 0 && Math.abs(pace) > n) {
      throw new LayoutError(`stride ${step} of ${count}:${step} does not fit the left mode ${n}:${d}: ` +
        `${Math.abs(pace)} is more than ${n} and no multiple of it`);
    }
    const room = ceilDiv(n, Math.abs(pace));
    const here = pace;
    pace = Math.sign(pace) * ceilDiv(Math.abs(pace), n);
    if (rest === 1) continue;
    if (room === 1) {
      note(`${n}:${d}: one step of ${Math.abs(here)} is the whole mode; on in steps of ${pace}`);
      continue;
    }
    const taken = Math.min(room, rest);
    if (rest % taken !== 0) {
      throw new LayoutError(`shape ${count} of ${count}:${step} does not fit the left mode ${n}:${d}: ` +
        `${taken} steps have room in it, and ${taken} does not divide the ${rest} that are left`);
    }
    note(`${n}:${d}: ${taken} steps of ${here}×${d} = ${here * d} fit; ${rest / taken} left`);
    found.push([taken, here * d]);
    rest /= taken;
  }
  if (rest === 1 && found.length) return found;
  const [n, d] = left.at(-1);
  note(`${n}:${d}, the last mode, takes the other ${rest}: steps of ${pace}×${d} = ${pace * d}`);
  found.push([rest, pace * d]);
  // CuTe merges here only, and only steps that do not fit
  return merged(found).length ? merged(found) : found;
}

// ------------------------------------------------------------------------- complement and inverses

/** A layout of the offsets that this one leaves out: shifted by it, the layout covers `cotarget` offsets once. */
function complement(layout, cotarget, note = () => {}) {
  refuseSwizzle(layout, "complement");
  if (!(cotarget >= 1)) throw new LayoutError(`the cotarget is ${cotarget}: it is a number of offsets, at least 1`);
  return refuseEmpty(completed(layout, cotarget, note));
}

/** The complement, also where a mode of it is empty. A `cotarget` that is a list is cut mode by mode, as CuTe does. */
function completed(layout, cotarget, note) {
  const modes = pairsOf(filter(layout)).filter(([n, d]) => n !== 1 || d !== 0).sort((a, b) => a[1] - b[1]);
  const gaps = [];
  let reach = 1;
  for (const [n, d] of modes) {
    if (d < 0) throw new LayoutError(`mode ${n}:${d} has a negative stride: a complement needs strides above 0`);
    const copies = Math.floor(d / reach);
    note(`${n}:${d}: ${copies} ${copies === 1 ? "copy" : "copies"} of what is below it up to ${d}`);
    gaps.push([copies, reach]);
    reach = n * d;
  }
  let rest = reach;
  const parts = [cotarget].flat().map((n) => {
    const part = ceilDiv(n, rest);
    rest = ceilDiv(rest, n);
    return part;
  });
  note(`up to ${[cotarget].flat().join("×")}: ${product(parts)} in steps of ${reach}`);
  gaps.push([product(parts), reach]);
  return flat(merged(gaps));
}

/** Refuse a result with a mode of size 0, which overlapping modes lead to. */
function refuseEmpty(layout) {
  if (leavesOf(layout.shape).some((n) => n < 1)) throw overlap();
  return layout;
}

const overlap = () => new LayoutError("two modes overlap: the stride of one lies inside the reach of the other, and " +
  "nothing completes such a layout");

/** The layout R with A(R(k)) = k for as many k from 0 on as A's strides allow. */
function rightInverse(layout, note = () => {}) {
  refuseSwizzle(layout, "right_inverse");
  const found = [];
  let next = 1;
  for (const [n, d, before] of byStride(layout)) {
    if (d !== next) continue;
    note(`${n}:${d} goes on at ${next}; its index counts in steps of ${before}`);
    found.push([n, before]);
    next *= n;
  }
  return flat(merged(found));
}

/** The merged modes as [shape, stride, number of indices before], by growing stride. */
function byStride(layout) {
  let before = 1;
  const pairs = merged(pairsOf(layout)).map(([n, d]) => {
    const mode = [n, d, before];
    before *= n;
    return mode;
  });
  return pairs.filter(([, d]) => d !== 0).sort((a, b) => Math.abs(a[1]) - Math.abs(b[1]));
}

/** The layout R with R(A(i)) = i for every index i of an A that repeats no offset. */
function leftInverse(layout, note = () => {}) {
  refuseSwizzle(layout, "left_inverse");
  const found = [];
  let reach = 1;
  let step = 0;
  for (const [n, d, before] of byStride(layout)) {
    if (d < 0) throw new LayoutError(`mode ${n}:${d} cannot be inverted: its stride is negative`);
    if (d % reach !== 0) {
      throw new LayoutError(`mode ${n}:${d} cannot be inverted: its stride is no multiple of ${reach}`);
    }
    note(`${n}:${d}: offset ${d} is index ${before}`);
    found.push([d / reach, step]);
    [reach, step] = [d, before];
    found.size = n;
  }
  found.push([found.size ?? 1, step]);
  return flat(merged(found));
}

/** The layout of the indices that only the modes of stride 0 tell from index 0. */
function nullspace(layout) {
  if (!isTuple(layout.shape) && layout.stride === 0) {
    throw new LayoutError(`CuTe has no nullspace of a number: write (${layout.shape}):(0)`);
  }
  const steps = leavesOf(identity(layout.shape).stride);
  return flat(pairsOf(layout).flatMap(([n, d], i) => (d === 0 ? [[n, steps[i]]] : [])));
}

/** The layout R with A(R(k)) = B(R(k)) = k, from k = 0 on as far as that goes. */
function maxCommonLayout(layout, other, note = () => {}) {
  const inverse = rightInverse(other, note);
  const through = coalesce(composition(layout, inverse));
  note(`A, in the order of B's offsets, is ${writeLayout(through)}`);
  const [n, d] = pairsOf(through)[0];
  return d === 1 ? composition(inverse, lay(n, 1)) : lay(1, 0);
}
