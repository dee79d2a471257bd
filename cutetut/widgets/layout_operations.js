// The operations that the layout viewer offers: what each takes and returns, its law with numbers, and the line of
// CuTe DSL that does the same. layout_text.js, layout_algebra.js and layout_tilings.js stand in front of this file.

/** How the second argument of an operation is read: its text becomes a layout, a tiler, a number, a tree or nothing. */
const READERS = {
  none: () => null,
  layout: readPlain,
  tiler: readTiler,
  number: (text) => wholeNumber(readTree(text), "a number, such as 24"),
  profile: (text) => (text.trim() ? readTree(text) : 1),
  coordinate: (text) => readTree(text, true),
  bits: readBits,
};

function wholeNumber(tree, wanted) {
  if (isTuple(tree)) throw new LayoutError(`${write(tree)} is a tuple: type ${wanted}`);
  return tree;
}

function readBits(text) {
  const bits = readTree(text.trim().startsWith("(") ? text : `(${text})`);
  if (bits.length !== 2 || bits.some(isTuple)) throw new LayoutError("type the new bits and the old bits, such as 32,16");
  return bits;
}

const OPERATIONS = {
  composition: { other: "tiler", run: composition },
  coalesce: { other: "profile", run: coalesce },
  filter: { other: "none", run: filter },
  complement: { other: "number", run: complement },
  logical_divide: { other: "tiler", run: logicalDivide },
  zipped_divide: { other: "tiler", run: zippedDivide },
  tiled_divide: { other: "tiler", run: tiledDivide },
  flat_divide: { other: "tiler", run: flatDivide },
  logical_product: { other: "tiler", run: logicalProduct },
  zipped_product: { other: "layout", run: zippedProduct },
  tiled_product: { other: "layout", run: tiledProduct },
  flat_product: { other: "layout", run: flatProduct },
  blocked_product: { other: "layout", run: blockedProduct },
  raked_product: { other: "layout", run: rakedProduct },
  right_inverse: { other: "none", run: (layout, _, note) => rightInverse(layout, note) },
  left_inverse: { other: "none", run: (layout, _, note) => leftInverse(layout, note) },
  slice_: { other: "coordinate", run: slice },
  append: { other: "layout", run: appended },
  prepend: { other: "layout", run: prepended },
  make_layout_tv: { other: "layout", run: makeLayoutTv },
  recast_layout: { other: "bits", run: (layout, [wide, old]) => recast(layout, wide, old) },
};

/** The result of an operation on texts, and a note on each of its steps. Throws a LayoutError where it has none. */
function compute(name, text, otherText) {
  const operation = OPERATIONS[name];
  const layout = readPlain(text);
  const other = READERS[operation.other](otherText);
  const steps = [];
  const result = operation.run(layout, other, (step) => steps.push(step));
  return { layout, other, steps, result: result.tv ?? result, tiler: result.tiler ?? null };
}
