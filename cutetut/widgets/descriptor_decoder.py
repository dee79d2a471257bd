"""The 64 bits that say where WGMMA finds an operand in shared memory: read and written field by field."""

from __future__ import annotations

import re
from typing import Any

import traitlets

from cutetut import figures
from cutetut.figures import stills
from cutetut.inspect import descriptors
from cutetut.inspect.descriptors import DescriptorError
from cutetut.widgets.base import Picker, source

DIGITS = 16  # hexadecimal ones, of 64 bits


class DescriptorDecoder(Picker):
    """Take a matrix descriptor apart, and put it together again from its fields (PTX ISA section 9.7.15.5.1.2.2).

    It says which of the leading and stride byte offsets the hardware looks at, and along what they step.

    Args:
        value: the 64 bits, as an integer such as `a_bits` from `inspect.descriptors.used`, or in hexadecimal.
        major: "K" or "MN", the major of the operand, which stands in the instruction and not in the descriptor.
        title: a heading.

    Traits (both ways, also from the browser): `value`, hexadecimal with 16 digits, and `major`.

    Raises:
        descriptors.DescriptorError: a value that is not 64 bits.
        traitlets.TraitError: another major.
    """

    _esm = source("common.js", "descriptor_decoder.js")
    _css = source("common.css", "descriptor_decoder.css")

    title = traitlets.Unicode("").tag(sync=True)
    value = traitlets.Unicode("0x" + "0" * DIGITS).tag(sync=True)
    major = traitlets.Enum(("K", "MN"), default_value="K").tag(sync=True)
    _fields = traitlets.List().tag(sync=True)
    _roles = traitlets.Dict().tag(sync=True)
    _swizzles = traitlets.Dict().tag(sync=True)

    def __init__(self, value: int | str, *, major: str = "K", title: str = "") -> None:
        super().__init__(
            value=value if isinstance(value, str) else _written(value),
            major=major,
            title=title,
            _fields=[list(field) for field in descriptors.FIELDS],
            _roles={
                name: [list(descriptors.roles(code, mn_major)) for code in range(4)]
                for name, mn_major in (("K", False), ("MN", True))
            },
            _swizzles={str(code): nbytes for code, nbytes in descriptors.SWIZZLE_BYTES.items()},
        )

    @property
    def bits(self) -> int:
        """The value as an integer."""
        return int(self.value, 16)

    @traitlets.validate("value")
    def _check_value(self, proposal: Any) -> str:
        return _written(read_bits(proposal.value))

    def __repr__(self) -> str:
        names = ("start", "LBO", "SBO", "base offset", "swizzle")
        held = [raw if nbytes is None else nbytes for _, _, raw, nbytes in descriptors.fields(self.bits)]
        listed = ", ".join(f"{name} {value}" for name, value in zip(names, held, strict=True))
        return f"DescriptorDecoder({self.value}, {self.major}-major: {listed})"

    def still(self) -> figures.Picture:
        lbo, sbo = descriptors.roles(self.bits >> 62, self.major == "MN")
        notes = {"leading byte offset": lbo, "stride byte offset": sbo}
        title = self.title or f"{self.value}, {self.major}-major"
        return stills.descriptor_bits(self.bits, notes, title=title, text=repr(self))


def read_bits(text: str) -> int:
    """Return the 64 bits that hexadecimal text stands for; DescriptorError says what to change."""
    digits = re.sub(r"^0x", "", text.strip(), flags=re.IGNORECASE).replace("_", "")
    if not digits:
        raise DescriptorError("type a hexadecimal value, such as 0x4000004000010000")
    wrong = re.search(r"[^0-9a-fA-F]", digits)
    if wrong:
        raise DescriptorError(f'"{wrong[0]}" is no hexadecimal digit: those are 0 to 9 and a to f')
    if len(digits) > DIGITS:
        raise DescriptorError(f"{len(digits)} digits: a descriptor has 64 bits, {DIGITS} digits at most")
    return int(digits, 16)


def _written(bits: int) -> str:
    if not 0 <= bits < 1 << 64:
        raise DescriptorError(f"{bits:#x} is not a value of 64 bits, from 0 to 2^64 - 1")
    return f"{bits:#018x}"
