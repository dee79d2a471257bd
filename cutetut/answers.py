"""Read a reader's answer to an exercise in whatever form it comes, or say what is missing; never a traceback.

A check is a function decorated with `judged`. It asks `number`, `numbers`, `real`, `truths` or `layout` for the value
of an answer, and raises `NotYet` with a hint where it is wrong. An answer that is a function is called by `returned`,
one that is a kernel is run by `emulated`, or by `must_run` where the check makes the emulator's report; `must_compile`
comes first where CuTe DSL would end the process on some wrong answers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import numbers as abc_numbers
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import cutlass
import torch

from cutetut import layouts, progress
from cutetut.emulator.errors import EmulatorError, EmulatorWarning
from cutetut.inspect import run
from cutetut.inspect.diagnose import NO_FAULT, fault
from cutetut.layouts import LayoutError
from cutetut.widgets.layout_operations import layout_of
from cutetut.widgets.layout_text import LayoutText, read_layout

Made = TypeVar("Made")

# What CuTe DSL says of cutlass.range and cutlass.range_constexpr in a function without @cute.jit or @cute.kernel.
NOT_REWRITTEN = re.compile(r"range_constexpr should be preprocessed|dynamic range should be always preprocessed")

COLOUR = re.compile(r"\x1b(?:\[[0-9;]*m?)?")  # a terminal's code for a colour, perhaps cut off in the middle

FAULT = re.compile(r"[A-Z]\w*: ")  # how the line of a report begins that names the fault; its warnings come before
PLACES = re.compile(r" at (?:global )?address 0x[0-9a-f]+| \(\S+\.py:\d+\)")  # differ from run to run

# Python wants a number that only a thread has: an index of a list or tuple, or what a function of `math` takes.
LATE_NUMBER = "error[PHASE_DYNAMIC_INDEX]"
# The line of source that CuTe DSL points at, and the expression in it
AT_LINE = re.compile(r"^ *\d+ \| (?P<line>.*)\n *\| (?P<before> *)(?P<marks>\^+)", re.MULTILINE)
LATE_IF = "error[PHASE_DYNAMIC_TO_STATIC_BOOL]"  # Python is to decide by a value that only a thread knows
# CuTe refuses an operation: with what it found and what to do, or with the line of source that it came from.
REFUSED = re.compile(
    r'IR verification failed: (.*?) suggestion|Verification failed: error: .*?":\d+:\d+\): (.*?) note:'
)

TWO_COORDINATES = "_Layout.__call__() got multiple values for argument 'loc'"
NO_KERNEL = "object has no attribute 'launch'"  # a plain function was called where a kernel is to be launched


class NotYet(Exception):
    """An answer is missing or wrong; the message is a hint that does not give it away."""


def judged(check: Callable[..., None]) -> Callable[..., None]:
    """Make a check print "right", or "not yet" and the hint of the NotYet that it raised.

    A hint may quote an error, without its colour codes. An answer that ends the program, as `exit()` does, and a call
    with too many answers count as not yet right: in a notebook each would print a traceback.
    A right answer is kept for `cutetut progress`.
    """
    asked = inspect.signature(check)

    @functools.wraps(check)
    def wrapped(*answers: Any, **named: Any) -> None:
        try:
            asked.bind(*answers, **named)
        except TypeError as misfit:
            print(f"not yet: the call does not fit {check.__name__}({', '.join(asked.parameters)}): {misfit}")
            return
        try:
            check(*answers, **named)
        except NotYet as hint:
            print(f"not yet: {COLOUR.sub('', str(hint))}")
        except SystemExit:
            print("not yet: your answer calls exit()")
        else:
            print("right")
            progress.note()

    return wrapped


def number(answer: Any, what: str = "the answer") -> int:
    """Return a whole number: Python's, numpy's, CuTe DSL's, of a tensor of one element, or a float without a fraction.

    Raises NotYet for text, None, NaN, truth values, and anything that is not one number.
    """
    answer = _scalar(answer, what, "a whole number")
    if not _is_whole(answer):
        raise NotYet(f"{what} is a whole number, not {answer}")
    return int(answer)


def real(answer: Any, what: str = "the answer") -> float:
    """Return a finite number: Python's, numpy's, or of a tensor with one element. Raises NotYet for all else."""
    answer = _scalar(answer, what, "a number")
    try:
        value = float(answer)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise NotYet(f"{what} is a finite number, not {value}")
    return value


def _scalar(answer: Any, what: str, kind: str) -> Any:
    """Python's number for an answer that is one number. Raises NotYet, which says which `kind` is wanted."""
    if isinstance(answer, cutlass.Numeric):
        answer = answer.value  # what Int16(5) was made of, and no number in a kernel
    item = getattr(answer, "item", None)
    if callable(item):
        try:
            answer = item()
        except (TypeError, ValueError, RuntimeError):
            raise NotYet(f"{what} is one number, not {type(answer).__name__} with several") from None
    if not _is_real(answer):
        raise NotYet(f"{what} is {kind}, not {_kind(answer)}")
    return answer


