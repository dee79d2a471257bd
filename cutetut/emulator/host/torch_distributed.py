"""torch.distributed for the ranks of one process: how they are started, and what each has for itself.

`start` runs a program as ranks.  PyTorch's own code makes the groups; where it would open NCCL or Gloo it gets one
that the ranks of this process share (process_group.py).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import random
import sys
import sysconfig
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.cuda.nccl
import torch.distributed as dist
import torch.utils._device
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from . import gpus, graphs, nvshmem, process_group, ranks, stream_order, symmetric, torch_streams
from .cuda_api import CudaCallError
from .patches import Patches
from .process_group import Group
from .ranks import Slot

BACKEND = "cutetut"  # the name under which torch knows the ranks' groups
NCCL = (2, 28, 9)  # the version that PyTorch 2.13 comes with
TIMEOUT = timedelta(minutes=10)  # NCCL's; nothing takes any time here
_GLOBALS = (  # of torch.distributed.distributed_c10d: what one process knows of its groups
    "_world", "_group_count", "_pg_map", "_pg_names", "_pg_group_ranks", "_pg_backend_config", "_tags_to_pg",
    "_pg_to_tag",
)  # fmt: skip
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def start(number: int, program: Callable[[int], int]) -> int:
    """Run a program as `number` ranks, each with the environment of torchrun; returns the exit status."""
    patches = Patches()
    install(patches)

    def run(rank: int) -> int:
        os.environ.update(environment(rank, number))
        return program(rank)

    try:
        return ranks.run(number, run, slots())
    finally:
        patches.restore()
        process_group.forget()
        symmetric.forget()
        nvshmem.forget()
        stream_order.program.hosts = {0: {}}


def environment(rank: int, size: int) -> dict[str, str]:
    """The variables that torchrun sets for a process of one host."""
    number, count = str(rank), str(size)
    return {
        "RANK": number, "LOCAL_RANK": number, "GROUP_RANK": "0", "ROLE_RANK": number, "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count, "ROLE_WORLD_SIZE": count, "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default",
        "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


# -- what each rank has for itself -----------------------------------------------------------------


def slots() -> list[Slot]:
    """Where it is: environment, arguments, folder, `__main__`, its modules, random numbers, current GPU and streams."""
    return [
        Slot(lambda: dict(os.environ), _set_environment),
        Slot(lambda: list(sys.argv), lambda value: sys.argv.__setitem__(slice(None), value)),
        Slot(os.getcwd, os.chdir),
        ranks.attribute(sys, "excepthook"),
        _modules(),
        ranks.attribute(importlib._bootstrap, "_module_locks", dict),  # one may wait for another in an import
        ranks.attribute(gpus, "current"),
        ranks.attribute(graphs, "_capture"),
        Slot(torch_streams.state, torch_streams.set_state),
        Slot(lambda: None, _set_rank),
        ranks.attribute(torch.utils._device, "CURRENT_DEVICE"),
        Slot(torch.get_rng_state, torch.set_rng_state),
        Slot(random.getstate, random.setstate),
        Slot(np.random.get_state, np.random.set_state),
        _groups(),
    ]


def _set_environment(value: dict[str, str]) -> None:
    if value != dict(os.environ):
        os.environ.clear()
        os.environ.update(value)


def _set_rank(_: None) -> None:
    stream_order.program.rank = ranks.number()
    stream_order.program.hosts.setdefault(ranks.number(), {})


def _modules() -> Slot:
    """The modules of the program: those imported since, from elsewhere than the installed packages, and `__main__`."""
    before = set(sys.modules) - {"__main__"}

    def read() -> dict[str, Any]:
        new = {name: module for name, module in list(sys.modules.items()) if name not in before}
        return {name: module for name, module in new.items() if name == "__main__" or _of_program(module)}

    def write(value: dict[str, Any]) -> None:
        for name in read():
            del sys.modules[name]
        sys.modules.update(value)

    return Slot(read, write)


def _of_program(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not file.startswith(_LIBRARIES) and not module.__name__.startswith("cutetut")


def _groups() -> Slot:
    """torch.distributed's process groups. Each rank begins without any."""
    module, world = distributed_c10d, type(distributed_c10d._world)

    def write(value: list[Any]) -> None:
        for name, each in zip(_GLOBALS, value, strict=True):
            setattr(module, name, each)

    return Slot(
        lambda: [getattr(module, name) for name in _GLOBALS], write, lambda: [world(), 0, *({} for _ in _GLOBALS[2:])]
    )


