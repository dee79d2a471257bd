"""What messages show and hint at: whole statements, sizes of accesses, 32-bit overflows, lost updates."""

from __future__ import annotations

from pathlib import Path

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.checks.lost_updates import _updates
from cutetut.emulator.errors import MissingBarrier, OutOfBounds
from cutetut.emulator.ptx import source
from tests.emulator.harness import kernel, run

pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


# statements ---------------------------------------------------------------------------------------------------

SOURCE = '''\
def f():
    x = 1
    copy(
        a,  # (the source
        b[0, None],
        ")",
    )
    y = f"""
    {x}"""
    g(1, 2, 3, 4,
      5,
      6,
      7,
      8,
      9,
      10)
    h(")"
'''


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (1, "def f():"),
        (2, "x = 1"),
        (3, 'copy(\n    a,  # (the source\n    b[0, None],\n    ")",\n)'),
        (5, "b[0, None],"),  # inside a call
        (10, "g(1, 2, 3, 4,\n  5,\n  6,\n  7,\n  8,\n  9, ..."),
        (17, 'h(")"'),  # it never ends
        (99, ""),
        (0, ""),
    ],
)
def test_the_statement_of_a_line(tmp_path: Path, line: int, wanted: str) -> None:
    file = tmp_path / "some.py"
    file.write_text(SOURCE)
    found = source.text(str(file), line)
    assert " ".join(found.split()) == " ".join(wanted.split())
    assert found.count("\n") == wanted.count("\n")


@cute.kernel
def far_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[
        i
        + 1000
    ] = (
        1.0
    )  # fmt: skip


@cute.jit
def far(x: cute.Tensor):
    far_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_a_statement_of_several_lines_is_shown_whole() -> None:
    with pytest.raises(OutOfBounds) as error:
        far(from_dlpack(torch.zeros(32)))
    lines = str(error.value).splitlines()
    first = next(i for i, line in enumerate(lines) if "test_messages.py:" in line)
    assert lines[first].endswith(":  x[")
    assert [line.strip() for line in lines[first + 1 : first + 5]] == ["i", "+ 1000", "] = (", "1.0"]
    assert len({len(line) - len(line.lstrip()) for line in (lines[first + 3], lines[first + 5])}) == 1


# sizes and distances ------------------------------------------------------------------------------------------

ADDRESS = "mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1;"


@pytest.mark.parametrize("some", ["selp.u32 %r3, 4, 0, %p1;", "mov.u32 %r3, 4;"])
def test_a_copy_of_some_threads_names_its_size(some: str) -> None:
    lines = f""".shared .align 16 .b32 s[32]; {ADDRESS} mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 4, %r2;
    setp.gt.u32 %p1, %r1, 15; {some} cp.async.ca.shared.global [%r2], [%rd2], 4, %r3; cp.async.wait_all;"""
    with pytest.raises(OutOfBounds, match="load of 4 bytes .* the access lies 0 bytes past the end of it") as error:
        run(kernel(lines), np.zeros(20, np.float32))
    assert error.value.place is not None and error.value.place.lane == 20


@pytest.mark.parametrize(
    ("offset", "overflow"),
    [
        (-(1 << 31), True),  # an offset in bytes that became negative
        (1 << 31, True),
        (-(1 << 33) + 8, True),  # an index of elements of 4 bytes
        ((1 << 32) + 64, True),
        (-8, False),
        (1 << 20, False),
        ((1 << 31) + 4096, False),
    ],
)
def test_a_distance_that_32_bits_cannot_hold(offset: int, overflow: bool) -> None:
    lines = f"{ADDRESS} mov.s64 %rd3, {offset}; add.s64 %rd2, %rd2, %rd3; ld.global.b32 %r2, [%rd2];"
    with pytest.raises(OutOfBounds) as error:
        run(kernel(lines), np.zeros(32, np.float32))
    assert ("32-bit overflow" in str(error.value)) == overflow
    assert ("a ragged edge needs a predicate" in str(error.value)) != overflow


# lost updates -------------------------------------------------------------------------------------------------


@cute.kernel
def count_kernel(x: cute.Tensor, in_place: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    s = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Int32, cute.make_layout(64), 16)
    s[i] = i
    cute.arch.sync_threads()
    if cutlass.const_expr(in_place):
        s[i % 4] = s[i % 4] + 1
    else:
        s[i] = s[63 - i]
    cute.arch.sync_threads()
    x[i] = s[i]


@cute.jit
def count(x: cute.Tensor, in_place: cutlass.Constexpr):
    count_kernel(x, in_place).launch(grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.parametrize("in_place", [True, False])
def test_a_race_of_an_update_with_itself_hints_at_atomics(in_place: bool) -> None:
    with pytest.raises(MissingBarrier) as error:
        count(from_dlpack(torch.zeros(64, dtype=torch.int32)), in_place)
    assert ("atomic" in str(error.value)) == in_place


@pytest.mark.parametrize(
    ("statement", "updates"),
    [
        ("s[v] += 1", True),
        ("    s[v, 0] = max(s[v, 0], 3)", True),
        ("s[v] = s[w] + 1", False),
        ("x = s[v]", False),
        ("x += s[v]", False),
        ("copy(s[v], t[v])", False),
        ("if s[v]:", False),
        ("", False),
    ],
)
def test_which_statements_update_a_place(statement: str, updates: bool) -> None:
    assert _updates(statement) == updates
