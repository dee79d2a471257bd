"""The directives of the first page show what was measured and recorded, and refuse what was not."""

from __future__ import annotations

import json
import re
import struct
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from cutetut_book import card, ladder, recorded
from cutetut_book.generated import BadData
from cutetut_book.still import WIDGET

from cutetut.measure import tables
from tests.book.building import ROOT, built, notebooks, toc_files

DESCRIPTION = yaml.safe_load((ROOT / "book" / "intro.md").read_text().split("---")[1])["og:description"]
STEPS = [
    ladder.Step("04_scalar_fma_gemm", "scalar FMA", 10.0, 700.0),
    ladder.Step("13_warp_specialized", "warp <specialized>", 707.0, 700.0),
]


@pytest.fixture(scope="module")
def book() -> Path:
    return built()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def metadata(text: str) -> dict[str, str]:
    """Return what a page's <meta> elements say, by their name or property."""
    found = {}
    for element in re.findall("<meta [^>]*>", text):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', element))
        found[attributes.get("property") or attributes.get("name", "")] = unescape(attributes.get("content", ""))
    return found


# --- the ladder


def test_bars_are_as_long_as_the_speeds() -> None:
    html = ladder.bars(STEPS, {"04_scalar_fma_gemm": "a.html", "13_warp_specialized": "b.html"})
    widths, marks = (
        [float(found) for found in re.findall(rf"{name}: ([\d.]+)%", html)] for name in ("width", "left")
    )
    assert widths[0] / widths[1] == pytest.approx(10 / 707, abs=1e-3)
    assert marks[0] == marks[1] and marks[1] / widths[1] == pytest.approx(700 / 707, abs=1e-3)
    assert max(widths + marks) <= 100
    assert "<specialized>" not in html and unescape(html).count("warp <specialized>") == 1
    assert [step.share for step in STEPS] == ["1.4 %", "101 %"]


def test_the_first_page_has_the_measured_ladder(book: Path) -> None:
    """Each bar of the page is the row of `book/data` that the README's table takes."""
    html = text_of(book / "book" / "intro.html")
    shown = re.findall(r'<span class="number">(\d\d)</span>.*?class="speed">([\d.]+)<', html)
    readme = re.findall(r"^\| (\d\d) [^|]*\|[^|]*\|[^|]*\| [\d.]+ \(([\d.]+) /", text_of(ROOT / "README.md"), re.M)
    assert shown and shown == readme


def test_a_ladder_without_a_measurement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "rung_row", lambda *of: None)
    with pytest.raises(BadData, match="no chapter was measured at 4096"):
        ladder.steps()


# --- the widget


def notebook(view: dict[str, Any] | None = None, state: dict[str, Any] | None = None, **data: Any) -> Any:
    """A notebook with one cell `picker` that shows a widget."""
    found = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("show", id="picker")
    shown = {WIDGET: {"model_id": "m"} if view is None else view, "image/png": "AA\nAA", **data}
    cell.outputs = [nbformat.v4.new_output("display_data", data={k: v for k, v in shown.items() if v is not None})]
    found.cells.append(cell)
    found.metadata["widgets"] = {recorded.STATE: {"version_major": 2, "state": state or {}}}
    return found


def test_a_recorded_widget_brings_what_it_refers_to_and_no_more() -> None:
    state = {
        "m": {"state": {"layout": "IPY_MODEL_l"}},
        "l": {"state": {}},
        "other": {"state": {"layout": "IPY_MODEL_l"}},
    }
    model, found, picture = recorded.widget(notebook(state=state), "picker")
    assert model == "m" and picture == "AAAA"
    assert found == {"version_major": 2, "state": {"m": state["m"], "l": state["l"]}}


@pytest.mark.parametrize(
    ("made", "cell", "reason"),
    [
        (notebook(), "gone", "no cell 'gone' that shows a widget"),
        (notebook(state={"x": {}}), "picker", "has no state"),
        (notebook(state={"m": {}}, **{"image/png": None}), "picker", "has no picture"),
    ],
)
def test_a_widget_that_was_not_recorded_is_an_error(made: Any, cell: str, reason: str) -> None:
    with pytest.raises(BadData, match=reason):
        recorded.widget(made, cell)


