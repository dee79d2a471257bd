"""What a markdown cell names, explains and uses, and how many words it has."""

from __future__ import annotations

import pytest

from cutetut.course import prose

GLOSSARY = """
# Glossary

## Machine

### CTA

Also here: *thread block*, *block*.

Threads of one SM.

### warp

32 threads, see [CTA](#CTA). Also here: *none*.

### tensor

A layout with a start.

### tensor core

Multiplies.

## Names in code

### K-major

Along K.

### category

Of anything.

### partition_C

A part.
"""
TERMS = prose.terms(GLOSSARY, ["block"])
BY_NAME = {term.name: term for term in TERMS}


def used(text: str) -> dict[str, str]:
    return prose.used(prose.plain(text), TERMS)


def test_the_glossary_is_read_entry_by_entry() -> None:
    assert [term.names for term in TERMS] == [
        ("CTA", "thread block", "block"), ("warp",), ("tensor",), ("tensor core",), ("K-major",), ("category",),
        ("partition_C",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Two warps and CTAs.", {"warp": "warps", "CTA": "CTAs"}),
        ("A thread\nblock", {"CTA": "thread\nblock"}),
        ("Warp 0", {"warp": "Warp"}),
        ("a cta, a warped view, a warp_idx, b-warp", {}),
        ("a 4x4 block", {}),
        ("Tensor cores multiply", {"tensor core": "Tensor cores"}),
        ("a tensor core's tensor", {"tensor core": "tensor core", "tensor": "tensor"}),
        ("categories", {"category": "categories"}),
        ("K-major; k-major", {"K-major": "K-major"}),
        ("`warp`, [warps](../book/glossary.md#warp), [a warp](11_warp.ipynb), [a warp](../book/a.md#b), `x`", {}),
        ("[a warp](https://x.org/tensor)", {"warp": "warp"}),
        ("# A warp\n\ntext", {}),
        ("```text\nwarp\n```\n", {}),
        ("$warp$ and $$tensor$$, at $5 a warp for $6", {"warp": "warp"}),
        ("<b class='tensor'>warp</b>", {"warp": "warp"}),
    ],
)
def test_terms_that_prose_uses(text: str, found: dict[str, str]) -> None:
    assert used(text) == {name: " ".join(words.split()) for name, words in found.items()}


@pytest.mark.parametrize(
    ("text", "name", "introduced"),
    [
        ("a [warp](../book/glossary.md#warp)", "warp", True),
        ("[Two\nwarps](../book/glossary.md#warp)", "warp", True),
        ("[block](../book/glossary.md#CTA)", "CTA", True),
        ("**A warp** is 32 threads", "warp", True),
        ("32 threads, **two warps**", "warp", True),
        ("*warp*, `warp` and a warp", "warp", False),
        ("[warp](11_warp.ipynb), [warp](https://x.org/a.md#warp)", "warp", False),
        ("[tensor](../book/glossary.md#tensor-core)", "tensor", False),
        ("```\n**warp**\n```", "warp", False),
    ],
)
def test_what_introduces_a_term(text: str, name: str, introduced: bool) -> None:
    assert BY_NAME[name].introduced(text) is introduced


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`cute.make_layout(shape)` makes", {"cute.make_layout"}),
        ("`size(x)` and `check`", {"size", "check"}),
        ("`x = size`", set()),
        ("`x: Constexpr`, `@cute.jit`", {"Constexpr", "cute.jit"}),
        ("`sA.load()`, `f(x).load()`, `x[0].load()`, `.load`", {"sA", "sA.load", "f", ".load"}),
        ("`y = records.read(x)`, `a.b.READ.c`", {"records.read", "a.b.READ", "a.b.READ.c"}),
        ("size, **size**, [`size`](11_size.ipynb)", set()),
        ("[partition_C](../book/glossary.md#partition_C), [warp](../book/glossary.md#warp)", {"partition_C"}),
        ("``a `check` b`` and `gemm`", {"gemm"}),
        ("```python\ncheck(1)\n```", set()),
    ],
)
def test_names_in_backticks(text: str, found: set[str]) -> None:
    assert prose.named(text) == found


def test_headings_are_shown_without_markup() -> None:
    text = "# A *[warp](../book/glossary.md#warp)* `a * x`\n\ntext\n\n```\n# no\n```\n\n### [Third](a.md) #\n"
    assert prose.headings(text) == [(1, "A warp a * x"), (3, "Third")]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One two, three.", 3),
        ("it's a 128-byte row", 4),
        ("[warps](../book/glossary.md#warp) of [two words](https://x.org/a/b)", 4),
        ("| a | b |\n| --- | --- |\n| 1 | `x` |", 4),
        ("```text\nnot counted\n```\nfour", 1),
        ("<details class='a'>word</details> - *b* – c", 3),
    ],
)
def test_words_are_what_a_reader_reads(text: str, count: int) -> None:
    assert prose.words(text) == count


def test_lines_of_fenced_code_are_counted() -> None:
    assert prose.fenced_lines("a\n```text\none\n\ntwo\n```\nb\n```\nthree\n```\n") == 3


def test_a_cell_is_cut_at_its_headings() -> None:
    text = "above\n\n## One\n\n```\n# no\n```\n## Two\ntwo\n### Three"
    found = prose.sections(text)
    assert [heading for heading, _ in found] == [None, "One", "Two", "Three"]
    assert "".join(part for _, part in found) == text
    assert prose.sections("") == [] and prose.sections("a\nb") == [(None, "a\nb")]
