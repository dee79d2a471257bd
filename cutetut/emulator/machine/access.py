"""How an instruction uses memory: what it asks of the memory spaces, and they of the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from .threads import Selection

WEAK, CTA, CLUSTER, GPU, SYS = range(5)  # how far a strong access reaches (PTX ISA section 8.5); 0: it is not strong
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "gl": GPU, "sys": SYS}


class Kind(Enum):
    LOAD = "load of"
    STORE = "store to"
    ATOMIC = "atomic operation on"
    COPY = "cp.async to"
    REMOTE = "st.async to"


@dataclass(frozen=True)
class Access:
    """How one instruction uses memory: `nbytes` per thread, and its place in the memory model (section 8.3 on).

    `values` gives what a store will write, a row per `nbytes / len(rows)` bytes: to write what is there already, or
    the same as another thread, harms nobody.
    """

    inst: int
    nbytes: int
    kind: Kind = Kind.LOAD
    scope: int = WEAK
    acquires: bool = False
    releases: bool = False
    non_coherent: bool = False
    ignores_old: bool = False  # atom.exch: what is there need not have been written
    values: Callable[[Selection], list[np.ndarray]] | None = None

    @property
    def stores(self) -> bool:
        return self.kind is not Kind.LOAD

    @property
    def loads(self) -> bool:
        return self.kind in (Kind.LOAD, Kind.ATOMIC)

    @classmethod
    def of(
        cls, parts: tuple[str, ...], inst: int, nbytes: int, kind: Kind,
        values: Callable[[Selection], list[np.ndarray]] | None = None,
    ) -> Access:  # fmt: skip
        """From the dotted parts of an opcode: .volatile counts as .relaxed.sys, an atomic without a scope as .gpu."""
        scope = next((SCOPES[p] for p in parts if p in SCOPES), GPU)
        if "volatile" in parts or "mmio" in parts:
            scope = SYS
        elif kind is not Kind.ATOMIC and not {"relaxed", "acquire", "release"} & set(parts):
            scope = WEAK
        return cls(
            inst, nbytes, kind, scope, not {"acquire", "acq_rel"}.isdisjoint(parts),
            not {"release", "acq_rel"}.isdisjoint(parts), "nc" in parts, "exch" in parts, values,
        )  # fmt: skip


class Checks(Protocol):
    """What the memory spaces call for every access; each method raises what it finds."""

    def uses(self, access: Access) -> Access:
        """An instruction that accesses memory is decoded; the same access."""

    def shared(self, host: np.ndarray, sel: Selection, access: Access) -> None:
        """Threads are about to use shared memory at these host addresses."""

    def globally(self, region: object, host: np.ndarray, sel: Selection, access: Access) -> None:
        """Threads are about to use an allocation that the launch may write."""

    def flag(self, host: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads use memory that the launch only reads, with a strong access."""

    def cta_over(self, cta: int, thread: int) -> None:
        """The last thread of a CTA has exited."""

    def visits(self, threads: np.ndarray, hosts: np.ndarray, inst: int | None) -> None:
        """Threads use shared memory of other CTAs, numbered `hosts`."""
