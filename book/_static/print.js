// Paper is light, and nobody can unfold anything on it: print in the light theme with everything open, then go back.
(() => {
  const root = document.documentElement;
  let opened = [];
  let theme = null;
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    root.dataset.theme = theme;
    opened = [];
  });
})();
