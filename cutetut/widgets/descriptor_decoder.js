// The descriptor decoder: the 64 bits that say where WGMMA finds an operand in shared memory, field by field.
//
// Traits of the model: `value` (hexadecimal text) and `major` ("K" or "MN"), both ways; `title`, `_fields` (name,
// lowest bit, width, bytes that 1 stands for), `_roles` (what LBO and SBO are, by major and swizzle) and `_swizzles`
// are data that Python sends once. Python puts common.js in front of this file: one module, no bundler.

const BITS = 64;
const DIGITS = BITS / 4;
const SHORT = { "leading byte offset": " (LBO)", "stride byte offset": " (SBO)" };

// --------------------------------------------------------------------------------------------- data

class DescriptorError extends Error {}

/** Read hexadecimal text; throws a DescriptorError that says what to change, as descriptor_decoder.py does. */
function readBits(text) {
  const digits = text.trim().replace(/^0x/i, "").replaceAll("_", "");
  if (!digits) throw new DescriptorError("type a hexadecimal value, such as 0x4000004000010000");
  const wrong = [...digits].find((digit) => !/[0-9a-f]/i.test(digit));
  if (wrong) throw new DescriptorError(`"${wrong}" is no hexadecimal digit: those are 0 to 9 and a to f`);
  if (digits.length > DIGITS) {
    throw new DescriptorError(`${digits.length} digits: a descriptor has ${BITS} bits, ${DIGITS} digits at most`);
  }
  return BigInt(`0x${digits}`);
}

const hex = (value, digits) => `0x${value.toString(16).padStart(digits, "0")}`;

/** The raw value of a field. */
const rawOf = (bits, [, low, width]) => Number((bits >> BigInt(low)) & ((1n << BigInt(width)) - 1n));

/** The bits with another raw value in a field. */
function withRaw(bits, [, low, width], raw) {
  const mask = ((1n << BigInt(width)) - 1n) << BigInt(low);
  return (bits & ~mask) | (BigInt(raw) << BigInt(low));
}

/** What a field may hold, in its own unit; null if `value` is all right. */
function wrongField([name, , width, unit], value) {
  const [step, most] = [unit || 1, (2 ** width - 1) * (unit || 1)];
  if (Number.isInteger(value) && value >= 0 && value <= most && value % step === 0) return null;
  return `${name}: ${unit ? `a multiple of ${step}` : "a whole number"} from 0 to ${most}`;
}

/** Set bits that belong to no field, the lowest first. */
function strayBits(bits, fields) {
  const owned = (bit) => fields.some(([, low, width]) => bit >= low && bit < low + width);
  return Array.from({ length: BITS }, (_, bit) => bit).filter((bit) => (bits >> BigInt(bit)) & 1n && !owned(bit));
}

// --------------------------------------------------------------------------------------------- view

class Decoder {
  constructor(model) {
    Object.assign(this, { model, id: newId(), fields: model.get("_fields"), roles: model.get("_roles") });
    this.swizzles = model.get("_swizzles");
    this.build();
  }

  // ---- the page

  build() {
    this.box = make("input", { type: "text", id: `${this.id}-value`, class: "tp-text", spellcheck: "false",
      autocomplete: "off", autocapitalize: "off", "aria-describedby": `${this.id}-message`,
      oninput: () => this.type() });
    this.message = make("p", { class: "tp-message", id: `${this.id}-message`, role: "status" });
    this.majors = tabs(`${this.id}-major`, "operand", ["K-major", "MN-major"],
      (name) => assign(this.model, { major: name.split("-")[0] }));
    this.grid = make("div", { class: "tp-bitgrid", role: "img" });
    this.rows = this.fields.map((field, i) => this.row(field, i));
    this.root = frame("descriptor decoder", this.model.get("title"),
      make("div", { class: "tp-controls" }, make("label", { for: this.box.id }, "descriptor"), this.box), this.message,
      this.majors.root, this.grid, make("div", { class: "tp-rows" }, ...this.rows.map(({ root }) => root)));
  }

  /** One field: its name and bits, its value, which can be changed, and what it stands for. */
  row(field, i) {
    const [name, low, width, unit] = field;
    const id = `${this.id}-field${i}`;
    const attributes = { id, "aria-describedby": `${id}-means` };
    const input = name === "swizzle" ? this.swizzleChoice(attributes) : make("input", { ...attributes, type: "number",
      min: 0, step: unit || 1, max: (2 ** width - 1) * (unit || 1), inputmode: "numeric" });
    const changed = input.tagName === "SELECT" ? "change" : "input";
    input.addEventListener(changed, () => this.edit(field, input.value === "" ? NaN : Number(input.value)));
    const raw = make("span", { class: "tp-raw" });
    const means = make("span", { class: "tp-means", id: `${id}-means` });
    const root = make("div", { class: "tp-row", "data-field": i, onpointerenter: () => this.point(i),
      onpointerleave: () => this.point(null) },
      make("label", { for: id }, make("span", { class: `tp-key tp-field${i}` }), name + (SHORT[name] ?? ""),
        make("small", {}, ` bits ${low + width - 1}-${low}`)),
      make("span", { class: "tp-amount" }, input, unit ? " bytes" : ""), raw, means);
    return { root, input, raw, means };
  }

