// Tell the AMD loader where this book keeps the widget modules, wherever the page lies in the tree.
// The widget manager looks for its icon font beside the address of its own two modules.
(() => {
  const here = new URL("vendor/", document.currentScript.src);
  const at = (name) => new URL(name, here).href;
  require.config({
    paths: {
      anywidget: at("anywidget"),
      "@jupyter-widgets/html-manager": at("embed-amd"),
      "@jupyter-widgets/html-manager/dist/libembed-amd": at("embed-amd"),
    },
  });
})();
