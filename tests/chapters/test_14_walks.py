"""The walks through NVIDIA's and quack's kernels: the names on this side, and, where the sources are, on theirs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cutetut.course import notebooks
from tests.chapters import exercises

CHAPTER = "14_persistent"


def table() -> list[tuple[list[int], list[str], str]]:
    """The rows of the walk: line numbers, names there, what stands here."""
    rows = re.findall(r"^\| ([\d, ]+) \| (.*?) \| (.*) \|$", exercises.cell(CHAPTER, "nvidia-md"), re.MULTILINE)
    return [([int(n) for n in lines.split(",")], re.findall(r"`([^`]+)`", there), here) for lines, there, here in rows]


def test_the_walk_names_what_is_here() -> None:
    before = ("08_wgmma", "11_tma", "12_tma_pipeline", "13_warp_specialized", "15_past_cublas")
    source = "".join(map(notebooks.tagged_source, (*before, CHAPTER)))
    assert len(table()) >= 40
    for lines, there, here in table():
        assert len(there) in (1, len(lines)), there
        for name in re.findall(r"(?<!})`([^`]+)`", here):
            assert name in source, name


def test_the_walk_names_lines_of_nvidias_source() -> None:
    """With CUTETUT_CUTLASS, a clone of NVIDIA/cutlass at the commit that the chapter links."""
    clone = os.environ.get("CUTETUT_CUTLASS", "")
    link = re.search(r"NVIDIA/cutlass/blob/([0-9a-f]{40})/(\S+?)\)", exercises.cell(CHAPTER, "nvidia-md"))
    assert link and link[2].endswith("/hopper/kernel/dense_gemm/dense_gemm_persistent.py")
    file = Path(clone) / link[2]
    if not clone or not file.is_file():
        return
    source = file.read_text().splitlines()
    also = [([960], ["epi_store_warp_id"], ""), ([477], ["swizzle_size"], "")]
    for lines, there, _ in [*table(), *also]:
        for line, name in zip(lines, there * len(lines) if len(there) == 1 else there, strict=True):
            assert name.removesuffix("(..)") in source[line - 1], (line, name, source[line - 1])


def test_the_walk_names_what_quack_has() -> None:
    """With CUTETUT_QUACK, a folder with the files of quack 0.6.5."""
    folder = Path(os.environ.get("CUTETUT_QUACK", ""))
    if not (folder / "gemm_sm90.py").is_file():
        return
    files = ("gemm_sm90", "gemm_base", "pipeline", "tile_scheduler", "sm90_utils", "copy_utils")
    source = "".join((folder / f"{name}.py").read_text() for name in files)
    _, walk = exercises.cell(CHAPTER, "nvidia-md").split("## quack's kernel")
    there = [line.split(" | ")[0] for line in walk.splitlines() if line.startswith("| `")]
    loop = exercises.cell("13_warp_specialized", "names-md")
    there += [line.split(" | ")[2] for line in loop.splitlines() if line.startswith(("| `", "| wait", "| fence"))]
    names = [name for text in there for name in re.findall(r"`([^`]+)`", text)]
    assert len(names) >= 40
    assert not [name for name in names if name not in source]
