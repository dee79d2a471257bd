"""The book builds without a warning, its links lead somewhere, and its pages load nothing from elsewhere."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import nbformat
import pytest
import yaml
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.base import DocutilsRenderer
from myst_parser.parsers.mdit import create_md_parser

from tests.book.building import ROOT, built, notebooks, toc_files
from tests.book.pages import Page, broken_links, css_addresses, is_remote, of_the_book

WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


@pytest.fixture(scope="module")
def book() -> Path:
    return built()


@pytest.fixture(scope="module")
def pages(book: Path) -> dict[Path, Page]:
    """All but what is shown in place of a page that does not exist."""
    found = (path for path in sorted(book.rglob("*.html")) if "_static" not in path.parts and path.name != "404.html")
    return {path: of_the_book(path) for path in found}


def test_every_notebook_is_in_the_toc_once() -> None:
    """A chapter that is still being written says so in its metadata and is not in the book."""
    finished = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if not json.loads(path.read_text())["metadata"].get("cutetut", {}).get("draft"):
            finished.append(f"notebooks/{path.stem}")
    assert sorted(notebooks()) == finished


@pytest.mark.parametrize("page", ["README.md", "book/intro.md"])
def test_the_first_pages_name_every_chapter(page: str) -> None:
    """The README's levels and the way through the book are written by hand."""
    text = (ROOT / page).read_text()
    assert [name for name in notebooks() if not re.search(rf"^\|.*{Path(name).name}\b", text, re.M)] == []


def titles() -> dict[str, str]:
    """Each chapter's title, behind its number where it has one, by its name."""
    found = {}
    for path in (ROOT / f"{name}.ipynb" for name in notebooks()):
        first = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        title = first.removeprefix("# ").replace("`", "")
        found[path.stem] = f"{path.stem[:2]} {title}" if path.stem[:2].isdigit() else title
    return found


def words(html: str) -> str:
    """What a piece of a page shows, with the apostrophes of a keyboard."""
    return " ".join(unescape(re.sub("<[^>]+>", "", html)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())


def test_chapters_are_listed_with_the_numbers_by_which_the_text_calls_them(book: Path) -> None:
    first = (book / "book" / "intro.html").read_text(encoding="utf-8")
    rest, table = first.split('<table class="stacks cutetut-chapters')
    sidebar = rest.split('<nav class="bd-links')[1].split("</nav>")[0]
    link = re.compile(r'<a class="reference internal" href="\.\./notebooks/(\w+)\.html">(.*?)</a>', re.DOTALL)
    assert {name: words(text) for name, text in link.findall(sidebar)} == titles()
    rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in table.split("</table>")[0].split("<tr")[2:]]
    assert [words(chapter) for _, chapter, _ in rows] == list(titles().values())
    parts = [words(part) for part, *_ in rows if words(part)]
    assert len(parts) == len(set(parts)) == 6, "each part is named once, in front of its first chapter"
    for page in ("benchmarks", "exercises"):
        html = (book / "book" / f"{page}.html").read_text(encoding="utf-8")
        headings = {words(text).removesuffix("#") for text in re.findall(r"<h[23]>(.*?)</h[23]>", html, re.DOTALL)}
        assert set(titles().values()) <= headings


CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
MARKDOWN = create_md_parser(
    MdParserConfig(enable_extensions=set(CONFIG["parse"]["myst_enable_extensions"])), DocutilsRenderer
)


@pytest.mark.parametrize("name", toc_files())
def test_no_markup_is_left_in_the_text(name: str) -> None:
    """Code that was broken over two lines may end there: `(turn &` and a line that begins a list, `1) ^ 1`."""
    page, notebook = ROOT / f"{name}.md", ROOT / f"{name}.ipynb"
    if page.exists():
        sources = [page.read_text(encoding="utf-8")]
    else:
        sources = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown"]
    inline = [part for source in sources for block in MARKDOWN.parse(source) for part in block.children or ()]
    assert [part.content for part in inline if part.type == "text" and re.search(r"`|\*\*|]\(", part.content)] == []
    assert any(part.type == "text" for part in inline)


def test_every_file_of_the_toc_is_a_page(book: Path) -> None:
    missing = [name for name in toc_files() if not (book / f"{name}.html").is_file()]
    assert missing == []


def test_links_resolve(pages: dict[Path, Page]) -> None:
    broken = {str(page.path): found for page in pages.values() if (found := broken_links(page, pages))}
    assert broken == {}


def test_pages_load_nothing_remote(book: Path, pages: dict[Path, Page]) -> None:
    remote = {str(page.path): found for page in pages.values() if (found := list(filter(is_remote, page.loads)))}
    for style in book.rglob("*.css"):
        if found := list(filter(is_remote, css_addresses(style.read_text(encoding="utf-8")))):
            remote[str(style)] = found
    assert remote == {}


