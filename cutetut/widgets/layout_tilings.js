// Layouts cut into tiles and repeated as tiles: divides, products, thread-value layouts and recasts, as CuTe has them.
//
// layout_text.js and layout_algebra.js stand in front of this file: one module, no bundler.

// ------------------------------------------------------------------------------------------- divides

/** (tile, rest): the layout after a layout's coordinates, then one tile after the other. */
function logicalDivide(layout, tiler, note = () => {}) {
  if (layout.outer) return { ...logicalDivide(inside(layout), tiler, note), outer: layout.outer };
  if (tiler.tuple) return eachMode(layout, tiler, (mode, one) => logicalDivide(mode, one, note));
  if (tiler.outer) throw new LayoutError("the tiler is swizzled: only the layout that is divided may be");
  const rest = completed(tiler, leavesOf(coalesce(layout).shape), note);
  note(`the tiler ${writeLayout(tiler)} and its complement ${writeLayout(rest)} reach every index once`);
  return refuseEmpty(composition(layout, together([tiler, rest]), note));
}

/** Apply an operation mode by mode; the modes that the tuple has no tiler for stay as they are. */
function eachMode(layout, tiler, operation) {
  const done = byMode(layout, tiler, operation);
  return together([...done, ...modesOf(layout).slice(done.length)]);
}

/** Gather the tiles' parts of a divided (or multiplied) layout in one mode, and the rests in the other. */
function unzipped(layout, tiler) {
  if (!tiler.tuple) return layout;
  const [tiles, rests] = [[], []];
  modesOf(layout).forEach((mode, i) => {
    if (i >= tiler.tuple.length) return rests.push(mode);
    const pair = modesOf(unzipped(mode, tiler.tuple[i]));
    tiles.push(pair[0]);
    rests.push(pair[1]);
  });
  return together([together(tiles), together(rests)], layout.outer);
}

const zippedDivide = (layout, tiler, note) => unzipped(logicalDivide(layout, tiler, note), tiler);
const tiledDivide = (layout, tiler, note) => unpacked(zippedDivide(layout, tiler, note), false);
const flatDivide = (layout, tiler, note) => unpacked(zippedDivide(layout, tiler, note), true);

/** The rests (and with `both` the tiles too) as modes of their own. */
function unpacked(layout, both) {
  const [tile, rest] = modesOf(layout);
  const open = (mode) => (isTuple(mode.shape) ? modesOf(mode) : [mode]);
  return together([...(both ? open(tile) : [tile]), ...open(rest)], layout.outer);
}

// ------------------------------------------------------------------------------------------ products

/** (layout, its repetitions): the tiler's coordinates say where the copies go. */
function logicalProduct(layout, tiler, note = () => {}) {
  if (layout.outer && tiler.tuple) throw new LayoutError("a swizzled layout is repeated by a layout, not by a tuple");
  if (layout.outer) return { ...logicalProduct(inside(layout), tiler, note), outer: layout.outer };
  if (tiler.tuple) return eachMode(layout, tiler, (mode, one) => logicalProduct(mode, one, note));
  if (tiler.outer) throw new LayoutError("the tiler is swizzled: only the layout that is repeated may be");
  const places = completed(layout, sizeOf(layout.shape) * cosizeOf(tiler), note);
  note(`copies of ${writeLayout(layout)} have room at ${writeLayout(places)}`);
  return refuseEmpty(together([layout, composition(places, tiler, note)]));
}

// CuTe DSL takes no tuple here, so there is nothing to unzip
const zippedProduct = logicalProduct;
const tiledProduct = (layout, tiler, note) => unpacked(zippedProduct(layout, tiler, note), false);
const flatProduct = (layout, tiler, note) => unpacked(zippedProduct(layout, tiler, note), true);

/** Mode by mode, the layout's part inside and the tiler's part outside: copies stand next to each other. */
function blockedProduct(layout, tiler, note) {
  return pairwise(layout, tiler, (block, copies) => zipped(block, copies), note);
}

/** How many copies of an atom fill a shape, mode by mode; the first mode's neighbours come first. */
function copiesToFill(atom, shape) {
  const sizes = modesOf(atom).map((mode) => sizeOf(mode.shape));
  if (shape.length < sizes.length) {
    throw new LayoutError(`the shape has ${shape.length} modes, and the layout ${sizes.length}`);
  }
  return compact(shape.map((n, i) => ceilDiv(n, sizes[i] ?? 1)));
}