def numbers(answer: Any, count: int, what: str = "the answer") -> tuple[int, ...]:
    """Return `count` whole numbers: a tuple, a list, an array, a tensor or an iterator of them. Raises NotYet."""
    listed = _listed(answer, count, f"{what} is {count} numbers")
    return tuple(number(one, f"number {i} of {what}") for i, one in enumerate(listed, start=1))


def truths(answer: Any, count: int, what: str = "the answer") -> tuple[bool, ...]:
    """Return `count` truth values, Python's or numpy's or of a tensor. Raises NotYet, for numbers too."""
    listed = _listed(answer, count, f"{what} is {count} truth values")
    found = [one.item() if getattr(one, "shape", None) == () else one for one in listed]
    for one in found:
        if not isinstance(one, bool):
            raise NotYet(f"{what} is {count} truth values, True or False, not {_kind(one)}")
    return tuple(found)


def layout(answer: Any, what: str = "the answer") -> LayoutText:
    """Return a layout: from text as CuTe prints it, a pair (shape, stride), a function that makes one, or a viewer.

    Raises NotYet for anything else, and with the reason for what is written wrongly.
    """
    if answer is None or isinstance(answer, bool | float | int):
        raise NotYet(f'{what}: a layout such as "(4,8):(8,1)" is asked for, not {_kind(answer)}')
    try:
        return read_layout(_layout_text(answer))
    except LayoutError as error:
        raise NotYet(f"{what}: {error}") from None


def offsets(of: LayoutText) -> list[int]:
    """Return CuTe's offsets of a layout, in the order of its 1-D index."""
    return [int(offset) for offset in layouts.offsets(lambda: layout_of(of)).ravel(order="F")]


def one_line(error: Exception | str) -> str:
    """What an error of Python or of CuTe says, in one line without colours and file names; at most 200 characters."""
    said = " ".join(COLOUR.sub("", str(error)).split())
    refused = REFUSED.search(said)
    short = textwrap.shorten(refused[1] or refused[2] if refused else said.split("-->")[0], 200, placeholder=" ...")
    return short or type(error).__name__


def hint(report: str) -> str:
    """The fault of an emulator's report in a line: its type, its first two lines, and what the emulator looks at."""
    lines = [line.strip() for line in PLACES.sub("", COLOUR.sub("", report)).splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if FAULT.match(line)), 0)
    what, *others = lines[start:]
    second = [line for line in others[:1] if not line.startswith("Look at: ")]
    look = [line for line in others if line.startswith("Look at: ")][:1]
    said = "; ".join(textwrap.shorten(line, 180, placeholder=" ...") for line in (what, *second, *look))
    return said.replace(":; ", ": ", 1)  # a line that ends in a colon announces the next


def raised(error: Exception) -> str:
    """An error in a line: its type and what it says, or the `hint` of a fault that the emulator raised."""
    name, said = type(error).__name__, one_line(error)
    if isinstance(error, EmulatorError):
        return hint(f"{name}: {error}")
    return said if said == name else f"{name}: {said}"


