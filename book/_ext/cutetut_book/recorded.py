"""Directives that show on a Markdown page what was recorded elsewhere.

`{recorded-widget}` takes a widget, with its state, out of a recorded notebook; `{recorded-report}` shows a script and
what the emulator reported of it. Neither can show anything that was not recorded.
"""

import html
import json
import re
from typing import Any

import nbformat
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData
from .offline import WIDGET_SCRIPTS
from .still import CLOSING, OPENING, WIDGET
from .vendor import ROOT

STATE = "application/vnd.jupyter.widget-state+json"
HAS_WIDGETS = "cutetut_recorded_widgets"  # a key of a page's metadata


def widget(notebook: Any, cell: str) -> tuple[str, dict[str, Any], str]:
    """Return the first widget that a cell shows: its model's id, all state that it needs, its picture (base64 PNG).

    `notebook` is one that nbformat has read, `cell` the id of a code cell. Raises BadData.
    """
    outputs = [output for one in notebook.cells if one.get("id") == cell for output in one.get("outputs", [])]
    data = next((output.data for output in outputs if WIDGET in output.get("data", {})), None)
    if data is None:
        raise BadData(f"no cell {cell!r} that shows a widget")
    if "image/png" not in data:
        raise BadData(f"the widget of cell {cell!r} has no picture: record the notebook again")
    recorded = notebook.metadata.get("widgets", {}).get(STATE, {})
    model = data[WIDGET]["model_id"]
    if model not in recorded.get("state", {}):
        raise BadData(f"the widget of cell {cell!r} has no state: record the notebook again")
    return model, {**recorded, "state": _needed(recorded["state"], model)}, "".join(data["image/png"].split())


def _needed(state: dict[str, Any], model: str) -> dict[str, Any]:
    """A model's state and that of the models it refers to."""
    found, waiting = {}, [model]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = state[name]
            waiting += re.findall(r"IPY_MODEL_(\w+)", json.dumps(state[name]))
    return found


def _script(kind: str, content: Any) -> str:
    text = json.dumps(content).replace("<", r"\u003c")  # no tag or comment can begin in the data
    return f'<script type="{kind}">{text}</script>'


class RecordedWidget(SphinxDirective):
    """A widget as a notebook recorded it. Argument: the notebook; options: its cell's id, what the picture shows."""

    required_arguments = 1
    option_spec = {"cell": directives.unchanged_required, "alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = ROOT / f"{self.arguments[0]}.ipynb"
        self.env.note_dependency(str(path))
        try:
            model, state, picture = widget(nbformat.read(path, as_version=4), self.options["cell"])
            alt = html.escape(self.options["alt"])
        except (BadData, KeyError, OSError, ValueError) as error:
            raise self.error(f"recorded-widget: {self.arguments[0]}: {error}") from error
        self.env.metadata[self.env.docname][HAS_WIDGETS] = True
        view = {"version_major": 2, "version_minor": 0, "model_id": model}
        still = f'{OPENING}<img alt="{alt}" src="data:image/png;base64,{picture}"/>{CLOSING}'
        shown = f'<div class="cutetut-recorded">{_script(STATE, state)}{_script(WIDGET, view)}{still}</div>'
        return [nodes.raw("", shown, format="html")]


def add_widget_scripts(app: Sphinx, pagename: str, *context: Any) -> None:
    """Load the widget manager on pages with recorded widgets; MyST-NB loads it on pages of notebooks."""
    if app.env.metadata[pagename].get(HAS_WIDGETS):
        for path, attributes in WIDGET_SCRIPTS.items():
            app.add_js_file(path, **attributes)  # type: ignore[arg-type]


def lines_named(report: str, script: str) -> list[int]:
    """Return the lines of a script that a report names, in order. Raises BadData when it names none."""
    named = {int(line) for line in re.findall(rf"\b{re.escape(script)}:(\d+)", report)}
    if not named:
        raise BadData(f"the report names no line of {script}")
    return sorted(named)


class RecordedReport(SphinxDirective):
    """A script beside what the emulator reported of it; the report is in a file of the same name that ends in .txt.

    Options: the text from which, and before which, the script is shown. The lines that the report names are marked; a
    report that names none is an error.
    """

    required_arguments = 1
    option_spec = {"from": directives.unchanged_required, "before": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = ROOT / self.arguments[0]
        try:
            source, report = (path.with_suffix(suffix).read_text(encoding="utf-8") for suffix in (".py", ".txt"))
            named = lines_named(report, path.name)
            start = source.index(self.options["from"]) if "from" in self.options else 0
            end = source.index(self.options["before"], start) if "before" in self.options else None
        except (BadData, OSError, ValueError) as error:
            raise self.error(f"recorded-report: {path.name}: {error}") from error
        for suffix in (".py", ".txt"):
            self.env.note_dependency(str(path.with_suffix(suffix)))
        first = source[:start].count("\n") + 1
        code = self._block(source[start:end].rstrip(), "python")
        marked = [line - first + 1 for line in named if line >= first]
        code["linenos"] = True
        code["highlight_args"] = {"linenostart": first, "hl_lines": marked}
        return [
            nodes.raw("", '<div class="cutetut-report">', format="html"),
            code,
            self._block(report.rstrip(), "text"),
            nodes.raw("", "</div>", format="html"),
        ]

    @staticmethod
    def _block(text: str, language: str) -> nodes.literal_block:
        return nodes.literal_block(text, text, language=language)


def setup(app: Sphinx) -> None:
    app.add_directive("recorded-widget", RecordedWidget)
    app.add_directive("recorded-report", RecordedReport)
    app.connect("html-page-context", add_widget_scripts)
