"""Answers to exercises: any form of a right one is read, and nothing that is wrong ends in a traceback."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch

from cutetut import answers
from cutetut.answers import NotYet
from cutetut.inspect import diagnose
from cutetut.widgets import LayoutViewer

ONE_NAN = torch.tensor(float("nan"))
STRANGE: list[Any] = [None, "7", b"7", float("nan"), float("inf"), True, 7.5, {}, {7}, object(), 7j, len, (), []]


@pytest.mark.parametrize(
    "answer", [7, 7.0, np.int32(7), np.float64(7), np.array(7), np.array([7]), torch.tensor(7), cutlass.Int16(7)]
)
def test_a_number_in_any_form_is_read(answer: Any) -> None:
    assert answers.number(answer) == 7 and type(answers.number(answer)) is int


def test_a_number_of_any_size_is_read() -> None:
    assert answers.number(10**400) == 10**400


@pytest.mark.parametrize("answer", [*STRANGE, (7,), [7], torch.tensor([7, 8]), np.array([]), ONE_NAN])
def test_what_is_no_number_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet, match="number"):
        answers.number(answer)


@pytest.mark.parametrize("answer", [2.5, np.float32(2.5), np.array([2.5]), torch.tensor(2.5), Fraction(5, 2)])
def test_a_real_number_in_any_form_is_read(answer: Any) -> None:
    assert answers.real(answer) == 2.5 and type(answers.real(answer)) is float


@pytest.mark.parametrize("answer", [None, True, "2.5", (2.5,), [2.5], float("nan"), -float("inf"), 10**400, ONE_NAN])
def test_what_is_no_real_number_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet, match="number"):
        answers.real(answer)


@pytest.mark.parametrize(
    "answer", [(1, 2, 3), [1, 2, 3], range(1, 4), np.arange(1, 4), torch.arange(1, 4), (1.0, 2, 3)]
)
def test_numbers_in_any_form_are_read(answer: Any) -> None:
    assert answers.numbers(answer, 3) == (1, 2, 3)


def test_an_iterator_is_read_once_and_no_further_than_needed() -> None:
    assert answers.numbers(map(int, "123"), 3) == (1, 2, 3)
    assert answers.truths((n > 0 for n in (1, 0)), 2) == (True, False)
    for iterator in (map(int, "12"), itertools.count(), (1 // n for n in (1, 0, 2))):
        with pytest.raises(NotYet):
            answers.numbers(iterator, 3)


@pytest.mark.parametrize("answer", [*STRANGE, 3, (1, 2), (1, 2, 3, 4), "123", (1, 2, None), (1, 2, "3"), np.array(3)])
def test_what_are_no_three_numbers_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet):
        answers.numbers(answer, 3)


def test_the_number_that_is_wrong_is_counted_from_one() -> None:
    with pytest.raises(NotYet, match="^number 2 of the answer is a whole number, not text$"):
        answers.numbers((1, "2", 3), 3)


@pytest.mark.parametrize(
    "answer",
    [(True, False), [np.True_, np.False_], np.array([True, False]), torch.tensor([True, False])],
)
def test_truth_values_in_any_form_are_read(answer: Any) -> None:
    assert answers.truths(answer, 2) == (True, False)


@pytest.mark.parametrize("answer", [*STRANGE, (1, 0), (True,), (True, None), "TF", ((4, 6), 1), (True, np.ones(2))])
def test_what_are_no_two_truth_values_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet):
        answers.truths(answer, 2)


@pytest.mark.parametrize(
    "answer",
    [
        "(4,8):(8,1)",
        " ( 4, 8 ) : ( 8, 1 ) ",
        ((4, 8), (8, 1)),
        [[4, 8], [8, 1]],
        (np.array([4, 8]), torch.tensor([8, 1])),
        ((np.int32(4), torch.tensor(8)), (np.int64(8), 1)),
        np.array([[4, 8], [8, 1]]),
        torch.tensor([[4, 8], [8, 1]]),
        lambda: cute.make_layout((4, 8), stride=(8, 1)),
        LayoutViewer("(4,8):(8,1)"),
        LayoutViewer("32:1", "composition", "(4,8):(8,1)"),
    ],
)
def test_a_layout_in_any_form_is_read(answer: Any) -> None:
    assert str(answers.layout(answer)) == "(4,8):(8,1)"


NO_LAYOUTS = [*STRANGE, "(4,8)", ((4, 8), 8), (4, None), lambda: 1, lambda: cute.nothing, "a:b", torch.ones(4, 8)]


@pytest.mark.parametrize("answer", NO_LAYOUTS)
def test_what_is_no_layout_is_a_hint_of_one_line(answer: Any) -> None:
    with pytest.raises(NotYet) as hint:
        answers.layout(answer, "the layout")
    assert "\n" not in str(hint.value) and str(hint.value).startswith("the layout: ")


def test_a_check_says_right_or_not_yet(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(answer: Any) -> None:
        if answers.number(answer) != 3:
            raise NotYet("count again")

    for answer in (3, 4, None):
        check(answer)
    assert capsys.readouterr().out.splitlines() == [
        "right",
        "not yet: count again",
        "not yet: the answer is a whole number, not None",
    ]


def test_a_call_with_too_many_or_too_few_answers_is_told_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(shape: Any, stride: Any = None) -> None:
        raise TypeError("of the check's own")

    for call in (lambda: check(), lambda: check(4, 1, 2), lambda: check(4, size=1)):
        call()
        assert capsys.readouterr().out.startswith("not yet: the call does not fit check(shape, stride): ")
    with pytest.raises(TypeError, match="own"):
        check(4)


def test_an_answer_that_ends_the_program_is_not_right(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(answer: Any) -> None:
        answer()

    check(lambda: sys.exit("done"))
    assert capsys.readouterr().out == "not yet: your answer calls exit()\n"


def test_a_hint_has_no_codes_for_colours(capsys: pytest.CaptureFixture[str]) -> None:
    @answers.judged
    def check(answer: Any) -> None:
        raise NotYet(answer)

    check("\x1b[91m\x1b[1merror[PHASE]:\x1b[0m no, see a[0]\x1b[9")  # the last one was cut off
    check("plain\x1b")
    assert capsys.readouterr().out == "not yet: error[PHASE]: no, see a[0]\nnot yet: plain\n"


# Answers that are called or launched --------------------------------------------------------------------------------


@cute.kernel
def copies(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i]


@cute.kernel
def erases(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 0.0
    y[i] = 0.0


@cute.kernel
def goes_too_far(x: cute.Tensor, y: cute.Tensor):
    """And before that writes what another lane read before a shuffle, which the emulator warns of."""
    print("Traced: once")
    i, _, _ = cute.arch.thread_idx()
    y[i] = cute.arch.shuffle_sync(y[31 - i], 0)
    y[i] = x[i + 1]


@cute.kernel
def refused(x: cute.Tensor, y: cute.Tensor):
    x.nothing_of_this_name()


@cute.kernel
def multiplies_vectors(x: cute.Tensor, y: cute.Tensor):
    op = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    a, b = (cute.make_rmem_tensor((count,), cutlass.Float16) for count in (8, 4))
    c = cute.make_rmem_tensor((4,), cutlass.Float32)
    cute.gemm(cute.make_tiled_mma(op), c, a, b, c)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, kernel: cutlass.Constexpr):
    kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_launch_without_a_fault_has_written_its_result(dtype: torch.dtype) -> None:
    x = torch.arange(32).to(dtype)
    x[3] = float("nan")  # which equals nothing, and has not changed
    y = torch.zeros(32, dtype=dtype)
    answers.emulated(launch, x, y, copies)
    assert torch.equal(y.nan_to_num(), x.nan_to_num()) and y[3].isnan()


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (erases, "your answer changes x, which it may only read"),
        (goes_too_far, r"OutOfBounds: load of 4 bytes, outside .* the nearest is x \(32,\) float32"),
        (refused, "nothing_of_this_name"),
        (multiplies_vectors, "^DSLOperationBuildError: 'cute.gemm' op expects rank 2 or 3 for A, but got: 1$"),
        (None, "'NoneType' object is not callable"),
        ("text", "'str' object is not callable"),
        (lambda x, y: torch.ones(2, 2) @ torch.ones(2, 2).T, "put @cute.kernel above the function"),
        (lambda x, y: None, "put @cute.kernel above the function"),
    ],
)
def test_what_is_wrong_with_a_launch_is_said_in_one_line(kernel: Any, says: str) -> None:
    x, y = torch.ones(32), torch.zeros(32)
    with pytest.raises(NotYet, match=says) as hint, warnings.catch_warnings():
        warnings.simplefilter("error")
        answers.emulated(launch, x, y, kernel)
    assert "\n" not in str(hint.value) and len(str(hint.value)) <= 500


def test_a_fault_is_told_with_who_did_it_and_what_to_look_at() -> None:
    with pytest.raises(NotYet) as hint:
        answers.emulated(launch, torch.ones(32), torch.zeros(32), goes_too_far)
    said = str(hint.value)
    assert said.startswith("OutOfBounds: load of 4 bytes, outside ") and "0x" not in said
    assert "; kernel goes_too_far, CTA (0, 0, 0), warp 0, lane 31 (thread (31, 0, 0)); Look at: the tile's " in said


def reported(kernel: Any) -> str:
    """What the emulator says of a kernel, as `mistakes.report` has it."""
    found = diagnose.fault(launch, torch.ones(32), torch.zeros(32), kernel)
    return diagnose.NO_FAULT if found is None else f"{type(found).__name__}: {found}"


def test_a_report_without_a_fault_is_passed_on_alone_or_with_more() -> None:
    assert answers.must_run(reported, copies) == diagnose.NO_FAULT
    warned = f"warning: slow\n{diagnose.NO_FAULT}"
    assert answers.must_run(lambda *given: given, warned, 3) == (warned, 3)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda: reported(goes_too_far), "^OutOfBounds: .*; kernel goes_too_far, .*; Look at: "),
        (lambda: (reported(goes_too_far), 3), "^OutOfBounds: "),
        (lambda: reported(refused), "^AttributeError: .*nothing_of_this_name"),
        (lambda: 1 // 0, "^ZeroDivisionError: .*division"),
    ],
)
def test_what_a_kernel_must_not_do_is_told(run: Any, says: str) -> None:
    with pytest.raises(NotYet, match=says) as hint:
        answers.must_run(run)
    assert "\n" not in str(hint.value)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            "Race: two stores\n  kernel k\n  a.py:3:  x = 1\nLook at: a barrier",
            "Race: two stores; kernel k; Look at: a barrier",
        ),
        ("warning: slow\n  kernel k\nRace: two stores", "Race: two stores"),
        ("Race: a store at address 0x7f3\nLook at: it", "Race: a store; Look at: it"),
        (
            "Deadlock: all wait:\n  CTA (0, 0, 0), warps [0] wait at barrier 7 (a.py:3)\n    more\nLook at: it",
            "Deadlock: all wait: CTA (0, 0, 0), warps [0] wait at barrier 7; Look at: it",
        ),
        ("Deadlock: alone:", "Deadlock: alone:"),
        ("nothing that we know", "nothing that we know"),
    ],
)
def test_a_report_becomes_one_line(report: str, line: str) -> None:
    assert answers.hint(report) == line
    assert len(answers.hint(f"A: {'word ' * 99}\n{'word ' * 99}\nLook at: {'word ' * 99}")) <= 3 * 180 + 4


def not_rewritten(y: cute.Tensor) -> None:
    for i in cutlass.range_constexpr(32):
        y[i] = 1.0


def not_rewritten_either(y: cute.Tensor) -> None:
    for i in cutlass.range(32):
        y[i] = 1.0


def by_if(y: cute.Tensor) -> None:
    if y[0] > 0:
        y[0] = 1.0


def by_max(y: cute.Tensor) -> None:
    y[0] = max(y[0], 1.0)


REMEDIES = {
    "use Python's range there, or put @cute.jit above": (not_rewritten, not_rewritten_either),
    "a value that only a thread has: put @cute.jit above the function": (by_if, by_max),
}


@pytest.mark.parametrize(
    ("part", "remedy"), [(part, remedy) for remedy, parts in REMEDIES.items() for part in parts]
)
def test_a_function_that_the_dsl_does_not_rewrite_is_reported_with_its_remedy(part: Any, remedy: str) -> None:
    @cute.kernel
    def kernel(x: cute.Tensor, y: cute.Tensor):
        part(y)

    with pytest.raises(NotYet, match=remedy):
        answers.emulated(launch, torch.ones(32), torch.zeros(32), kernel)


def test_the_remedy_for_such_a_loop_is_one() -> None:
    @cute.jit
    def rewritten(y: cute.Tensor) -> None:
        for i in cutlass.range_constexpr(32):
            y[i] = 1.0

    @cute.kernel
    def kernel(x: cute.Tensor, y: cute.Tensor):
        rewritten(y)

    y = torch.zeros(32)
    answers.emulated(launch, torch.ones(32), y, kernel)
    assert torch.equal(y, torch.ones(32))


@pytest.mark.parametrize("kind", ["counter", "thread", "math"])
def test_a_number_that_comes_too_late_for_python_is_reported_in_plain_words(kind: str) -> None:
    """CuTe DSL has one message for an index and for a function of `math`; the hint ends with the line it points at."""

    @cute.kernel
    def by_a_counter(x: cute.Tensor, y: cute.Tensor):
        for i in range(2):
            y[i] = (1.0, 2.0)[i]

    @cute.kernel
    def by_a_thread(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = [1.0, 2.0][tid]

    @cute.kernel
    def by_math(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = math.tanh(x[tid])

    kernel, line = {
        "counter": (by_a_counter, "y[i] = (1.0, 2.0)[i]"), "thread": (by_a_thread, "y[tid] = [1.0, 2.0][tid]"),
        "math": (by_math, "y[tid] = math.tanh(x[tid])"),
    }[kind]  # fmt: skip
    with pytest.raises(NotYet, match="a number that is known while the kernel is traced") as hint:
        answers.emulated(launch, torch.ones(32), torch.zeros(32), kernel)
    assert str(hint.value).endswith(line)


def test_what_the_hint_for_a_late_if_names_can_be_used() -> None:
    @cute.kernel
    def chosen(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = x[cutlass.select_(tid < 3, 0, 1)] + cutlass.Float32(cutlass.max(tid, 30))

    x, y = torch.tensor([100.0, 200.0] * 16), torch.zeros(32)
    answers.emulated(launch, x, y, chosen)
    assert y.tolist() == [(100.0 if i < 3 else 200.0) + max(i, 30) for i in range(32)]


@pytest.mark.parametrize("kind", ["indexed", "two coordinates", "if", "compared"])
def test_a_layout_that_is_not_called_as_one_is_told_from_a_late_if(kind: str) -> None:
    @cute.kernel
    def indexed(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = x[cute.make_layout((4, 8), stride=(8, 1))[tid]]

    @cute.kernel
    def two_coordinates(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = x[cute.make_layout((4, 8), stride=(8, 1))(tid % 4, tid // 4)]

    def first(i: cutlass.Int32) -> int:
        return 0 if i < 3 else 1

    def larger(x: cute.Tensor, i: cutlass.Int32) -> cutlass.Float32:
        return x[i] if x[i] > x[0] else x[0]

    @cute.kernel
    def late(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = x[first(tid)]

    @cute.kernel
    def compared(x: cute.Tensor, y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        y[tid] = larger(x, tid)

    kernel, said = {
        "compared": (compared, "put @cute.jit above the function"),
        "indexed": (indexed, r"a layout is called, \( \): cute.make_layout\(.*\)\[tid\]$"),
        "two coordinates": (two_coordinates, "one coordinate, which may be a tuple"),
        "if": (late, "put @cute.jit above the function"),
    }[kind]
    with pytest.raises(NotYet, match=said):
        answers.emulated(launch, torch.ones(32), torch.zeros(32), kernel)


def aborts(x: cute.Tensor, y: cute.Tensor) -> None:
    print("aborts")
    os.abort()


def test_what_would_end_the_process_is_told_and_all_else_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    x, y = torch.ones(32), torch.zeros(32)
    with pytest.raises(NotYet, match="CuTe DSL would end this process when it compiles your answer"):
        answers.must_compile(launch, x, y, aborts)
    for kernel in (copies, goes_too_far, refused, None, lambda x, y: print("traced")):
        answers.must_compile(launch, x, y, kernel)
    assert not y.any() and capfd.readouterr() == ("", "")


def test_a_trial_does_not_wait_for_threads_that_a_forked_process_lacks() -> None:
    """OpenMP's copy a large tensor here. The emulator is put in place in that process alone, as on a GPU's host."""
    code = (
        "import torch\n"
        "from cutetut import answers\n"
        "from cutetut.emulator.host import driver\n"
        "from tests.test_answers import copies, launch\n"
        "driver.uninstall()\n"
        "torch.set_num_threads(2)\n"
        "x = torch.ones(1 << 20)\n"
        "x + x\n"
        "answers.must_compile(launch, x, x, copies)\n"
        "print('compiles', driver.installed())\n"
    )
    environment = {**os.environ, "CUTETUT_BACKEND": "emulator", "OMP_NUM_THREADS": "2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.endswith("compiles False\n"), ran.stderr


def test_outputs_may_be_written_to_and_inputs_may_not() -> None:
    x, y = torch.ones(32), torch.zeros(32)
    answers.emulated(launch, x, y, erases, outputs=2)
    assert not x.any()
    answers.unchanged(x, torch.zeros(32), "x")
    with pytest.raises(NotYet, match="changes A"):
        answers.unchanged(torch.zeros(2, 2), torch.eye(2), "A")


@pytest.mark.parametrize("answer", [None, 3, "f", (1,), float("nan"), torch.ones(2, 2), np.float32(3)])
def test_what_is_no_function_is_a_hint(answer: Any) -> None:
    with pytest.raises(NotYet, match="a function is asked for, not"):
        answers.returned(answer, 1)


def test_what_a_function_raises_is_a_hint_of_one_line() -> None:
    assert answers.returned(lambda a, b: a - b, 5, 3) == 2
    with pytest.raises(NotYet, match="^your function raises ZeroDivisionError: .*division"):
        answers.returned(lambda n: 1 // n, 0)


def test_a_function_that_makes_no_layout_is_told_why() -> None:
    """An error without a message as well."""
    for error, said in ((KeyError(), "KeyError"), (ValueError("a bad\nshape"), "ValueError: a bad shape")):
        def fails(error: Exception = error) -> None:
            raise error

        with pytest.raises(NotYet, match=f"CuTe cannot make it: {said}$"):
            answers.layout(fails)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError(), "KeyError"),
        (ValueError("\x1b[31ma\x1b[0m  bad\n   shape"), "a bad shape"),
        (RuntimeError("no such op --> /some/file.py:3\n  x = 1"), "no such op"),
        (RuntimeError("x --> f: IR verification failed: 'cute.copy' op is bad\n suggestion:"), "'cute.copy' op is bad"),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert answers.one_line(error) == line
    assert len(answers.one_line(ValueError("word " * 100))) <= 200


def test_what_nobody_wrote_is_not_zero_while_an_answer_runs() -> None:
    """An answer that forgets zeros must not be right because fresh memory often has them."""
    assert answers.returned(lambda: torch.empty(1000)).isnan().all()
    assert (answers.returned(lambda: torch.empty(1000, dtype=torch.int32)) == 2**31 - 1).all()
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(NotYet, match="RuntimeError"):
        answers.returned(lambda: torch.empty(3, 4).reshape(5))
    assert not torch.are_deterministic_algorithms_enabled()
