"""What `cutetut.course.placement` knows of a value while it reads a cell: where a tensor is, and what holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Host:
    """A torch tensor in the CPU's memory: what made it, in the words of the cell, and where."""

    made: str
    cell: str
    line: int


@dataclass(frozen=True)
class Device:
    """A torch tensor that was made on a device, or moved to one."""


@dataclass(frozen=True)
class CpuName:
    """The device's name "cpu", or a tensor's `.device` that is it."""


@dataclass(frozen=True)
class DType:
    """A type of elements, such as torch.float32."""


@dataclass(frozen=True)
class Dotted:
    """What a module or an import is called: "torch.zeros"."""

    name: str


@dataclass(frozen=True)
class Many:
    """Several values: a tuple, a list, a generator, or a dict's values with its keys, where they are plain text.

    `exact` says that there are just these, in this order; otherwise any number of them, in any.
    """

    items: tuple[Any, ...]
    exact: bool = True
    keys: tuple[object, ...] = ()

    def one(self) -> Any:
        """Any one of the items."""
        return joined(self.items)

    def at(self, key: object) -> Any:
        """The item of a position or a key, as far as it is known."""
        if key in self.keys:
            return self.items[self.keys.index(key)]
        if self.exact and isinstance(key, int) and not self.keys and -len(self.items) <= key < len(self.items):
            return self.items[key]
        return self.one()

    def unpacked(self, count: int) -> Sequence[Any]:
        """As many items as an assignment takes apart."""
        return self.items if self.exact and len(self.items) == count else [self.one()] * count


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the notebook: its definition, the names around it, the values of its defaults, and its cell."""

    node: ast.FunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Any]
    cell: str


@dataclass(frozen=True)
class Bound:
    """A function with its first arguments: functools.partial."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Choice:
    """One of several functions."""

    options: tuple[Any, ...]


Tensor = Host | Device
DTYPES = frozenset(
    """float32 float float64 double float16 half bfloat16 uint8 uint16 uint32 uint64 int8 int16 short int32 int int64
    long bool complex64 complex128 float8_e4m3fn float8_e5m2""".split()
)


@dataclass(eq=False)
class Scope:
    """Names and what they stand for; what is not here is looked up in the scope around."""

    names: dict[str, Any] = field(default_factory=dict)
    around: Scope | None = None

    def get(self, name: str) -> Any:
        """What a name stands for; None where nothing is known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        return None


def joined(values: Iterable[Any]) -> Any:
    """A value that may be any of these: on the CPU if one of them is."""
    result: Any = None
    for index, value in enumerate(values):
        result = value if index == 0 else _either(result, value)
    return result


def _either(a: Any, b: Any) -> Any:
    if a == b:
        return a
    for value in (a, b):
        if isinstance(value, Host):
            return value
    if isinstance(a, Many) and isinstance(b, Many):
        if a.exact and b.exact and len(a.items) == len(b.items) and a.keys == b.keys:
            return Many(tuple(_either(x, y) for x, y in zip(a.items, b.items, strict=True)), keys=a.keys)
        return Many((*a.items, *b.items), exact=False)
    if isinstance(a, Many | Function | Bound | Choice) or isinstance(b, Many | Function | Bound | Choice):
        known = [value for value in (a, b) if value is not None]
        return known[0] if len(known) == 1 else Choice(tuple(known))
    return None


def combined(values: Iterable[Any]) -> Any:
    """Where the result of an operation on these lies: on the device if one of them does."""
    found = list(_tensors(values))
    return next((one for one in found if isinstance(one, Device)), found[0] if found else None)


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Many):
            yield from _tensors(value.items)
        elif isinstance(value, Host | Device):
            yield value


def bound(names: ast.arguments, arguments: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """The values of a function's parameters as far as it is given them."""
    plain = [each.arg for each in (*names.posonlyargs, *names.args)]
    found = dict(zip(plain, arguments, strict=False)) | keywords
    if names.vararg is not None:
        found[names.vararg.arg] = Many(tuple(arguments[len(plain) :]))
    return found


def dotted(name: str) -> Any:
    """An import: a type of elements, or what it is called."""
    library, _, last = name.rpartition(".")
    return DType() if library == "torch" and last in DTYPES else Dotted(name)


def looped(value: Any) -> Sequence[Any]:
    """What a loop over a value goes through."""
    if isinstance(value, Many):
        return value.items if value.exact else (value.one(),)
    return (element(value),)


def element(value: Any) -> Any:
    """An element of a tensor, which lies where the tensor does; None for an unknown value."""
    return value if isinstance(value, Host | Device) else None


def is_exact(value: Any) -> bool:
    """Whether its items and their order are known."""
    return isinstance(value, Many) and value.exact


def zipped(values: Sequence[Any]) -> Many:
    """What `zip` makes of these."""
    if all(map(is_exact, values)) and len({len(each.items) for each in values}) == 1:
        return Many(tuple(Many(row) for row in zip(*(each.items for each in values), strict=True)))
    return Many((Many(tuple(joined(looped(one)) for one in values)),), exact=False)
