"""The directive `{folders}`: the folders of the emulator, as a picture and as a table of what is in each.

The picture is made from the docstring of `cutetut/emulator/__init__.py`, which names the folders in the order in which
they build on each other; the table has the first sentence of each folder's own docstring.
"""

import ast
import html
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from .generated import BadData, table, with_code
from .vendor import ROOT

EMULATOR = ROOT / "cutetut" / "emulator"
NAMED = re.compile(r"`(\w+(?:/|\.py))` \(([^()]+)\)")  # `folder/` (what it has)
WIDTH, HEIGHT, GAP = 440, 32, 8  # of the picture, of a box, and between boxes
FITS = 42  # letters in a box
AROUND = "CuTe DSL, torch, CUDA"


def docstring(folder: Path) -> str:
    """A package's docstring; raises BadData without one."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    if not text:
        raise BadData(f"{folder.name}/__init__.py has no docstring")
    return text


def stack(emulator: Path = EMULATOR) -> dict[str, str]:
    """Each folder and what it has in a few words, the ones that others build on first.

    Raises BadData for a folder that the emulator's docstring leaves out, a name in it that is none, too many words.
    """
    found = dict(NAMED.findall(" ".join(docstring(emulator).split())))
    folders = {f"{file.parent.name}/" for file in emulator.glob("*/__init__.py")}
    if missing := folders - set(found):
        raise BadData(f"the emulator's docstring does not say what is in {', '.join(sorted(missing))}")
    if strange := [name for name in found if not (emulator / name).exists()]:
        raise BadData(f"the emulator's docstring names {', '.join(strange)}, which does not exist")
    if long := [name for name, text in found.items() if len(text) > FITS]:
        raise BadData(f"the emulator's docstring says more of {', '.join(long)} than fits the picture")
    return found


def sentences(emulator: Path = EMULATOR) -> dict[str, str]:
    """The first sentence of each folder's docstring, in the same order."""
    folders = [name for name in stack(emulator) if name.endswith("/")]
    return {name: " ".join(docstring(emulator / name).split("\n\n")[0].split()) for name in folders}


def picture(found: dict[str, str]) -> str:
    """A stack of boxes, the first at the bottom, as an SVG that takes its colours from the page."""
    rows = [("", AROUND), *reversed(found.items())]
    boxes = []
    for row, (name, text) in enumerate(rows):
        y = 1 + row * (HEIGHT + GAP)
        outside = "" if name else ' class="outside"'
        boxes.append(f'<rect x="1" y="{y}" width="{WIDTH - 2}" height="{HEIGHT}" rx="5"{outside}/>')
        if name:
            boxes.append(f'<text x="12" y="{y + 21}" class="name">{html.escape(name)}</text>')
        boxes.append(f'<text x="{116 if name else 12}" y="{y + 21}">{html.escape(text)}</text>')
    height = len(rows) * (HEIGHT + GAP) - GAP + 2
    label = "The emulator's folders, each above those that it builds on: " + ", ".join(reversed(found))
    return (
        f'<svg class="cutetut-folders" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(label)}">'
        + "".join(boxes)
        + "</svg>"
    )


class Folders(SphinxDirective):
    """The picture and the table; a folder without a description is an error of the build."""

    def run(self) -> list[nodes.Node]:
        try:
            found, described = stack(EMULATOR), sentences(EMULATOR)
        except (OSError, SyntaxError, BadData) as error:
            raise self.error(f"folders: {error}") from error
        for folder in ["", *described]:
            self.env.note_dependency(str(EMULATOR / folder / "__init__.py"))
        body = [[nodes.literal("", name), with_code(text)] for name, text in described.items()]
        listed = table(["folder", "what is in it"], body, ["folders", "stacks"])
        return [nodes.raw("", picture(found), format="html"), listed]


def setup(app: Sphinx) -> None:
    app.add_directive("folders", Folders)