def attempted(make: Callable[[], Made]) -> Made:
    """Return what `make` returns, which uses a reader's answer. Raises NotYet with what CuTe or Python objects to."""
    try:
        return make()
    except NotYet:
        raise
    except Exception as error:  # what CuTe and Python refuse has no common type
        said = COLOUR.sub("", str(error))
        if NOT_REWRITTEN.search(said):
            raise NotYet(
                "the DSL does not rewrite the loops of a plain function, which runs while the kernel is traced: "
                "use Python's range there, or put @cute.jit above the function"
            ) from None
        if LATE_NUMBER in said:
            line, _ = _pointed_at(said)
            raise NotYet(
                "Python wants a number that is known while the kernel is traced, as an index of a list or tuple or in "
                "a function of `math`; what a thread has is not, nor what `range` counts, and `cute.math` takes both"
                + (f": {line}" if line else "")
            ) from None
        if LATE_IF in said:
            _, expression = _pointed_at(said)
            if expression.endswith("]") and not re.search(r"\s(?:[<>]=?|[!=]=)\s", expression):
                raise NotYet(f"a tensor is indexed, [ ], and a layout is called, ( ): {expression}") from None
            raise NotYet(
                "Python cannot decide while the kernel is traced about a value that only a thread has: "
                "put @cute.jit above the function, and the DSL rewrites its `if`; or use cutlass.max or cutlass.select_"
            ) from None
        if TWO_COORDINATES in said:
            raise NotYet("a layout takes one coordinate, which may be a tuple: layout((i, j))") from None
        if NO_KERNEL in said:
            raise NotYet("a kernel is asked for, to be launched: put @cute.kernel above the function") from None
        raise NotYet(raised(error)) from None


def _pointed_at(said: str) -> tuple[str, str]:
    """The line of source that an error of CuTe DSL points at, and the expression in it; both empty if there is none."""
    if not (found := AT_LINE.search(said)):
        return "", ""
    return found["line"].strip(), found["line"][len(found["before"]) :][: len(found["marks"])]


def must_run(run: Callable[..., Made], *arguments: Any, **named: Any) -> Made:
    """Return what `run` returns: the report of a kernel with a reader's parts, or a tuple that begins with it.

    Raises NotYet with what CuTe or Python objects to, or with the `hint` of the report, unless that has no fault.
    """
    found = attempted(lambda: run(*arguments, **named))
    said = found if isinstance(found, str) else found[0]  # type: ignore[index]
    if NO_FAULT not in said:
        raise NotYet(hint(said))
    return found


def returned(function: Any, *arguments: Any) -> Any:
    """Return what a reader's function returns. Raises NotYet if it is none, and with the error that it raises.

    Elements that `torch.empty` leaves unwritten are NaN meanwhile, or the largest integer: fresh memory is often zero,
    and an answer that needs zeros there would be right by luck.
    """
    try:
        with _nothing_is_zero_by_luck():
            return function_of(function)(*arguments)
    except NotYet:
        raise
    except Exception as error:  # it is the reader's: whatever it raises is a hint
        raise NotYet(f"your function raises {raised(error)}") from None


@contextlib.contextmanager
def _nothing_is_zero_by_luck() -> Iterator[None]:
    """PyTorch fills the memory of new tensors, as it does where it is asked for deterministic algorithms."""
    asked = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # what has no such algorithm runs all the same
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic", category=UserWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(asked[0], warn_only=asked[1])


def function_of(answer: Any, wanted: str = "a function") -> Callable[..., Any]:
    """Return the answer if it can be called. Raises NotYet, which says what is `wanted`, for all else."""
    if not callable(answer):
        raise NotYet(f"{wanted} is asked for, not {_kind(answer)}")
    return answer


