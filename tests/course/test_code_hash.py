"""The hash of a chapter's code: what changes it, and what does not."""

from __future__ import annotations

import io
import random
import tokenize

import pytest

from cutetut.course import code_hash, notebooks
from cutetut.course.code_hash import without_imports
from cutetut.measure import bench


def test_where_a_helper_is_imported_from_changes_nothing():
    rest = "\nx = c(1)\n\n\ndef f():\n{}    return g(x)\n"
    one = "import torch\nfrom a.b import (\n    c,\n    d,\n)\n" + rest.format("    from e import g\n")
    two = "from z import c, d\n" + rest.format("    import math, e.e as q\n    from e.e import g\n")
    assert code_hash.of_cells([one]) == code_hash.of_cells([two])
    assert without_imports(one) == rest.format("")


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("import a; import b\nx = 1", "x = 1"),
        ("import a; x = 1", "; x = 1"),
        ("x = 1; import a", "x = 1; "),
        ("import a  # why", "  # why"),
        ("é = 'ü'; from a import b; y = 'é'\n", "é = 'ü'; ; y = 'é'\n"),
        ("if x: import a\n", "if x: \n"),
        ("from a import b, \\\n    c\r\nx = 1\r\n", "x = 1\r\n"),
        ("s = '''\nimport a\n'''\n", "s = '''\nimport a\n'''\n"),
        ("# import a\n", "# import a\n"),
        ("!nvidia-smi\nimport a\n", "!nvidia-smi\nimport a\n"),
        ("", ""),
    ],
)
def test_only_import_statements_are_left_out(source, left):
    assert without_imports(source) == left


@pytest.mark.parametrize(("one", "two"), [("x = 1", "x = 2"), ("x = 1", "x  = 1"), ("x", "x  # why"), ("\nx", "x")])
def test_everything_else_counts(one, two):
    assert code_hash.of_cells([one]) != code_hash.of_cells([two])


def test_the_boundary_between_cells_counts():
    assert code_hash.of_cells(["x = 1", "y = 2"]) != code_hash.of_cells(["x = 1y", " = 2"])
    assert code_hash.of_cells(["x = 1\ny = 2"]) != code_hash.of_cells(["x = 1", "y = 2"])


def tokens(source: str) -> list[str]:
    """The tokens of a text, comments included, without line ends and indentation."""
    layout = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in found if token.type not in layout]


def tokens_without_imports(source: str) -> list[str]:
    """The same without statements that begin with `import` or `from`, up to their end; the oracle."""
    kept, at_start, inside = [], True, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        inside = inside or (at_start and token.string in ("import", "from"))
        ends = token.type in (tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER) or token.string == ";"
        inside = inside and not ends
        if not inside and token.string.strip():
            kept.append(token.string)
        at_start = ends or token.type in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) or token.string == ":"
    return kept


@pytest.mark.parametrize("name", [path.stem for path in notebooks.toc()])
def test_of_the_chapters_exactly_the_import_statements_are_left_out(name):
    """What is hashed of each cell of the book has its tokens but for those of its imports."""
    removed = 0
    for cell in notebooks.code_cells(notebooks.read(name)):
        left = without_imports(cell.source)
        assert tokens(left) == tokens_without_imports(cell.source)
        removed += left != cell.source
    assert removed


@pytest.mark.parametrize("name", ["04_scalar_fma_gemm", "21_fa_pingpong"])
def test_any_changed_letter_of_the_code_changes_the_hash(name, rng):
    """Letters at random places that belong to no import, each replaced."""
    source = notebooks.tagged_source(name, bench.BENCH_TAGS)
    left, chosen = without_imports(source), random.Random(int(rng.integers(1 << 30)))
    before = code_hash.of_cells([left])
    for at in chosen.sample(range(len(left)), 200):
        changed = left[:at] + ("#" if left[at] != "#" else "_") + left[at + 1 :]
        assert code_hash.of_cells([changed]) != before
