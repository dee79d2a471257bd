"""Device-side printf and assertions (CUDA C++ Programming Guide, "Formatted Output").

vprintf(format, arguments) gets two generic addresses: the format string, and a buffer in which the
arguments lie one after the other, each at a multiple of its size.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EmulatorError, OutOfBounds, Trap
from ..machine.memory import HOST, index, read_bytes, threads_of
from ..machine.opcodes import Selection, Step, unsupported
from ..ptx.syntax import Group, Sink, Symbol

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*))?"
    r"(?P<length>hh|h|ll|l|j|z|t)?(?P<kind>[diouxXeEfFgGaAcsp%])"
)
_INTEGER = {"d": "d", "i": "d", "u": "d", "o": "o", "x": "x", "X": "X"}


def decode_vprintf(inst: Instruction, machine: Machine, groups: list[Group]) -> Step:
    """Print one line per thread, in thread order, and return the number of arguments."""
    arguments = groups[-1].items
    if len(arguments) != 2 or not all(isinstance(a, Symbol) for a in arguments):
        raise unsupported(inst, "vprintf takes a format and an argument buffer")
    get_format, get_buffer = (_param_value(machine, a) for a in arguments)
    store_result = _result_writer(machine, groups)

    def step(sel: Selection) -> None:
        formats, buffers = get_format(sel), get_buffer(sel)
        for i, thread in enumerate(threads_of(sel).tolist()):
            text = _c_string(machine, int(formats[i]), thread)
            machine.out.write(_format(machine, text, int(buffers[i]), thread))
        store_result(sel, 1)

    return step


def decode_assertfail(inst: Instruction, machine: Machine, groups: list[Group]) -> Step:
    """A device-side assertion failed: message, file, line and function are in the arguments."""
    message, file, line, function = (
        _param_value(machine, a, size) for a, size in zip(groups[-1].items, (8, 8, 4, 8), strict=False)
    )

    def step(sel: Selection) -> None:
        thread = int(threads_of(sel)[0])
        one = np.array([thread])
        text, where, what = (_c_string(machine, int(get(one)[0]), thread) for get in (message, file, function))
        raise Trap(
            f"assertion failed: {text} ({where}:{int(line(one)[0])}, {what})",
            threads=threads_of(sel),
            hint="the assertion",
        )

    return step


def _param_value(machine: Machine, operand: object, nbytes: int = 8):  # type: ignore[no-untyped-def]
    """A getter of the value that st.param left in a parameter of the call."""
    if not isinstance(operand, Symbol):
        raise EmulatorError(f"{operand} is not a parameter of a call")
    offset = machine.local_offsets[operand.name]
    return lambda sel: HOST[nbytes][index(machine.local.host_base[sel] + offset, nbytes)]


def _result_writer(machine: Machine, groups: list[Group]):  # type: ignore[no-untyped-def]
    if len(groups) < 2 or isinstance(groups[0].items[0], Sink):
        return lambda sel, value: None
    result = groups[0].items[0]
    assert isinstance(result, Symbol)
    offset = machine.local_offsets[result.name]

    def write(sel: Selection, value: int) -> None:
        HOST[4][index(machine.local.host_base[sel] + offset, 4)] = value

    return write


def _host(machine: Machine, address: int, nbytes: int, thread: int) -> int:
    located = machine.generic.reach(np.array([address]), nbytes, np.array([thread]))
    return int(located[0])


def _c_string(machine: Machine, address: int, thread: int) -> str:
    allocation = machine.memory.find(address)
    if allocation is None:
        raise OutOfBounds(f"printf reads a string at {address:#x}, outside every variable", threads=np.array([thread]))
    raw = read_bytes(address, allocation.end - address)
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _format(machine: Machine, text: str, buffer: int, thread: int) -> str:
    """C's printf over an argument buffer."""
    offset = 0

    def fetch(nbytes: int) -> bytes:
        nonlocal offset
        offset = -(-offset // nbytes) * nbytes
        value = read_bytes(_host(machine, buffer + offset, nbytes, thread), nbytes)
        offset += nbytes
        return value

    def convert(match: re.Match[str]) -> str:
        kind = match["kind"]
        if kind == "%":
            return "%"
        width, precision = (
            str(int.from_bytes(fetch(4), "little", signed=True)) if match[f] == "*" else match[f]
            for f in ("width", "precision")
        )
        spec = "%" + match["flags"] + (width or "") + (f".{precision}" if precision else "")
        if kind in _INTEGER:
            nbytes = 8 if match["length"] in ("l", "ll", "j", "z", "t") else 4
            value = int.from_bytes(fetch(nbytes), "little", signed=kind in "di")
            return (spec + _INTEGER[kind]) % value
        if kind == "c":
            return (spec + "c") % chr(fetch(4)[0])
        if kind == "s":
            return (spec + "s") % _c_string(machine, int.from_bytes(fetch(8), "little"), thread)
        if kind == "p":
            return hex(int.from_bytes(fetch(8), "little"))
        number = float(np.frombuffer(fetch(8), np.float64)[0])
        if kind in "aA":
            return number.hex()
        return (spec + kind) % number

    return _CONVERSION.sub(convert, text)
