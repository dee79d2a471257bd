// The operations that the layout viewer offers: what each takes and returns, and the line of CuTe DSL that does the
// same. layout_text.js, layout_algebra.js and layout_tilings.js stand in front of this file.

/** How the second argument of an operation is read: its text becomes a layout, a tiler, a number, a tree or nothing. */
const READERS = {
  none: () => null,
  layout: readPlain,
  tiler: readTiler,
  number: (text) => wholeNumber(readTree(text), "a number, such as 24"),
  profile: (text) => (text.trim() ? readTree(text) : 1),
  coordinate: (text) => readTree(text, "a coordinate, such as (1,_)", true),
  bits: (text) => readNumbers(text, 2, "the new bits and the old bits, such as 32,16"),
  modes: (text) => readNumbers(text, null, "the numbers of modes, such as 1,0"),
  order: (text) => readTree(text, "the order of the modes, such as (1,0)"),
  nesting: (text) => readTree(text, "a profile, such as ((0,0),0)"),
  shape: (text) => readNumbers(text, null, "the shape to fill, such as 16,64"),
  range: (text) => readNumbers(text, 2, "the first mode and the one behind the last, such as 0,2"),
};

function wholeNumber(tree, wanted) {
  if (isTuple(tree)) throw new LayoutError(`${write(tree)} is a tuple: type ${wanted}`);
  return tree;
}

/** Numbers with commas between them, in parentheses or not; as many as `count` says, if it does. */
function readNumbers(text, count, wanted) {
  const numbers = text.trim() ? readTree(text.trim().startsWith("(") ? text : `(${text})`) : [];
  if (numbers.length && numbers.length === (count ?? numbers.length) && !numbers.some(isTuple)) return numbers;
  throw new LayoutError(`type ${wanted}`);
}

/**
 * `other`: the kind of the second argument; `hint`: what it is; `start`: one to begin with, for a layout; `plain`: CuTe
 * has the operation of layouts without a swizzle only.
 */
const OPERATIONS = {
  composition: { other: "tiler", hint: "B, or a tuple of tilers", start: () => "4:2", run: composition },
  coalesce: { other: "profile", hint: "profile, such as (1,1), or nothing", start: () => "", run: coalesce },
  flatten: { other: "none", run: flatten },
  unflatten: { other: "nesting", hint: "profile, such as ((0,0),0)", start: nestingFor, run: unflatten,
    plain: true },
  filter: { other: "none", run: filter },
  filter_zeros: { other: "none", run: filterZeros, plain: true },
  complement: { other: "number", hint: "number of offsets", start: (a) => String(2 * cosizeOf(a)), run: complement },
  logical_divide: { other: "tiler", hint: "tile: B, or a tuple of tilers", start: tileFor, run: logicalDivide },
  zipped_divide: { other: "tiler", hint: "tile: B, or a tuple of tilers", start: tileFor, run: zippedDivide },
  tiled_divide: { other: "tiler", hint: "tile: B, or a tuple of tilers", start: tileFor, run: tiledDivide },
  flat_divide: { other: "tiler", hint: "tile: B, or a tuple of tilers", start: tileFor, run: flatDivide },
  logical_product: { other: "tiler", hint: "copies: B", start: () => "2:1", run: logicalProduct },
  zipped_product: { other: "layout", hint: "copies: B", start: () => "2:1", run: zippedProduct },
  tiled_product: { other: "layout", hint: "copies: B", start: () => "2:1", run: tiledProduct },
  flat_product: { other: "layout", hint: "copies: B", start: () => "2:1", run: flatProduct },
  blocked_product: { other: "layout", hint: "copies: B", start: copiesFor, run: blockedProduct },
  raked_product: { other: "layout", hint: "copies: B", start: copiesFor, run: rakedProduct },
  tile_to_shape: { other: "shape", hint: "shape to fill, such as 16,64", start: doubled, run: tileToShape },
  right_inverse: { other: "none", run: (layout, _, note) => rightInverse(layout, note) },
  left_inverse: { other: "none", run: (layout, _, note) => leftInverse(layout, note) },
  nullspace: { other: "none", run: nullspace, plain: true },
  max_common_layout: { other: "layout", hint: "B, the other layout", start: roomy, run: maxCommonLayout,
    plain: true },
  slice_: { other: "coordinate", hint: "coordinate with _ where it is free", start: cutFor, run: slice },
  dice: { other: "coordinate", hint: "coordinate with _ for a mode to drop", start: cutFor, run: dice },
  select: { other: "modes", hint: "numbers of modes, in the order wanted", start: modesFor, run: selected },
  group_modes: { other: "range", hint: "first mode, and the one behind the last", start: rangeFor, run: grouped },
  append: { other: "layout", hint: "B, the new last mode", start: () => "2:1", run: appended },
  prepend: { other: "layout", hint: "B, the new first mode", start: () => "2:1", run: prepended },
  make_ordered_layout: { other: "order", hint: "order of the modes, the lowest fastest", start: orderFor,
    run: ({ shape }, order) => ordered(shape, order) },
  make_layout_like: { other: "none", run: layoutLike, plain: true },
  make_layout_tv: { other: "layout", hint: "layout of the values; A is that of the threads", start: copiesFor,
    run: makeLayoutTv },
  recast_layout: { other: "bits", hint: "new bits, old bits", start: () => "16,32",
    run: (layout, [wide, old]) => recast(layout, wide, old) },
};

