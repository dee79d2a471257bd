// Lines that go and lines that come, in a generated diff and in what "Break it" changes, get a colour behind their sign.
addEventListener("DOMContentLoaded", () => {
  for (const output of document.querySelectorAll(".cell_output pre")) {
    const text = output.textContent;
    if (!/^\d+ lines go, \d+ come/m.test(text) && !output.closest(".tag_break-it")) continue;
    if (!/^[-+] /m.test(text)) continue;
    output.replaceChildren(...text.split(/(?<=\n)/).map((line) => {
      const kind = { "- ": "goes", "+ ": "comes" }[line.slice(0, 2)];
      if (!kind) return line;
      const span = document.createElement("span");
      span.className = `cutetut-${kind}`;
      span.textContent = line;
      return span;
    }));
  }
});
