// The lines of a cell's output. Lines that go and lines that come, in a generated diff and in what "Break it" changes, get
// a colour behind their sign. A sentence, such as an error's, wraps; a row of a table, with two gaps or more, does not.
const SIGNS = { "- ": "cutetut-goes", "+ ": "cutetut-comes" };
const LONG = 40; // characters that fit on a phone

addEventListener("DOMContentLoaded", () => {
  for (const output of document.querySelectorAll(".cell_output pre")) {
    if (output.querySelector("span:not(:empty)")) continue; // it has colours of its own
    const text = output.textContent;
    const signed = /^[-+] /m.test(text) && (/^\d+ lines go, \d+ come/m.test(text) || output.closest(".tag_break-it"));
    output.replaceChildren(...text.split(/(?<=\n)/).map((line) => marked(line, (signed && SIGNS[line.slice(0, 2)]) || prose(line))));
  }
});

function prose(line) {
  const gaps = line.trim().match(/ {2,}/g) ?? [];
  return line.length > LONG && gaps.length < 2 && "cutetut-prose";
}

function marked(line, kind) {
  if (!kind) return line;
  const span = document.createElement("span");
  span.className = kind;
  span.style.setProperty("--indent", `${line.search(/\S/) + 2}ch`);
  span.textContent = line;
  return span;
}
