"""Compare a result against a reference so that a wrong kernel cannot pass.

The usual `assert (a - b).abs().max() < tol` lets NaN through the moment someone writes it the other way
round, and says nothing about where the kernel went wrong. `check` counts an element as right only if it is
provably close, and names the first one that is not. On success it prints one line without measured noise,
so the line is the same on a GPU and on the emulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


class CheckFailed(AssertionError):
    """A result differs from its reference by more than the check allows."""


@dataclass(frozen=True)
class CheckReport:
    """What a passed check measured, for those who want more than the printed line.

    `max_abs_error` is max |actual - expected| and `max_rel_error` max |actual - expected| / |expected| over
    the elements where expected is finite (and, for the latter, not zero); both are 0.0 where there are none.
    """

    name: str
    shape: tuple[int, ...]
    max_abs_error: float
    max_rel_error: float
    atol: float
    rtol: float

    def _ipython_display_(self) -> None:
        """Show nothing: a check that ends a notebook cell must not echo digits that vary by machine."""


def check(actual: Any, expected: Any, *, atol: float, rtol: float = 0.0, name: str = "C") -> CheckReport:
    """Raise unless every element of `actual` is within atol + rtol * |expected| of `expected`.

    actual, expected: torch tensors on any device, or numpy arrays, of one shape and any real dtype (bf16
    and fp8 included). They are compared in float64, integers exactly. NaN passes only where NaN is
    expected, and an infinity only where the same infinity is. Raises CheckFailed naming the first bad
    index, how many elements are bad and the largest error; also when the shapes differ or there is
    nothing to compare. Raises ValueError for a negative or non-finite tolerance, TypeError for other inputs.
    """
    for label, tolerance in (("atol", atol), ("rtol", rtol)):
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise ValueError(f"{label} must be a finite number >= 0, got {tolerance}")
    a, a_dtype = _on_host(actual, "actual")
    e, e_dtype = _on_host(expected, "expected")
    if a.shape != e.shape:
        raise CheckFailed(f"{name}: shape {_shape(a.shape)} does not match the expected {_shape(e.shape)}")
    if a.size == 0:
        raise CheckFailed(f"{name}: shape {_shape(a.shape)} has no elements, so nothing was checked")

    finite = np.isfinite(a) & np.isfinite(e)
    error = np.full(a.shape, np.inf, dtype=np.result_type(a, e))
    np.subtract(a, e, out=error, where=finite)
    np.abs(error, out=error)
    allowed = atol + rtol * np.abs(np.where(finite, e, 0.0))
    good = (finite & (error <= allowed)) | (np.isnan(a) & np.isnan(e)) | (np.isinf(a) & (a == e))
    within = _tolerance(atol, rtol)
    if not good.all():
        raise CheckFailed(_explain(name, a, e, error, good, f"{a_dtype} against {e_dtype}, allowed: {within}"))
    print(f"{name}: {_shape(a.shape)} {a_dtype} matches {e_dtype} {within}")
    scaled = finite & (e != 0)
    return CheckReport(
        name=name,
        shape=a.shape,
        max_abs_error=float(error[finite].max(initial=0.0)),
        max_rel_error=float((error[scaled] / np.abs(e[scaled])).max(initial=0.0)),
        atol=atol,
        rtol=rtol,
    )


def _on_host(value: Any, which: str) -> tuple[np.ndarray, str]:
    """The values as a host array wide enough to hold them exactly, and the name of their dtype."""
    dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    if hasattr(value, "detach"):  # a torch tensor; numpy has no bf16 or fp8, so torch widens it
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind in "OUSVMmc" and "float" not in dtype:  # ml_dtypes' bfloat16 and fp8 have kind V
        raise TypeError(f"{which} is {dtype}: check compares real torch tensors or numpy arrays")
    # longdouble holds every int64 and uint64 exactly where it has a 64-bit significand (x86-64)
    return array.astype(np.longdouble if array.dtype.kind in "iu" else np.float64), dtype


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _tolerance(atol: float, rtol: float) -> str:
    if atol == 0 and rtol == 0:
        return "exactly"
    parts = [_short(atol)] if atol else []
    if rtol:
        parts.append(f"{_short(rtol)} * |expected|")
    return "within " + " + ".join(parts)


def _short(value: float) -> str:
    """1e-04 where that is the value, else all its digits: a tolerance is never printed rounded."""
    text = f"{value:.0e}"
    return text if float(text) == value else repr(float(value))


def _explain(name: str, a: np.ndarray, e: np.ndarray, error: np.ndarray, good: np.ndarray, kinds: str) -> str:
    bad = ~good
    count = int(bad.sum())
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    lines = [
        f"{name}: {count} of {a.size} elements are wrong ({_shape(a.shape)} {kinds})",
        f"  first at {list(first)}: actual {float(a[first]):.9g}, expected {float(e[first]):.9g}",
    ]
    measured = bad & np.isfinite(error)
    if measured.any():
        worst = np.unravel_index(int(np.where(measured, error, -1).argmax()), a.shape)
        where = [int(i) for i in worst]
        lines.append(f"  largest error {float(error[worst]):.6g} at {where}")
    nan, inf = int((bad & np.isnan(a)).sum()), int((bad & np.isinf(a)).sum())
    if nan or inf:
        lines.append(f"  NaN in {nan} and Inf in {inf} of the wrong elements")
    if count == a.size and not a.any():
        lines.append("  every element is 0: was the kernel launched, and did it write to this tensor?")
    return "\n".join(lines)