def test_the_first_page_has_the_picker_of_chapter_05(book: Path) -> None:
    html = text_of(book / "book" / "intro.html")
    scripts = dict(re.findall(r'<script type="(application/vnd.jupyter[^"]*)">(.*?)</script>', html, re.DOTALL))
    chapter = nbformat.read(ROOT / "notebooks" / "05_partition_c.ipynb", as_version=4)
    model = json.loads(scripts[WIDGET])["model_id"]
    kept = chapter.metadata["widgets"][recorded.STATE]["state"]
    assert json.loads(scripts[recorded.STATE])["state"][model] == kept[model]
    assert re.search(r'class="cutetut-still"><img alt="[^"]+" src="data:image/png;base64,iVBOR', html)


# --- the report


def test_the_first_page_has_the_recorded_report(book: Path) -> None:
    html = text_of(book / "book" / "intro.html")
    block = html[html.index('class="cutetut-report"') :]
    plain = unescape(re.sub("<[^>]*>", "", block))
    assert text_of(ROOT / "examples" / "missing_barrier.txt").rstrip() in plain
    marked = [unescape(re.sub("<[^>]*>", "", line)) for line in re.findall(r'<span class="hll">(.*?)\n', block)]
    assert [re.sub(r"^\d+\s*", "", line) for line in marked] == ["row[tid] = x[tid]", "y[tid] = row[127 - tid]"]


def test_a_report_of_something_else_is_an_error() -> None:
    assert recorded.lines_named("k.py:9:  x\nk.py:7:  y\nother.py:1:  z\nk.py:9:  x", "k.py") == [7, 9]
    with pytest.raises(BadData, match="names no line of k.py"):
        recorded.lines_named("PTX line 9; ak.py:3", "k.py")


# --- where a link leads, and what it shows elsewhere


@pytest.mark.parametrize("name", notebooks())
def test_a_chapter_can_be_opened_elsewhere(book: Path, name: str) -> None:
    html = text_of(book / f"{name}.html")
    address = f"cutetut/cutetut/blob/colab/{name}.ipynb"  # where a first cell installs the course
    assert f'href="https://colab.research.google.com/github/{address}"' in html
    assert "git push --force origin colab" in (ROOT / ".github/workflows/book.yml").read_text()
    assert f'href="https://mybinder.org/v2/gh/cutetut/cutetut/main?urlpath=lab/tree/{name}.ipynb"' in html
    download = re.search(rf'href="([^"]*{Path(name).name}\.ipynb)"[^>]*class="btn[^"]*download', html)
    assert download and (book / f"{name}.html").parent.joinpath(download[1]).is_file()


@pytest.mark.parametrize("name", toc_files())
def test_a_page_describes_itself(book: Path, name: str) -> None:
    tags = metadata(text_of(book / f"{name}.html"))
    assert tags["og:url"] == f"https://cutetut.github.io/cutetut/{name}.html"
    assert tags["og:image"] == f"https://cutetut.github.io/cutetut/_static/{card.NAME}"
    assert tags["og:title"] and tags["og:image:alt"] and tags["twitter:card"] == "summary_large_image"
    assert tags["og:description"] == tags["description"] and len(tags["description"]) > 60
    assert "driver" not in tags["description"], "the line about the recording describes no chapter"


def test_the_books_own_address_describes_itself_too(book: Path) -> None:
    """It leads to the first page, and has that page's metadata for who does not follow."""
    index, first = (text_of(book / name) for name in ("index.html", "book/intro.html"))
    assert re.findall(r'http-equiv="refresh" content="0; url=([^"]*)"', index) == ["book/intro.html"]
    tags = {name: text for name, text in metadata(first).items() if re.match("og:|twitter:|description", name)}
    assert len(tags) > 7 and metadata(index).items() >= tags.items()
    assert tags["description"] == DESCRIPTION
    assert "<title>CuTe DSL, from one FMA to FlashAttention-3</title>" in index


def test_descriptions_differ(book: Path) -> None:
    found = {metadata(text_of(book / f"{name}.html"))["description"] for name in toc_files()}
    assert len(found) == len(toc_files())


def test_the_card_is_a_picture_of_the_right_size(book: Path) -> None:
    header = (book / "_static" / card.NAME).read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:24]) == (card.WIDTH, card.HEIGHT)


def test_the_card_shows_what_was_measured(tmp_path: Path) -> None:
    """Another speed gives another picture; the same speeds give the same."""
    slower = [STEPS[0], ladder.Step("13_warp_specialized", "warp <specialized>", 350.0, 700.0)]
    for name, steps in {"a": STEPS, "b": STEPS, "c": slower}.items():
        card.draw("Title", "subtitle", steps, tmp_path / name)
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again != other