# -- torch.distributed -----------------------------------------------------------------------------


def install(patches: Patches) -> None:
    """Let torch.distributed serve the ranks of this process."""
    store = dist.HashStore()
    backend = dist.Backend
    for table in ("backend_list", "default_device_backend_map", "backend_capability", "backend_type_map", "_plugins"):
        patches.set(backend, table, type(getattr(backend, table))(getattr(backend, table)))
    patches.set(backend, BACKEND.upper(), BACKEND)
    dist.Backend.register_backend(BACKEND, _create, devices=["cpu", "cuda"])
    for module in (dist, distributed_c10d):
        patches.set(module, "is_nccl_available", lambda: True)
        patches.set(module, "init_process_group", _init(dist.init_process_group))
        patches.set(module, "batch_isend_irecv", _batched(distributed_c10d.batch_isend_irecv))
    patches.set(torch.cuda.nccl, "version", lambda: NCCL)  # torch.distributed asks for it when a call fails
    patches.set(distributed_c10d, "default_pg_nccl_timeout", TIMEOUT)
    helper = distributed_c10d._new_process_group_helper
    patches.set(distributed_c10d, "_new_process_group_helper", _named(helper))
    patches.set(distributed_c10d, "rendezvous", functools.partial(_rendezvous, store))
    for name in ("TCPStore", "FileStore"):  # their waits would keep the other ranks from coming
        patches.set(dist, name, _refused(name))
    isolate: Callable[[bool], None] = vars(c10d)["_set_thread_isolation_mode"]  # each thread knows its own groups
    isolate(True)
    patches.later(lambda: isolate(False))
    symmetric.install(patches)
    nvshmem.install(patches)


def _create(_store: Any, rank: int, size: int, _timeout: Any) -> Group:
    return Group(rank, size, *_asked)


_asked: tuple[Any, ...] = ((), (), "")  # of the group that is being made: its ranks, devices and name


def _named(original: Callable[..., Any]) -> Callable[..., Any]:
    """_new_process_group_helper makes a group that knows its ranks, and goes by the name of NCCL or Gloo."""

    signature = inspect.signature(original)

    @functools.wraps(original)
    def helper(*args: Any, **options: Any) -> Any:
        global _asked
        given = signature.bind(*args, **options).arguments
        backend = str(given["backend"])
        _asked = (given["global_ranks_in_group"], _devices(backend), str(given["group_name"]))
        for option in ("backend_options", "pg_options", "device_id"):
            given.pop(option, None)
        group, prefix = original(**{**given, "backend": dist.Backend(BACKEND)})
        if isinstance(group, Group):
            shown = "nccl" if backend == "undefined" else backend
            distributed_c10d._world.pg_map[group] = (dist.Backend(shown), prefix)
            distributed_c10d._world.pg_backend_config[group] = backend
        return group, prefix

    return helper


def _devices(backend: str) -> tuple[str, ...]:
    """The devices that a backend serves: "nccl", "gloo", "cpu:gloo,cuda:nccl", or what torch takes without one."""
    if ":" in backend:
        return tuple(each.split(":")[0] for each in backend.split(","))
    found = {"nccl": ("cuda",), "gloo": ("cpu", "cuda"), "undefined": ("cpu", "cuda")}.get(backend)
    if found is None:
        raise CudaCallError(f"the backend {backend} of torch.distributed is not emulated", hint='backend="nccl"')
    return found


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    """init_process_group: `device_id` needs a torch that was built for CUDA."""

    @functools.wraps(original)
    def init_process_group(*args: Any, device_id: Any = None, **options: Any) -> None:
        original(*args, **options)
        if device_id is not None:
            where = torch.device("cuda", device_id) if isinstance(device_id, int) else torch.device(device_id)
            group = distributed_c10d._get_default_group()
            assert isinstance(group, Group)
            group.device = where

    return init_process_group


def _rendezvous(store: Any, _url: str, rank: int = -1, size: int = -1, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Where the ranks of one process find each other."""
    own = int(os.environ["RANK"]) if rank < 0 else rank
    yield store, own, int(os.environ["WORLD_SIZE"]) if size < 0 else size


def _batched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: Any) -> Any:
        group = p2p_op_list[0].group if p2p_op_list else None
        group = group or distributed_c10d._get_default_group()
        with group.batched():
            return original(p2p_op_list)

    return batch_isend_irecv


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> None:
        raise CudaCallError(f"torch.distributed.{name} is not emulated", hint="init_process_group makes what it needs")

    return refuse
