"""Tensors that a notebook makes on the CPU and hands to a kernel, found without running the notebook.

The oracle is a run: the same source with torch's device "meta" in place of the GPU, and a `from_dlpack` that notes in
which lines it got a tensor of the CPU.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from cutetut.course import concordance, notebooks, placement

HEAD = """
import torch
from functools import partial
import cutetut
from cutlass.cute.runtime import from_dlpack
"""

SOURCES = {
    "with a device": "from_dlpack(torch.zeros(4, device=cutetut.device))",
    "without": "from_dlpack(torch.zeros(4))",
    "moved": "x = torch.arange(4).to(cutetut.device)\nfrom_dlpack(x)",
    "another type is no other place": "x = torch.arange(4).to(torch.float32)\nfrom_dlpack(x.half())",
    "moved, and then another type": "from_dlpack(torch.arange(4).to(device=cutetut.device).to(torch.float32))",
    "from numpy": "import numpy as np\nfrom_dlpack(torch.from_numpy(np.zeros(4)))",
    "back on the CPU": "x = torch.zeros(4)\ny = x.to('cpu')\nfrom_dlpack(y)",
    "a view": "x = torch.randn(4, 4)\nfrom_dlpack(x.T[1:].contiguous())",
    "like one on the CPU": "x = torch.randn(4)\nfrom_dlpack(torch.full_like(x, 2.0))",
    "like one on the device": "x = torch.empty(4, device=cutetut.device)\nfrom_dlpack(torch.zeros_like(x))",
    "new, of one on the device": "x = torch.empty(4, device=cutetut.device)\nfrom_dlpack(x.new_empty(2, 2))",
    "new, on the device": "x = torch.empty(4)\nfrom_dlpack(x.new_zeros(4, device=cutetut.device))",
    "where another one is": "x = torch.empty(4)\ny = torch.ones(4, device=x.device)\nfrom_dlpack(y)",
    "arithmetic": "x = 2 * torch.ones(4) + 1\nfrom_dlpack(-x)",
    "a number of the CPU": "x = torch.ones(4, device=cutetut.device) * torch.tensor(2.0)\nfrom_dlpack(x)",
    "unpacked": "x, y = (torch.zeros(n) for n in (1, 2))\ny = y.to(cutetut.device)\nfrom_dlpack(y)\nfrom_dlpack(x)",
    "one of two": "a, b = [torch.zeros(4, device=d) for d in (cutetut.device, 'cpu')]\nfrom_dlpack(a)\nfrom_dlpack(b)",
    "a loop": "for x in (torch.zeros(1), torch.zeros(1).to(cutetut.device)):\n    from_dlpack(x)",
    "by number": "a = [torch.zeros(1), torch.zeros(1).to(cutetut.device)]\nfrom_dlpack(a[1])\nfrom_dlpack(a[0])",
    "pairs": "a = {'x': torch.zeros(1)}\nfor name, x in a.items():\n    from_dlpack(x)",
    "zipped": "for x, n in zip([torch.zeros(1)], (1,)):\n    from_dlpack(x)",
    "numbered": "for n, x in enumerate([torch.zeros(1)]):\n    from_dlpack(x)",
    "mapped": "a, b = map(from_dlpack_of, (torch.zeros(1), 2))",
    "branches": "x = torch.zeros(1, device=cutetut.device)\nif 1 < 2:\n    x = torch.zeros(1)\nfrom_dlpack(x)",
    "renamed": "x = torch.zeros(1)\nx = x.to(cutetut.device)\nfrom_dlpack(x)",
    "a function's result": "def make(n):\n    return torch.zeros(n), n\n\n\nx, _ = make(3)\nfrom_dlpack(x)",
    "a default": (
        "def make(n, device=cutetut.device):\n    return torch.zeros(n).to(device)\n\n\n"
        "from_dlpack(make(1))\nfrom_dlpack(make(1, 'cpu'))\nfrom_dlpack(make(1, device=cutetut.device))"
    ),
    "a type as an argument": (
        "def make(n, to):\n    return torch.zeros(n).to(to)\n\n\n"
        "from_dlpack(make(1, torch.float16))\nfrom_dlpack(make(1, cutetut.device))"
    ),
    "arguments": "def run(x, y=1):\n    from_dlpack(x)\n\n\nrun(torch.ones(1).to(cutetut.device))\nrun(torch.ones(1))",
    "a lambda": "mark = lambda t: from_dlpack(t)\nmark(torch.zeros(1))",
    "a partial function": "def run(x, y):\n    from_dlpack(y)\n\n\npartial(run, 1)(torch.zeros(1))",
    "an early end": (
        "def make(n):\n    if n > 1:\n        return torch.ones(n).to(cutetut.device)\n    return torch.ones(n)\n\n\n"
        "from_dlpack(make(1))"
    ),
    "a name within": "x = torch.zeros(1)\n\n\ndef run(x):\n    from_dlpack(x)\n\n\nrun(x.to(cutetut.device))",
    "everything on the device": "with torch.device(cutetut.device):\n    x = torch.zeros(1)\nfrom_dlpack(x)",
    "numbers of it": "x = torch.zeros(4)\nprint(x.shape, x.tolist())\ny = x.shape\nn = x.sum().item()",
}  # fmt: skip
FUNCTION = "def from_dlpack_of(t):\n    return from_dlpack(t) if isinstance(t, torch.Tensor) else None\n\n\n"


def found(*sources: str) -> set[int]:
    """Lines of the last of these cells in which a kernel is given a tensor of the CPU."""
    walk = placement.Walk("a chapter")
    for number, source in enumerate(sources):
        walk.read(str(number), source)
    walk.finish()
    return {one.line for one in walk.found if one.cell == str(len(sources) - 1)}


def happened(source: str, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The same by running the source, with "meta" for a GPU."""
    lines = set()

    def from_dlpack(tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu":
            lines.add(sys._getframe(1).f_lineno)

    stand_ins: tuple[tuple[str, str, Any], ...] = (
        ("cutetut", "device", "meta"),
        ("cutlass.cute.runtime", "from_dlpack", from_dlpack),
    )
    for name, attribute, value in stand_ins:
        module = types.ModuleType(name)
        setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source, "cell", "exec"), {})  # a cell runs so, too
    return lines


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_what_a_run_shows_is_found_without_one(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = HEAD + FUNCTION + source
    assert found(cell) == happened(cell, monkeypatch)


def test_what_one_cell_makes_another_may_misuse() -> None:
    assert found(HEAD, "x = torch.zeros(1)", "from_dlpack(x)") == {1}


@pytest.mark.parametrize(
    "source",
    [
        "def benchmark():\n    x = torch.zeros(1)\n    from_dlpack(x)",
        "def attempt():\n    x = torch.zeros(1)\n    def once():\n        from_dlpack(x)\n    return once",
        "torch.set_default_device('cpu')\nfrom_dlpack(torch.zeros(1))",
        "x = torch.zeros(1, device=cutetut.device)\nfrom_dlpack(x.cpu())",
    ],
)
def test_what_no_cell_calls_is_read_too(source: str) -> None:
    assert len(found(HEAD, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "!nvidia-smi",
        "def f(x):\n    return f(x)\n\n\nf(1)",
        "torch.set_default_device('cuda')\nfrom_dlpack(torch.zeros(1))",
    ],
)
def test_no_alarm(source: str) -> None:
    assert found(HEAD, source) == set()


@pytest.mark.parametrize("path", concordance.order(), ids=lambda path: path.stem)
def test_no_chapter_hands_a_tensor_of_the_cpu_to_a_kernel(path: Path) -> None:
    assert [str(one) for one in placement.of_chapter(path)] == []


@pytest.mark.parametrize(
    ("chapter", "cell", "device"),
    [
        ("00_start_here", "chase-run", ", device=cutetut.device"),
        ("01_layouts", "check", ".to(cutetut.device)"),
        ("04_scalar_fma_gemm", "exact", ".to(cutetut.device)"),
        ("06_smem_tiling", "check-staged", ", device=cutetut.device"),
        ("07_mma_sync", "halves-run", ".to(cutetut.device)"),
    ],
)
def test_a_device_that_is_forgotten_in_a_chapter(chapter: str, cell: str, device: str) -> None:
    walk = placement.Walk(chapter)
    for one in notebooks.read(chapter).cells:
        if one.cell_type == "code":
            assert one.id != cell or device in one.source
            walk.read(one.id, one.source.replace(device, "") if one.id == cell else one.source)
    walk.finish()
    assert cell in {one.made_in for one in walk.found}


def test_a_finding_says_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import nbformat

    cells = [
        nbformat.v4.new_code_cell(HEAD, id="imports"),
        nbformat.v4.new_code_cell("from_dlpack(torch.ones(2))", id="go"),
    ]
    path = tmp_path / "05_forgot.ipynb"
    notebooks.write(nbformat.v4.new_notebook(cells=cells), path)
    assert placement.main([str(path)]) == 1
    said = capsys.readouterr().out
    assert "05_forgot, cell go, line 1: from_dlpack takes `torch.ones(2)` of cell go, line 1, made on the CPU" in said
    assert placement.main(["no_such_chapter"]) == 1
    assert "no notebook named" in capsys.readouterr().out
