// Undo and redo of the layout viewer, and the links that carry its view.
//
// This file has no exports. Python puts it in front of the viewer's own file; together they are one module.

// milliseconds after which typing in the same box is another step
const PAUSE = 1200;
// steps that can be undone
const KEPT = 100;

/** A button with a word on it. */
const wideButton = (name, text, onclick) => make("button", { type: "button", class: `tp-wide ${name}`, onclick }, text);

/** The views that were shown, one after the other. A view is what the model's `names` held. */
class History {
  constructor(model, names, changed) {
    Object.assign(this, { model, names, changed, views: [], at: -1, moving: false, when: 0 });
    this.back = wideButton("tp-undo", "undo", () => this.move(-1));
    this.forth = wideButton("tp-redo", "redo", () => this.move(1));
  }

  /** Take the present view as one more step, or as more typing in the last one. */
  note(typed) {
    const view = Object.fromEntries(this.names.map((name) => [name, this.model.get(name)]));
    const last = this.views[this.at];
    const changed = !last || this.names.some((name) => last.view[name] !== view[name]);
    if (changed && !this.moving) {
      const more = typed !== null && last?.typed === typed && Date.now() - this.when < PAUSE;
      this.views.splice(more ? this.at : this.at + 1, Infinity, { view, typed });
      this.views = this.views.slice(-KEPT);
      this.at = this.views.length - 1;
      this.when = Date.now();
    }
    this.moving = false;
    this.back.disabled = this.at <= 0;
    this.forth.disabled = this.at >= this.views.length - 1;
  }

  move(by) {
    const to = this.at + by;
    if (to < 0 || to >= this.views.length) return;
    this.at = to;
    this.moving = true;
    this.when = 0;
    this.changed(this.views[to].view);
  }
}

/** A text in the fragment of an address; parentheses and colons stay as they are, so that a reader can read it. */
const inLink = (text) => encodeURI(text).replaceAll("%20", "+").replaceAll("#", "%23").replaceAll("&", "%26");

/** The fragment that names a view. */
function fragmentOf(name, { text, operation, other, index }) {
  const call = operation ? `&op=${operation}${other ? `&with=${inLink(other)}` : ""}` : "";
  return `#${name}=${inLink(text)}${call}&at=${index}`;
}

/** The view that an address's fragment names for this viewer, or null. */
function viewIn(fragment, name) {
  const wanted = new URLSearchParams(fragment.slice(1));
  const text = wanted.get(name);
  if (text === null) return null;
  const operation = wanted.get("op") ?? "";
  const index = Number(wanted.get("at") ?? 0);
  return { text, operation: operation in OPERATIONS ? operation : "", other: wanted.get("with") ?? "",
    index: Number.isInteger(index) && index >= 0 ? index : 0 };
}

/** The call in Python that shows the view. */
function callOf({ text, operation, other, index }) {
  const more = operation ? `, operation="${operation}"${other ? `, other="${other}"` : ""}` : "";
  return `LayoutViewer("${text}"${more}${index ? `, index=${index}` : ""})`;
}

/** Whether the page has an address worth sharing: not inside JupyterLab or an editor. */
function hasAddress() {
  return /^(https?|file):$/.test(location.protocol) && !document.querySelector(".jp-Notebook");
}

/** Put text on the clipboard; returns whether the browser let us. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