  swizzleChoice(attributes) {
    return make("select", attributes, ...Object.entries(this.swizzles)
      .map(([code, bytes]) => make("option", { value: code }, Number(code) ? `${code}: ${bytes} bytes` : `${code}: none`)));
  }

  // ---- the selection

  /** Take the value that the reader typed, or say what is wrong with it. */
  type() {
    this.refuse(null);
    try {
      assign(this.model, { value: hex(readBits(this.box.value), DIGITS) });
    } catch (error) {
      if (!(error instanceof DescriptorError)) throw error;
      this.refuse(error.message, this.box);
    }
  }

  /** Take a field that the reader changed, in its own unit. */
  edit(field, value) {
    const wrong = wrongField(field, value);
    const { input } = this.rows[this.fields.indexOf(field)];
    this.refuse(wrong, input);
    if (!wrong) assign(this.model, { value: hex(withRaw(this.bits, field, value / (field[3] || 1)), DIGITS) });
  }

  refuse(wrong, input = null) {
    for (const box of [this.box, ...this.rows.map((row) => row.input)]) {
      box.setAttribute("aria-invalid", String(Boolean(wrong) && box === input));
    }
    this.refused = wrong;
    this.say();
  }

  say() {
    const stray = strayBits(this.bits, this.fields);
    this.message.classList.toggle("is-wrong", Boolean(this.refused || stray.length));
    this.message.textContent = this.refused ?? (stray.length
      ? `${stray.length > 1 ? "bits" : "bit"} ${stray.join(", ")} ${stray.length > 1 ? "are" : "is"} set, but part of no field`
      : this.describe());
  }

  describe() {
    const code = rawOf(this.bits, this.fields.at(-1));
    const kind = code ? `${this.swizzles[code]}-byte swizzle` : "no swizzle";
    const [lbo, sbo] = this.roles[this.major][code];
    return `${this.major}-major, ${kind}. LBO: ${lbo}. SBO: ${sbo}.`;
  }

  // ---- the screen

  /** Bring the model's value to the screen; a box in which the reader types stays as it is. */
  show() {
    this.due = false;
    this.bits = BigInt(this.model.get("value"));
    this.major = this.model.get("major");
    this.refuse(null);
    this.majors.show(`${this.major}-major`);
    if (document.activeElement !== this.box) this.box.value = hex(this.bits, DIGITS);
    this.showBits();
    const code = rawOf(this.bits, this.fields.at(-1));
    const [lbo, sbo] = this.roles[this.major][code];
    const pattern = 8 * this.swizzles[code];
    const means = { "start address": "where the operand begins in shared memory", "leading byte offset": lbo,
      "stride byte offset": sbo, swizzle: code ? `${this.swizzles[code]} bytes in a row of the pattern` : "no swizzle",
      "base offset": code ? `0 where the swizzle's pattern begins at a multiple of ${pattern} bytes` : "not used" };
    this.fields.forEach((field, i) => {
      const [{ input, raw, means: text, root }, value] = [this.rows[i], rawOf(this.bits, field)];
      if (document.activeElement !== input) input.value = value * (field[3] || 1);
      raw.textContent = hex(value, Math.ceil(field[2] / 4));
      text.textContent = means[field[0]];
      root.classList.toggle("is-unused", means[field[0]] === "not used");
    });
  }

  showBits() {
    const cells = Array.from({ length: BITS }, (_, i) => BITS - 1 - i).map((bit) => {
      const owner = this.fields.findIndex(([, low, width]) => bit >= low && bit < low + width);
      const edges = owner >= 0 && bit === this.fields[owner][1] + this.fields[owner][2] - 1 ? " tp-first" : "";
      return make("span", { class: owner < 0 ? "tp-bit tp-stray" : `tp-bit tp-field${owner}${edges}`,
        "data-field": owner, onpointerenter: () => this.point(owner), onpointerleave: () => this.point(null) },
        make("small", {}, bit % 8 === 0 || edges ? String(bit) : ""), String((this.bits >> BigInt(bit)) & 1n));
    });
    this.grid.replaceChildren(...cells);
    this.grid.setAttribute("aria-label", `bits 63 to 0: ${this.bits.toString(2).padStart(BITS, "0")}`);
  }

  /** Mark a field in the bits and in the list. */
  point(field) {
    for (const node of this.root.querySelectorAll("[data-field]")) {
      node.classList.toggle("is-hovered", field !== null && field >= 0 && node.dataset.field === String(field));
    }
  }

  /** Follow the model; returns how to stop. */
  listen() {
    this.box.addEventListener("blur", () => this.refused || (this.box.value = hex(this.bits, DIGITS)));
    const changed = () => {
      if (!this.due) queueMicrotask(() => this.show()); // one redraw for both traits
      this.due = true;
    };
    return watchModel(this.model, ["value", "major"], changed);
  }
}

function render({ model, el }) {
  const decoder = new Decoder(model);
  el.append(decoder.root);
  decoder.show();
  return decoder.listen();
}

export { readBits, rawOf, withRaw, wrongField, strayBits };
export default { render };