/** Copies of an atom next to each other, until they fill a shape. */
function tileToShape(atom, shape, note) {
  const copies = copiesToFill(atom, shape);
  note(`copies of A: ${writeLayout(copies)}`);
  return blockedProduct(atom, copies, note);
}

/** Mode by mode, the tiler's part inside and the layout's part outside: copies are interleaved. */
function rakedProduct(layout, tiler, note) {
  const found = pairwise(layout, tiler, (block, copies) => zipped(copies, block), note);
  return coalesce(found, modesOf(found).map(() => 1));
}

function pairwise(layout, tiler, zip, note) {
  if (layout.outer) return { ...pairwise(inside(layout), tiler, zip, note), outer: layout.outer };
  const rank = Math.max(modesOf(layout).length, modesOf(tiler).length);
  const [block, copies] = modesOf(logicalProduct(padded(layout, rank), padded(tiler, rank), note));
  return zip(block, copies);
}

/** A layout with modes 1:0 behind its own, up to `rank` of them. */
function padded(layout, rank) {
  const modes = modesOf(layout);
  const more = Array(rank - modes.length).fill(lay(1, 0));
  return more.length ? together([...modes, ...more], layout.outer) : layout;
}

/** Pairs of the modes of two layouts. */
function zipped(first, second) {
  if (!isTuple(first.shape)) return together([together([first, second])]);
  if (!isTuple(second.shape) || second.shape.length !== first.shape.length) {
    throw new LayoutError(`the modes of ${writeLayout(first)} and ${writeLayout(second)} do not pair up: give the ` +
      "layout and the tiler as many modes, both in parentheses, such as (4):(1) and (3):(1)");
  }
  const others = modesOf(second);
  return together(modesOf(first).map((mode, i) => together([mode, others[i]])));
}

// --------------------------------------------------------------------------- threads and element types

/** The tile's shape and the (thread, value) layout: which index of the tile a thread holds as which of its values. */
function makeLayoutTv(threads, values, note = () => {}) {
  const tile = rakedProduct(threads, values, note);
  note(`the tile maps its coordinates to thread + value × threads: ${writeLayout(tile)}`);
  const inverse = rightInverse(tile, note);
  const sizes = [sizeOf(threads.shape), sizeOf(values.shape)];
  return { tiler: modesOf(tile).map((mode) => sizeOf(mode.shape)), tv: composition(inverse, compact(sizes), note) };
}

/** The layout of the same bytes in elements of `wide` bits instead of `old` ones. */
function recast(layout, wide, old) {
  if (!(wide >= 1 && old >= 1)) throw new LayoutError("element types have at least 1 bit: write new bits, old bits");
  if (wide % old !== 0 && old % wide !== 0) {
    throw new LayoutError(`${wide} bits and ${old} bits: one must be a multiple of the other`);
  }
  if (wide === old) return layout;
  const found = wide > old ? upcast(layout, wide / old) : downcast(layout, old / wide);
  return { ...found, outer: recastSwizzle(layout.outer, wide, old) };
}

/** The same bits of the addresses, counted in elements of the other size. */
function recastSwizzle(outer, wide, old) {
  if (!outer) return null;
  const m = outer.m - Math.log2(wide / old);
  const offset = (outer.offset * old) / wide;
  if (!Number.isInteger(m) || m < 0 || !Number.isInteger(offset)) {
    throw new LayoutError(`the swizzle moves parts of an element of ${wide} bits: take narrower elements`);
  }
  return { ...outer, m, offset };
}

function upcast(layout, factor) {
  const walk = (n, d) => {
    if (isTuple(n)) return together(n.map((branch, i) => walk(branch, d[i])));
    if (d === 0) return lay(n, d);
    const step = Math.abs(d);
    const grouped = ceilDiv(factor, step);
    return lay(ceilDiv(n, grouped), Math.sign(d) * ceilDiv(step, factor));
  };
  return walk(layout.shape, layout.stride);
}

function downcast(layout, factor) {
  const walk = (n, d) => {
    if (isTuple(n)) return together(n.map((branch, i) => walk(branch, d[i])));
    return Math.abs(d) === 1 ? lay(n * factor, d) : lay(n, d * factor);
  };
  return walk(layout.shape, layout.stride);
}