/** A tile of two elements a mode where they divide it. */
function tileFor(layout) {
  const sizes = modesOf(layout).map(({ shape }) => sizeOf(shape));
  return isTuple(layout.shape) ? `(${sizes.map((n) => (n % 2 ? n : 2)).join(",")})` : "2:1";
}

/** Two copies along each mode. */
function copiesFor(layout) {
  const sizes = modesOf(layout).map(() => 2);
  return writeLayout(compact(isTuple(layout.shape) ? sizes : 2));
}

/** The shape of two copies along each mode. */
function doubled(layout) {
  return modesOf(layout).map(({ shape }) => 2 * sizeOf(shape)).join(",");
}

/** The first mode fixed, the others free. */
function cutFor(layout) {
  return isTuple(layout.shape) ? `(${layout.shape.map((_, i) => (i ? "_" : "0")).join(",")})` : "_";
}

/** All modes, the last one first. */
function modesFor(layout) {
  return modesOf(layout).map((_, i) => i).reverse().join(",");
}

/** The last mode fastest. */
function orderFor(layout) {
  return isTuple(layout.shape) ? `(${modesFor(layout)})` : "0";
}

/** The first two of the innermost modes as one. */
function nestingFor(layout) {
  const zeros = leavesOf(layout.shape).map(() => 0);
  return write([zeros.slice(0, 2), ...zeros.slice(2)]);
}

/** The same layout with strides above 1 doubled: its rows or columns have room between them. */
function roomy({ shape, stride }) {
  const walk = (d) => (isTuple(d) ? d.map(walk) : d > 1 ? 2 * d : d);
  return writeLayout({ shape, stride: walk(stride) });
}

/** The first two modes, if there are two. */
function rangeFor(layout) {
  return `0,${Math.min(2, modesOf(layout).length)}`;
}

// ------------------------------------------------------------------------------------ the line of CuTe DSL

const python = (tree) => (isTuple(tree) ? `(${tree.map(python).join(", ")}${tree.length === 1 ? "," : ""})`
  : tree === null ? "None" : String(tree));

/** The expression that makes a layout in CuTe DSL. */
function dslLayout({ shape, stride, outer }) {
  const plain = `cute.make_layout(${python(shape)}, stride=${python(stride)})`;
  if (!outer) return plain;
  return `cute.make_composed_layout(cute.make_swizzle(${outer.b}, ${outer.m}, ${outer.s}), ${outer.offset}, ${plain})`;
}

function dslTiler(tiler) {
  if (tiler.tuple) return `(${tiler.tuple.map(dslTiler).join(", ")}${tiler.tuple.length === 1 ? "," : ""})`;
  return tiler.plain ? String(tiler.shape) : dslLayout(tiler);
}

/** The call that does the operation in CuTe DSL. */
function dslCall(name, layout, other) {
  const first = dslLayout(layout);
  const { other: kind } = OPERATIONS[name];
  if (name === "recast_layout") return `cute.recast_layout(${other[0]}, ${other[1]}, ${first})`;
  if (kind === "profile") return `cute.coalesce(${first}${isTuple(other) ? `, target_profile=${python(other)}` : ""})`;
  if (kind === "modes") return `cute.select(${first}, mode=[${other.join(", ")}])`;
  if (kind === "shape") {
    return `cute.tile_to_shape(${first}, ${python(other)}, order=${python(other.map((_, i) => i))})`;
  }
  if (kind === "order") return `cute.make_ordered_layout(${python(layout.shape)}, order=${python(other)})`;
  if (kind === "nesting") {
    const nested = (tree) => `cute.unflatten(${python(leavesOf(tree))}, ${python(other)})`;
    return `cute.make_layout(${nested(layout.shape)}, stride=${nested(layout.stride)})`;
  }
  if (kind === "range") return `cute.group_modes(${first}, ${other.join(", ")})`;
  const second = { none: () => "", layout: dslLayout, tiler: dslTiler }[kind] ?? python;
  const more = second(other);
  return `cute.${name}(${first}${more ? `, ${more}` : ""})`;
}

/** The result of an operation on texts, and a note on each of its steps. Throws a LayoutError where it has none. */
function compute(name, text, otherText) {
  const operation = OPERATIONS[name];
  const layout = readPlain(text);
  if (operation.plain && layout.outer) throw new LayoutError(`CuTe has no ${name} of a swizzled layout`);
  const other = READERS[operation.other](otherText);
  const steps = [];
  const result = operation.run(layout, other, (step) => steps.push(step));
  return { layout, other, steps, result: result.tv ?? result, tiler: result.tiler ?? null };
}
