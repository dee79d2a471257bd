"""One launch of a kernel: what host code hands over, which memory it may touch, and when it runs."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import launch, ptx
from ..checks.peers import Peer
from ..checks.tensormaps import MAP_BYTES
from ..errors import LaunchError, own_failures
from ..machine import machine, multicast
from ..machine.memory import Closed, GlobalMemory
from ..machine.residents import SM_COUNT, blocks_per_sm
from . import concurrent_launches, cuda_api, fresh, gpus, graphs, live, ranks, stream_order, together
from .cuda_api import CudaCallError
from .dlpack import Span
from .stream_order import Moment

Dim = tuple[int, int, int]
Find = Callable[[int], "tuple[int, int, str] | None"]

# cudaLaunchAttributeID
COOPERATIVE, CLUSTER, PROGRAMMATIC, PROGRAMMATIC_EVENT, COMPLETION_EVENT = 2, 4, 6, 7, 12
# These change when a kernel may start or what stays cached, never what it computes: ignore, access policy window,
# synchronization policy, cluster scheduling preference, priority, memory synchronisation domains, preferred
# cluster, shared memory carve-out.
WITHOUT_EFFECT = {0, 1, 3, 5, 8, 9, 10, 11, 14}
ATTRIBUTE_BYTES = 72
TENSOR_MAP_ALIGN = 64  # of a CUtensorMap that is a parameter of a kernel
TOO_LARGE = 720  # cudaErrorCooperativeLaunchTooLarge

PEER = "cudaDeviceEnablePeerAccess on that GPU for the other one, before the launch; or a copy there"
RENDEZVOUS = (
    "the address that rendezvous or get_peer_tensor gives of symmetric memory: other memory of another process has none"
)
MULTICAST = "multimem.ld_reduce, multimem.st and multimem.red; or the buffers of the GPUs, one by one"

_written: dict[int, object] = {}  # by stream, what the last launch on it left for the next


class CudaStatus(Exception):
    """A call fails with this cudaError_t, which the host code handles itself."""

    def __init__(self, code: int) -> None:
        self.code = code


@dataclass
class Library:
    """What one cubin becomes: the PTX it was assembled from."""

    module: ptx.Module


@dataclass(frozen=True)
class Kernel:
    """A kernel handle of host code."""

    library: Library
    name: str

    @property
    def function(self) -> ptx.Function:
        return self.library.module.kernels[self.name]

    def static_shared(self) -> int:
        """Bytes of shared memory it declares, without the dynamic part."""
        variables = [*self.library.module.variables.values(), *self.function.variables.values()]
        return sum(v.nbytes for v in variables if v.space == "shared" and not v.extern)


@dataclass
class Attributes:
    """The launch attributes that matter here; `events` are recorded when the kernel has run.

    A programmatic launch does not wait for the end of the one before it on its stream.
    """

    cluster: Dim = (1, 1, 1)
    cooperative: bool = False
    events: list[int] = field(default_factory=list)
    programmatic: bool = False


@dataclass
class Launch:
    """A kernel with everything it was launched with; `arguments` are those of the Python call, by name."""

    kernel: Kernel
    params: list[bytes]
    grid: Dim
    block: Dim
    shared: int
    stream: int
    attributes: Attributes
    arguments: dict[str, Any]
    gpu: int = 0

    def submit(self) -> None:
        """Run the kernel now, or with the graph that its stream is being captured into.

        Raises CudaStatus for a cooperative grid that cannot be on the GPU at once.
        """
        if self.attributes.cooperative and self._ctas() > self._resident():
            raise CudaStatus(TOO_LARGE)
        self.stream = self._stream()
        moment = graphs.issue(self.stream)
        if graphs.capturing(self.stream):
            graphs.add(self.run, moment)
        else:
            self.run(moment)
        for event in self.attributes.events:
            cuda_api.record(event, self.stream)

    def run(self, moment: Moment) -> None:
        """Run it to its end; the next launch on the stream learns what this one leaves for it.

        moment: its place in the order of all launches. With several GPUs it waits for its turn (together.py).
        """
        if gpus.several():
            where = concurrent_launches.where_launched(self.stream)
            where = f"by rank {ranks.number()} {where}" if ranks.several() else where
            together.issue(together.Issued(moment, self.gpu, where, self._begin, self._ended))
            return
        memory = self._memory()
        previous = _written.pop(self.stream, None)  # of a launch that fails, nothing is left
        report = launch.launch(
            self.kernel.library.module,
            self.kernel.name,
            grid=self.grid,
            block=self.block,
            cluster=self.attributes.cluster,
            dynamic_smem=self.shared,
            params=self.params,
            memory=memory,
            cooperative=self.attributes.cooperative,
            stream=self.stream,
            programmatic=self.attributes.programmatic,
            previous=previous,
            turn=concurrent_launches.turn(moment, self.stream),
            out=sys.stdout,
        )
        concurrent_launches.over(moment, self.stream, report)
        if report.written is not None:
            _written[self.stream] = report.written

    def _stream(self) -> int:
        """The stream among those of all GPUs. Raises CudaStatus for one of a GPU that is not the current one."""
        self.gpu = gpus.current
        stream = stream_order.on_gpu(self.stream, self.gpu)
        home = stream_order.program.gpu_of(stream)
        if gpus.several() and home != self.gpu:
            raise CudaCallError(
                f"a kernel is launched on a stream of GPU {home} while GPU {self.gpu} is the current one: CUDA "
                "refuses that",
                hint="torch.cuda.set_device, or `with torch.cuda.device(i):` around the launch",
            )
        return stream

    def _memory(self) -> GlobalMemory:
        """What it may touch, while the launches of other GPUs that are under way touch theirs."""
        with own_failures("it looked for the memory that the launch may use"):
            memory = reachable(possible_pointers(self.kernel.function, self.params), self.arguments, self.gpu)
            fresh.watch(memory, together.memories())
        return memory

    def _begin(self, peer: Peer) -> launch.UnderWay:
        """Start it among the launches of other GPUs."""
        memory = self._memory()
        shape = machine.Launch(
            self.grid, self.block, self.attributes.cluster, self.shared, tuple(self.params),
            self.attributes.cooperative, self.stream, self.attributes.programmatic, _written.pop(self.stream, None),
        )  # fmt: skip
        return launch.UnderWay(self.kernel.library.module, self.kernel.name, shape, memory, peer=peer, out=sys.stdout)

    def _ended(self, running: launch.UnderWay) -> None:
        if running.report.written is not None:
            _written[self.stream] = running.report.written

    def _ctas(self) -> int:
        x, y, z = self.grid
        return x * y * z

    def _resident(self) -> int:
        x, y, z = self.block
        return SM_COUNT * blocks_per_sm(x * y * z, self.shared + self.kernel.static_shared())


def forget() -> None:
    """The streams are no more: a later one of the same number has no previous launch."""
    _written.clear()
    together.abandon()
    concurrent_launches.forget()


def launch_attributes(raw: bytes) -> Attributes:
    """Read an array of cudaLaunchAttribute.

    Raises CudaCallError for an attribute that would change what the kernel does and is not emulated.
    """
    found = Attributes()
    for start in range(0, len(raw), ATTRIBUTE_BYTES):
        identifier, first, second, third = struct.unpack_from("<I4x3I", raw, start)
        if identifier == CLUSTER:
            found.cluster = (first or 1, second or 1, third or 1)
        elif identifier == COOPERATIVE:
            found.cooperative = bool(first)
        elif identifier == PROGRAMMATIC:
            found.programmatic = bool(first)
        elif identifier in (PROGRAMMATIC_EVENT, COMPLETION_EVENT):
            found.events.append(first | second << 32)
        elif identifier not in WITHOUT_EFFECT:
            raise CudaCallError(f"the launch attribute {identifier} (cudaLaunchAttributeID) is not emulated")
    return found


def read_params(function: ptx.Function, pointers: int) -> list[bytes]:
    """The bytes of each kernel parameter, from the array of pointers a launch is given."""
    addresses = (ctypes.c_uint64 * len(function.params)).from_address(pointers) if function.params else ()
    return [ctypes.string_at(a, p.nbytes) for a, p in zip(addresses, function.params, strict=True)]


def possible_pointers(function: ptx.Function, params: list[bytes]) -> set[int]:
    """Every aligned 64-bit word of the parameters that could be an address of this process.

    Of a tensor map only the first word is one (tensormap.py); host code leaves its second half as the stack was.
    """
    words: set[int] = set()
    for variable, value in zip(function.params, params, strict=True):
        is_map = (variable.nbytes, variable.align) == (MAP_BYTES, TENSOR_MAP_ALIGN)
        whole = value[: 8 if is_map else len(value) // 8 * 8]
        words.update(word for (word,) in struct.iter_unpack("<Q", whole) if 4096 <= word < 1 << 47)
    return words


def reachable(words: set[int], arguments: dict[str, Any], gpu: int = 0) -> GlobalMemory:
    """The memory a launch may touch: the call's tensors, and whatever else these words of its parameters point into.

    A pointer that is only found in memory, in a table of pointers, is resolved when the kernel uses it.
    Raises LaunchError when a parameter points into a tensor that is not on the device.
    """
    found = [item for name, value in arguments.items() for item in live.spans(name, value)]
    host = [span for span, on_device in found if not on_device]
    find = _find_from(gpu)
    memory = GlobalMemory(find if any(_may_hold_pointers(span) for span, _ in found) else None)
    memory.freed = live.freed
    memory.closed = lambda address: _closed(address, gpu)
    spans = [span for span, on_device in found if on_device and span.nbytes and gpus.reaches(gpu, span.start)]
    spans = [span for span in spans if multicast.window(span.start) is None]
    words = words | {span.start for span, _ in found if multicast.window(span.start) is not None}
    for span in spans:
        memory.add(span.start, span.nbytes, span.label)
        live.reached(span)
    with live.one_search():
        _add_pointers(memory, words, spans, host, find)
    return memory


def _find_from(gpu: int) -> Find:
    """`live.find`, of the memory that a GPU may use."""
    if not gpus.several():
        return live.find
    return lambda address: live.find(address) if gpus.reaches(gpu, address) else None


def _closed(address: int, gpu: int) -> Closed | None:
    """Why a GPU may not use an address, if that is because the memory is another GPU's, or that of several."""
    if multicast.window(address) is not None:
        return Closed("a multicast address, which only multimem's instructions may use", MULTICAST, "out-of-bounds")
    if gpus.reaches(gpu, address) or (found := live.find(address)) is None:
        return None
    where = f"in the memory of {found[2]} on GPU {gpus.home(address)}: GPU {gpu} has no peer access to it"
    return Closed(where, RENDEZVOUS if ranks.several() else PEER, "no-peer-access")


def _add_pointers(memory: GlobalMemory, words: set[int], spans: list[Span], host: list[Span], find: Find) -> None:
    """Whatever the words of the parameters point into."""
    for word in words:
        if any(span.holds(word) for span in spans):
            continue
        if (window := multicast.window(word)) is not None:
            _add_pointers(memory, set(window.buffers), spans, host, find)
            continue
        for span in host:
            if span.holds(word):
                raise LaunchError(
                    f"{span.label} is in the host's memory, which a kernel cannot reach",
                    hint='allocate it with device="cuda" or move it with .cuda()',
                )
        if (other := find(word)) is not None:
            memory.add(*other)
            live.reached(Span(*other))
            if memory.resolver is None and _may_hold_pointers(Span(*other)):
                memory.resolver = find


def _may_hold_pointers(span: Span) -> bool:
    """Whether the elements may be addresses: 64-bit integers, or memory without a type."""
    return span.label.endswith("int64") or span.label.startswith("allocation of")
