"""The concordance of pretended chapters: what counts as explained and as used, and what is let pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from cutetut.course import concordance, exemptions, notebooks

GLOSSARY = """
### warp

32 threads.

### rest

What remains.
"""
WARP, REST = "[warp](../book/glossary.md#warp)", "[rest](../book/glossary.md#rest)"
IMPORTS = ("import cutlass, cutlass.cute as cute", ["imports"])
Write = Callable[..., None]


@pytest.fixture
def write(project: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a chapter of cells, markdown as text and code as (source, tags); a draft is not listed in _toc.yml."""
    monkeypatch.setattr(notebooks, "project_root", lambda: project)
    (project / "book" / "glossary.md").write_text(GLOSSARY)
    (project / "book" / "data" / "exemptions.toml").write_text("")
    listed: list[str] = []

    def chapter(name: str, *cells: str | tuple[str, list[str]], draft: bool = False) -> None:
        made = nbformat.v4.new_notebook()
        for i, cell in enumerate(cells):
            if isinstance(cell, str):
                made.cells.append(nbformat.v4.new_markdown_cell(cell, id=f"c{i}"))
            else:
                made.cells.append(nbformat.v4.new_code_cell(cell[0], id=f"c{i}", metadata={"tags": cell[1]}))
        nbformat.write(made, project / "notebooks" / f"{name}.ipynb")
        listed.extend([] if draft else [f"  - file: notebooks/{name}\n"])
        (project / "_toc.yml").write_text("root: book/intro\nchapters:\n" + "".join(listed))

    return chapter


def missing() -> list[str]:
    return [str(entry) for entry in concordance.unexplained(concordance.collect(concordance.order()))]


def exempt(project: Path, text: str) -> None:
    (project / "book" / "data" / "exemptions.toml").write_text(text)


def test_a_name_is_explained_by_a_cell_before_its_use(write: Write) -> None:
    write("00_a", IMPORTS, "# A\n\n`make_layout` makes one.", ("cute.make_layout(1)", []))
    write("01_b", IMPORTS, ("cute.make_layout(1)", []), ("cute.size(1)", []), "`cute.size(x)`")
    assert missing() == ["01_b, cell c2: name `cute.size` is in backticks only in 01_b, cell c3"]
    entries = {entry.name: entry for entry in concordance.collect(concordance.order())}
    made = entries["cute.make_layout"]
    assert made.explained == concordance.Place("00_a", "c1", "A")
    assert list(made.uses) == ["00_a", "01_b"]


def test_a_reader_is_sent_to_the_text_and_not_to_the_title(write: Write, project: Path) -> None:
    write("00_a", f"# A\n\nThis chapter counts {WARP}s.", f"## B\n\nA {WARP} is 32 threads.")
    path = project / "notebooks" / "00_a.ipynb"
    path.write_text(path.read_text().replace('"c0"', '"title"'))
    (entry,) = (one for one in concordance.collect(concordance.order()) if one.name == "warp")
    assert entry.explained and entry.explained.cell == "title" and entry.section and entry.section.cell == "c1"


@pytest.mark.parametrize("aside", ["## Recap", "## Exercises\n\n### 1. Count"])
def test_a_reader_is_sent_to_the_text_and_not_to_a_recap_or_an_exercise(write: Write, aside: str) -> None:
    write("00_a", "# A", f"{aside}\n\n`cute.size(x)`, {REST}, {WARP}")
    write("01_b", IMPORTS, f"# B\n\n## Of `x`\n\nA {WARP}, `cute.size(x)`\n\n## More", ("cute.size(1)", []))
    sections = {e.name: (e.explained, e.section) for e in concordance.collect(concordance.order())}
    heading = "Recap" if "Recap" in aside else "1. Count"
    first, text = concordance.Place("00_a", "c1", heading), concordance.Place("01_b", "c1", "Of x")
    assert sections == {"cute.size": (first, text), "warp": (first, text), "rest": (first, first)}


def test_another_thing_of_the_same_name_explains_nothing(write: Write) -> None:
    """Whoever looks for `records.read` is not sent to a copy named `read`."""
    imports: tuple[str, list[str]] = ("from cutetut.course import notebooks\nfrom cutetut.measure import records", [])
    write("00_a", imports, "# A\n\n`read`, `sA.load()`, `f().load()`, `cute.load`", ("notebooks.load(1)", []))
    write("01_b", "## B\n\n`notebooks.load(x)`, `records.read`", imports, ("records.read(1)", []))
    assert missing() == [
        "00_a, cell c2: name `cutetut.course.notebooks.load` is in backticks only in 01_b, cell c0",
    ]
    sections = {entry.name: entry.section for entry in concordance.collect(concordance.order())}
    assert sections["cutetut.measure.records.read"] == concordance.Place("01_b", "c0", "B")


def test_a_name_that_code_imports_may_stand_alone(write: Write) -> None:
    imports = "from cutetut.course.notebooks import load\nfrom cutlass.cute import size"
    write("00_a", (imports, []), "`load`, `size`", ("load(1), size(1)", []))
    assert missing() == []


def test_an_alias_in_prose_is_the_chapters(write: Write) -> None:
    write("00_a", ("import cutlass.utils.hopper_helpers as sm90", []), "`sm90.f`, `sm80.g`", ("sm90.f, sm90.g", []))
    assert missing() == ["00_a, cell c2: name `cutlass.utils.hopper_helpers.g` is nowhere in backticks"]


