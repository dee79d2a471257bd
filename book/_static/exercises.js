// The page of exercises: a box to tick in each row. What is ticked stays in this browser, under one key.
addEventListener("DOMContentLoaded", () => {
  const KEY = "cutetut.exercises";
  const rows = [...document.querySelectorAll("table.exercises tbody tr[id]")];
  const count = document.createElement("p");
  count.className = "cutetut-ticked";
  count.setAttribute("role", "status");
  document.querySelector(".cutetut-exercises")?.after(count);
  let kept = true;

  function read() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      return new Set(Array.isArray(found) ? found : []);
    } catch {
      kept = localStorageWorks();
      return new Set();
    }
  }

  function localStorageWorks() {
    try {
      localStorage.getItem(KEY);
      return true;
    } catch {
      return false;
    }
  }

  // what other tabs have ticked meanwhile stays: only this row is changed
  function change(id, done) {
    const ticked = read();
    if (done) ticked.add(id);
    else ticked.delete(id);
    try {
      localStorage.setItem(KEY, JSON.stringify([...ticked].sort()));
    } catch {
      kept = false;
    }
  }

  function show() {
    const done = rows.filter((row) => row.querySelector("input").checked).length;
    const where = kept ? "The ticks stay in this browser." : "This browser keeps no ticks: they go with this page.";
    count.textContent = `${done} of ${rows.length} ticked. ${where}`;
  }

  for (const row of rows) {
    const box = document.createElement("input");
    box.type = "checkbox";
    const name = row.cells[0].textContent.trim();
    box.setAttribute("aria-label", `done: ${name}`);
    const label = document.createElement("label");
    label.className = "cutetut-tick";
    label.append(box);
    (row.cells[0].querySelector("p") ?? row.cells[0]).prepend(label);
    box.addEventListener("change", () => {
      change(row.id, box.checked);
      show();
    });
  }

  function tick() {
    const ticked = read();
    for (const row of rows) row.querySelector("input").checked = ticked.has(row.id);
    show();
  }

  tick();
  addEventListener("storage", (event) => {
    if (event.key === KEY || event.key === null) tick();
  });
});
