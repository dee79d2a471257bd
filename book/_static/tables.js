// On a phone a wide table of sentences is stacked (cutetut.css); each cell then needs its column's name beside it.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.stacks")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, column) => {
        if (column > 0 && cell.textContent.trim()) cell.dataset.label = names[column] ?? "";
      });
    }
  }
});