def test_what_pages_load_is_in_the_book(pages: dict[Path, Page]) -> None:
    missing = [
        (str(page.path), address)
        for page in pages.values()
        for address in page.loads
        if address and not is_remote(address) and not address.startswith(("data:", "blob:", "#"))
        if not (page.path.parent / re.split("[?#]", address)[0]).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("wrong", ["gone", "notebooks/07_mma.html", "notebooks/no/such/page.html"])
def test_the_page_for_a_wrong_address_works_wherever_it_is_shown(book: Path, wrong: str) -> None:
    """A browser resolves its links against the wrong address, as urljoin does."""
    page = of_the_book(book / "404.html")
    addresses = {urljoin(CONFIG["html"]["baseurl"] + wrong, link) for link in (*page.links, *page.loads)}
    own = {urlsplit(address).path for address in addresses if address.startswith("https://cutetut.github.io/")}
    files = {path.removeprefix("/cutetut/") for path in own} - {wrong}  # a link to a heading of its own
    assert {f"{name}.html" for name in toc_files()} < files
    assert [file for file in sorted(files) if not (book / file).is_file()] == []


@pytest.mark.parametrize("name", notebooks())
def test_chapter_says_where_its_outputs_come_from(book: Path, name: str) -> None:
    recorded = nbformat.read(ROOT / f"{name}.ipynb", as_version=4).metadata.get("cutetut", {})
    line = re.search(r'class="cutetut-provenance[^>]*>(.*?)</p>', (book / f"{name}.html").read_text())
    assert line is not None
    for field in ("gpu", "driver", "cuda", "torch", "cutlass_dsl", "date"):
        assert not recorded or str(recorded[field]) in line[1]
    assert line[1].startswith("Outputs recorded on" if recorded else "Not recorded")


@pytest.mark.parametrize("name", notebooks())
def test_widgets_of_a_notebook_are_in_its_page(book: Path, name: str) -> None:
    """Each widget that a notebook shows is in the page with its state, and its picture as a stand-in."""
    notebook = nbformat.read(ROOT / f"{name}.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    views = [output.data for output in outputs if "application/vnd.jupyter.widget-view+json" in output.data]
    html = (book / f"{name}.html").read_text()
    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    for view in views:
        model = view["application/vnd.jupyter.widget-view+json"]["model_id"]
        assert model in state, "the notebook shows a widget but its state was not saved: record it again"
        assert html.count(model) >= 2  # once in the state, once where it is shown
    pictures = [view for view in views if {"image/png", "image/svg+xml"} & set(view)]
    assert len(re.findall(r'class="cutetut-still">\s*<img', html)) == len(pictures)


def test_instruction_list_is_the_emulators(book: Path) -> None:
    from cutetut.emulator.machine.opcodes import OPS
    from cutetut.emulator.units import load_all

    load_all()

    html = (book / "book/emulator.html").read_text()
    tables = "".join(re.findall(r'<table class="[^"]*\binstructions\b.*?</table>', html, re.DOTALL))
    listed = re.findall(r'<tr[^>]*><td><p><code[^>]*><span class="pre">([^<]*)</span></code>', tables)
    assert sorted(listed) == sorted(OPS)


REMOTE = [
    '<script src="https://cdn.example.org/x.js"></script>',
    '<link rel="stylesheet" href="//fonts.example.org/a.css">',
    '<link rel="preload icon" href="http://example.org/i.png">',
    '<img srcset="a.png 1x, https://example.org/b.png 2x">',
    "<style>@import 'https://example.org/a.css';</style>",
    '<p style="background: url(https://example.org/a.png)">',
    '<iframe src="https://example.org"></iframe>',
]
LOCAL = [
    '<script src="../_static/x.js?v=1"></script>',
    '<link rel="canonical" href="https://example.org/page.html">',
    '<a href="https://example.org">a link is followed only when asked</a>',
    '<img src="data:image/png;base64,AAAA">',
    "<style>/* url(https://example.org) */ a { background: url(b.png) }</style>",
]


@pytest.mark.parametrize(("html", "remote"), [*((h, True) for h in REMOTE), *((h, False) for h in LOCAL)])
def test_remote_loads_would_be_seen(tmp_path: Path, html: str, remote: bool) -> None:
    (tmp_path / "page.html").write_text(html)
    assert any(map(is_remote, Page(tmp_path / "page.html").loads)) == remote


def test_broken_links_would_be_seen(tmp_path: Path) -> None:
    links = [
        "b.html#here",
        "b.html#gone",
        "c.html",
        "#top",
        "#bottom",
        "https://example.org/x",
        "http://example.org",
    ]
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    for name, text in {"a.html": f'<p id="top">{anchors}', "b.html": '<p id="here">'}.items():
        (tmp_path / name).write_text(text)
    pages = {path: Page(path) for path in sorted(tmp_path.glob("*.html"))}
    broken = [found.split()[0] for found in broken_links(pages[tmp_path / "a.html"], pages)]
    assert broken == ["b.html#gone", "c.html", "#bottom", "http://example.org"]