def test_what_is_never_explained_is_said(write: Write) -> None:
    write("00_a", IMPORTS, "# A\n\nsize", ("cute.size(1)", []))
    assert missing() == ["00_a, cell c2: name `cute.size` is nowhere in backticks"]


@pytest.mark.parametrize("tag", ["hide-input", "hide-cell"])
def test_what_is_folded_need_not_be_explained_and_its_imports_count(write: Write, tag: str) -> None:
    write("00_a", ("import cutlass.cute as cute\ncute.size(1)", [tag]), ("cute.rank(1)", []))
    assert missing() == ["00_a, cell c1: name `cute.rank` is nowhere in backticks"]


FOLDED_KERNEL = """
TABLE = cute.rank(1)

@cute.kernel
def kernel(x: cute.Tensor):
    cute.copy(x)

@cute.jit
def launch(x):
    cute.gemm(x)

def table():
    cute.depth(x)
"""


@pytest.mark.parametrize("tag", ["hide-input", "hide-cell"])
def test_a_folded_kernel_is_read_and_what_is_around_it_is_not(write: Write, tag: str) -> None:
    write("00_a", IMPORTS, "`@cute.kernel`, `@cute.jit`", (FOLDED_KERNEL, [tag]), "`cute.copy`")
    assert missing() == [
        "00_a, cell c2: name `cute.Tensor` is nowhere in backticks",
        "00_a, cell c2: name `cute.copy` is in backticks only in 00_a, cell c3",
        "00_a, cell c2: name `cute.gemm` is nowhere in backticks",
    ]


def test_a_solution_need_not_be_explained(write: Write) -> None:
    write("00_a", IMPORTS, (FOLDED_KERNEL, ["hide-cell", "solution"]))
    assert missing() == []


def test_a_term_is_introduced_in_the_cell_of_its_first_use(write: Write) -> None:
    write("00_a", "# Of warps", f"A {WARP}, 32 warps.", "**The rest** of it.")
    write("01_b", "Warps.", "the rest")
    assert missing() == []


def test_a_term_used_before_it_is_introduced_is_found(write: Write) -> None:
    write("00_a", "# Of warps", "Two\nwarps.", f"A {WARP}.")
    assert missing() == ["00_a, cell c1: term 'warp', as 'warps', is linked or bold only in 00_a, cell c2"]


def test_a_draft_stands_at_its_number(write: Write, project: Path) -> None:
    write("00_a", "A.")
    write("02_c", "A warp.")
    write("01_b", f"A {WARP}.", draft=True)
    assert [path.stem for path in concordance.order()] == ["00_a", "01_b", "02_c"]
    assert [path.stem for path in concordance.order(drafts=False)] == ["00_a", "02_c"]
    assert missing() == []


def test_an_exemption_holds_for_the_chapter_of_the_first_use(write: Write, project: Path) -> None:
    write("00_a", IMPORTS, "A warp.", ("cute.size(1)", []))
    exempt(project, '[names.00_a]\n"cute.size" = "why"\n[terms.00_a]\nwarp = "why"\n')
    assert missing() == [] and concordance.unneeded(concordance.collect(concordance.order())) == []
    exempt(project, '[names.01_b]\n"cute.size" = "why"\n[terms.00_a]\nwarp = "why"\nrest = "why"\n')
    assert len(missing()) == 1
    unneeded = concordance.unneeded(concordance.collect(concordance.order()))
    assert unneeded == [exemptions.Exemption("01_b", "cute.size", "why"), exemptions.Exemption("00_a", "rest", "why")]


def test_a_family_is_explained_by_one_of_it(write: Write, project: Path) -> None:
    exempt(project, "[families.'cutlass\\.Int\\d+']\nby = 'cutlass.Int32'\nreason = 'r'\n")
    write("00_a", IMPORTS, ("cutlass.Int64", []), "`Int32`", ("cutlass.Int32, cutlass.Int8", []))
    assert missing() == ["00_a, cell c1: name `cutlass.Int64` is in backticks only in 00_a, cell c2"]


def test_an_everyday_word_may_be_used_and_is_still_introduced(write: Write, project: Path) -> None:
    exempt(project, '[everyday]\nrest = "why"\n')
    write("00_a", "The rest.", f"A {REST}.")
    (entry,) = concordance.collect(concordance.order())
    assert missing() == [] and entry.explained is not None and entry.explained.cell == "c1"


def test_the_command_line_names_the_chapters_own(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("00_a", "A warp.")
    write("01_b", "A rest.")
    assert concordance.main([]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert concordance.main(["01_b"]) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith("01_b, cell c0: term 'rest'")
    assert concordance.main(["02_c"]) == 1
    assert "no notebook named 02_c" in capsys.readouterr().out


def test_the_place_of_a_cell_has_the_heading_above_it(write: Write) -> None:
    write("00_a", "# A\n\n## Of `x`", ("1", []), "## B", ("2", []))
    assert concordance.place("00_a", "c1") == concordance.Place("00_a", "c1", "Of x")
    for cell in ("c0", "none"):
        with pytest.raises(notebooks.NotebookError, match=f"00_a has no code cell '{cell}'"):
            concordance.place("00_a", cell)