def emulated(launch: Callable[..., Any], *arguments: Any, outputs: int = 1) -> None:
    """Run a `@cute.jit` function in the emulator, on every machine, with a reader's kernel or parts of one.

    arguments: what it takes; of the torch tensors among them, which are on the CPU, the last `outputs` are there to be
    written to, and the others may only be read. Raises NotYet with what CuTe or Python objects to, with the `hint` of
    the emulator's fault, or if one of those that may only be read has changed.
    """
    tensors = [i for i, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
    before = {i: arguments[i].clone() for i in tensors[: len(tensors) - outputs]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulatorWarning)
        found = attempted(lambda: fault(launch, *arguments))
    if found is not None:
        raise NotYet(raised(found))
    for i, was in before.items():
        unchanged(arguments[i], was, list(inspect.signature(launch).parameters)[i])


def must_compile(launch: Callable[..., Any], *arguments: Any) -> None:
    """Raise NotYet if CuTe DSL would end the process when `emulated` compiles this launch with a reader's parts.

    LLVM aborts on some operands that do not fit each other: that is no exception, and a notebook's kernel would die. So
    it is compiled in a forked process first, for the emulator on every machine, which takes no GPU; the compiler's
    output is kept on disk for `emulated`. An exception is left to `emulated`, which says what it means.
    """

    def compiled() -> None:
        torch.set_num_threads(1)  # it would wait for threads that a forked process does not have
        with run.emulated():
            run.prepare(launch, arguments, run.apart)

    if not layouts.survives(compiled):
        raise NotYet(
            "CuTe DSL would end this process when it compiles your answer, as it does where source and destination of "
            "a cute.copy are not in the order of the same copy"
        )


def unchanged(tensor: torch.Tensor, before: torch.Tensor, name: str) -> None:
    """Raise NotYet unless every byte of a tensor is what it was before the answer ran; `name` is the tensor's."""
    if not torch.equal(*(each.contiguous().flatten().view(torch.uint8) for each in (tensor, before))):
        raise NotYet(f"your answer changes {name}, which it may only read")


def _listed(answer: Any, count: int, what: str) -> list[Any]:
    """The entries of a sequence of this length, or of what an iterator yields. Raises NotYet."""
    if isinstance(answer, Iterator):  # it may never end
        entries = attempted(lambda: list(itertools.islice(answer, count + 1)))
        if len(entries) > count:
            raise NotYet(f"{what}, and more are given")
        answer = entries
    sequence = hasattr(answer, "__len__") and hasattr(answer, "__getitem__")
    if isinstance(answer, str | bytes | dict) or not sequence:
        raise NotYet(f"{what}, such as a tuple, not {_kind(answer)}")
    try:
        listed = list(answer)
    except (TypeError, ValueError):  # an array without an axis
        raise NotYet(f"{what}, not one") from None
    if len(listed) != count:
        raise NotYet(f"{what}, not {len(listed)}")
    return listed


def _is_real(answer: Any) -> bool:
    return isinstance(answer, abc_numbers.Real) and not isinstance(answer, bool)


def _is_whole(answer: Any) -> bool:
    """Whether a number is whole; integers too large for a float are."""
    return isinstance(answer, abc_numbers.Integral) or math.isfinite(answer) and answer == int(answer)


def _layout_text(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if hasattr(answer, "result"):  # a LayoutViewer
        return str(answer.result)
    if hasattr(answer, "tolist"):  # an array or a tensor with two rows
        answer = answer.tolist()
    if isinstance(answer, tuple | list) and len(answer) == 2:
        shape, stride = (_tree(part) for part in answer)
        return f"{shape}:{stride}"
    if not callable(answer):
        raise LayoutError(f'{_kind(answer)} is no layout: write text such as "(4,8):(8,1)"')
    try:
        return layouts.text(answer)
    except Exception as error:  # the DSL does not export its errors' types
        raise LayoutError(f"CuTe cannot make it: {raised(error)}") from error


def _tree(part: Any) -> str:
    if hasattr(part, "tolist"):  # numpy's or torch's numbers, one or several
        part = part.tolist()
    if isinstance(part, tuple | list):
        return f"({','.join(map(_tree, part))})"
    return str(part)


def _kind(answer: Any) -> str:
    if answer is None:
        return "None"
    return "text" if isinstance(answer, str) else " ".join(f"{type(answer).__name__} {answer!r}".split())[:60]
