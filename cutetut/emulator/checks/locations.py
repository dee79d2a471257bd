"""Strong locations: what a flag, a lock or a counter in memory passes on to those who read it (PTX ISA section 8.9).

A release (st.release, atom.release, or a fence in front of a strong write) leaves with the location what its warp
knew.  An acquire (ld.acquire, atom.acquire, or a strong read with a fence behind it) takes that along, if the scopes
of both sides include each other (section 8.7.1).  An atomic operation hands on what it found there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..machine.access import CLUSTER, CTA, GPU, SYS, Access, Kind
from .clocks import ALL_LANES, Clocks, Knowledge
from .peers import Peer, Word

MOST_SEEN = 256  # releases that a warp remembers until a fence


@dataclass(frozen=True)
class Release:
    """What one release left: who may take it, and what it is worth."""

    scope: int
    cta: int  # of the releasing warp, counted over all waves
    knowledge: Knowledge
    of: Peer | None = None  # the launch that released it, if there are several at a time,
    word: Word | None = None  # and what it passes on to the others


class Locations:
    """All strong locations of a launch, by host address."""

    def __init__(self, clocks: Clocks, cta_of_warp: np.ndarray, cluster_size: int) -> None:
        self.clocks, self.cta_of_warp, self.cluster_size = clocks, cta_of_warp, cluster_size
        self.first_cta = 0  # of the present wave
        self.found: dict[int, list[Release]] = {}
        self.fences: dict[int, dict[int, Knowledge]] = {}  # warp -> scope -> what its last fence made ready
        # warp -> what it has read and no fence has acquired yet, and the lanes that have
        self.seen: dict[int, list[tuple[Release, int]]] = {}
        self.peer: Peer | None = None

    def join(self, peer: Peer) -> None:
        """Other launches run at the same time: what is released here is for them, too, and the other way round."""
        self.peer, self.found = peer, peer.company.found  # type: ignore[assignment]

    def new_wave(self, first_cta: int) -> None:
        self.first_cta = first_cta
        self.fences.clear()
        self.seen.clear()

    def fence(self, warp: int, lanes: int, scope: int, acquires: bool = True, releases: bool = True) -> None:
        """fence.{sc, acq_rel}.scope by some lanes of a warp."""
        one = np.array([warp])
        for release, readers in self.seen.get(warp, ()) if acquires else ():
            if readers & lanes and self._reaches(release, scope, warp):
                self.clocks.acquire(one, self._worth(release), np.array([readers & lanes], np.uint32))
        if releases:
            self.fences.setdefault(warp, {})[scope] = self.clocks.release(one, np.array([lanes], np.uint32))

    def observe(self, warp: int, lanes: int, release: Release) -> None:
        """Lanes have read what a release left, relaxed: a fence of theirs will acquire it."""
        seen = self.seen.setdefault(warp, [])
        for i, (other, readers) in enumerate(seen):
            if other is release:  # a spinning thread reads the same again and again
                seen[i] = release, readers | lanes
                return
        seen.append((release, lanes))
        del seen[:-MOST_SEEN]

    def observe_all(self, warps: np.ndarray, lanes: np.ndarray | None, known: Knowledge) -> None:
        """Lanes of warps have seen, relaxed, that something has happened: a fence of theirs will acquire it."""
        for i, warp in enumerate(warps.tolist()):
            mask = int(ALL_LANES if lanes is None else lanes[i])
            self.observe(warp, mask, Release(SYS, self._cta(warp), known, self.peer))

    def rejoin(self, warps: np.ndarray, lanes: int = int(ALL_LANES)) -> None:
        """These lanes of each of these warps meet: a fence of any acquires what one has read before.

        PTX asks for the fence of the very lane that has read; this follows what kernels do that are right on the GPU.
        """
        for warp in warps.tolist() if self.seen else ():
            if warp in self.seen:
                self.seen[warp] = [(release, readers | lanes if readers & lanes else readers)
                                   for release, readers in self.seen[warp]]  # fmt: skip

    def fenced(self, warp: int, least: int = CTA) -> Knowledge | None:
        """What a warp's fences of a scope, or of a wider one, have made ready for a relaxed arrival."""
        known: Knowledge | None = None
        for scope, knowledge in self.fences.get(warp, {}).items():
            known = knowledge.join(known) if scope >= least else known
        return known

    @property
    def idle(self) -> bool:
        """Whether nothing has been released and no fence executed: then relaxed accesses have no effect here."""
        return not self.found and not self.fences

    def access(self, hosts: np.ndarray, threads: np.ndarray, access: Access) -> None:
        """Threads use locations with a strong access, one after the other."""
        if self.idle and not access.releases:
            return
        warps = threads >> 5
        pairs = np.unique(np.stack((hosts, warps)), axis=1)
        for host, warp in pairs.T.tolist():
            lanes = threads[(hosts == host) & (warps == warp)] & 31
            mask = int(np.bitwise_or.reduce(np.uint32(1) << lanes.astype(np.uint32)))
            if access.loads:
                self._read(host, warp, mask, access)
            if access.stores:
                self._write(host, warp, mask, access)

    def _read(self, host: int, warp: int, lanes: int, access: Access) -> None:
        for release in self.found.get(host, ()):
            if not self._reaches(release, access.scope, warp):
                continue
            if access.acquires:
                self.clocks.acquire(np.array([warp]), self._worth(release), np.array([lanes], np.uint32))
            else:
                self.observe(warp, lanes, release)

    def _write(self, host: int, warp: int, mask: int, access: Access) -> None:
        """An atomic operation goes on with the releases before it; a plain strong store ends those of others."""
        cta = self._cta(warp)
        before = self.found.get(host, [])
        releases = before if access.kind is Kind.ATOMIC else [r for r in before if self._own(r, CTA, cta)]
        ready = [(min(scope, access.scope), known) for scope, known in self.fences.get(warp, {}).items()]
        if access.releases:
            ready.append((access.scope, self.clocks.release(np.array([warp]), np.array([mask], np.uint32))))
        elif access.kind is not Kind.ATOMIC and not ready:
            releases = []
        for scope, known in ready:
            same = next((r for r in releases if self._own(r, scope, cta)), None)
            merged = known if same is None else known.join(same.knowledge)
            word = None if self.peer is None or scope < GPU else self.peer.word(merged)
            releases = [r for r in releases if r is not same] + [Release(scope, cta, merged, self.peer, word)]
        if releases:
            self.found[host] = releases
        else:
            self.found.pop(host, None)

    def _own(self, release: Release, scope: int, cta: int) -> bool:
        """Whether this launch made a release of this scope, and one CTA all that such a release counts for."""
        return release.of is self.peer and release.scope == scope and (release.cta == cta or scope >= GPU)

    def _worth(self, release: Release) -> Knowledge:
        """What a thread learns from a release that reaches it."""
        if release.of is self.peer or self.peer is None or release.word is None:
            return release.knowledge
        return self.peer.knowledge(release.word)

    def _cta(self, warp: int) -> int:
        return self.first_cta + int(self.cta_of_warp[warp])

    def _reaches(self, release: Release, scope: int, warp: int) -> bool:
        """Whether each side is within the scope of the other."""
        cta, least = self._cta(warp), min(scope, release.scope)
        if self.peer is not None and release.of is not None and release.of is not self.peer:
            return self.peer.includes(release.of, least)
        if least >= GPU or cta == release.cta:
            return least >= CTA
        return least >= CLUSTER and cta // self.cluster_size == release.cta // self.cluster_size
