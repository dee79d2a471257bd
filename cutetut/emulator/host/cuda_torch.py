"""A device called "cuda" for scripts that expect one.

A tensor is on it when its storage carries a mark, and `CudaMode` gives and passes on that mark.  The data stays in
this process's memory.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils._device
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._library.custom_ops import CustomOpDef
from torch.autograd.function import BackwardCFunction
from torch.testing import _comparison as comparison
from torch.utils._python_dispatch import TorchDispatchMode

from . import (
    concurrent_launches,
    fresh,
    gpus,
    graphs,
    live,
    pool,
    process_group,
    ranks,
    shared_uses,
    stream_order,
    together,
    torch_accelerator,
    torch_compile,
    torch_functions,
    torch_graphs,
    torch_matmul,
    torch_opcheck,
    torch_others,
    torch_streams,
    torch_waits,
    torch_writes,
    triton_absent,
)
from .patches import Patches
from .torch_functions import is_cuda
from .torch_streams import current_stream, index_of

ALIGNMENT = 256  # bytes: of all memory that cudaMalloc gives (CUDA C++ Programming Guide, "Device Memory Accesses")


def marked(tensor: object) -> bool:
    """Whether a tensor is on the device "cuda"."""
    if not issubclass(type(tensor), torch.Tensor):
        return False
    with torch._C.DisableTorchFunction():
        data = _data(tensor)
        return data.layout == torch.strided and hasattr(data.untyped_storage(), gpus.ON_GPU)


def gpu_of(tensor: torch.Tensor) -> int | None:
    """The GPU that a tensor is on; None for one in host memory."""
    if not marked(tensor):
        return None
    with torch._C.DisableTorchFunction():
        return int(getattr(_data(tensor).untyped_storage(), gpus.ON_GPU))


def _marked_storage(storage: Any) -> bool:
    return hasattr(getattr(storage, "_untyped_storage", storage), gpus.ON_GPU)


def _data(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that holds the data of one that torch.vmap or torch.func.grad passes around."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def _mark(tensor: torch.Tensor, gpu: int | None = None) -> torch.Tensor:
    """Put a tensor on a GPU, the current one if none is named."""
    data = _data(tensor)
    if data.layout == torch.strided:
        setattr(data.untyped_storage(), gpus.ON_GPU, gpus.current if gpu is None else gpu)
        pool.keep(data)
    return tensor


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor where the device's memory could hold it: at a multiple of ALIGNMENT, which torch's CPU memory lacks.

    Compiled functions check what from_dlpack and TVM-FFI were promised.
    """
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or is_functorch_wrapped_tensor(tensor):
        return tensor
    nbytes = tensor.untyped_storage().nbytes()
    if not nbytes or tensor.requires_grad or tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    return _room_for(tensor, nbytes).copy_(tensor)


def _room_for(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    """An aligned tensor of the same shape, strides and type in new memory, which ends with a whole word."""
    room = np.empty(nbytes + ALIGNMENT + fresh.WORD, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    moved = torch.frombuffer(room[start : start + nbytes], dtype=torch.uint8).view(tensor.dtype)
    return moved.as_strided(tensor.size(), tensor.stride())


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor as torch.empty gives it, in aligned memory that is known to be unwritten."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or is_functorch_wrapped_tensor(tensor):
        return tensor
    if not (nbytes := tensor.untyped_storage().nbytes()):
        return tensor
    if tensor.requires_grad:
        fresh.remember_tensor(tensor, nbytes)
        return tensor
    result = _room_for(tensor, nbytes)
    fresh.remember_tensor(result, -(-nbytes // fresh.WORD) * fresh.WORD)
    return result


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _key(tensor: torch.Tensor) -> int:
    data = _data(tensor)
    return data.untyped_storage()._cdata if data.layout == torch.strided else 0


def _move(tensor: torch.Tensor, result: torch.Tensor, to_cuda: bool, gpu: int | None = None) -> torch.Tensor:
    """What a move or conversion returns: a copy when the device changes, as between host and GPU, or two GPUs.

    gpu: which GPU, if to_cuda; without it the one that the tensor is on, or the current one.
    """
    before = gpu_of(tensor)
    if to_cuda and gpu is not None and before not in (None, gpu):
        assert before is not None
        _wait_for({before, gpu}, "a copy between GPUs")
        gpus.enable(before, gpu)  # as torch does before it copies between two
        return _mark(_aligned(result.clone() if _key(result) == _key(tensor) else result), gpu)
    if to_cuda != marked(tensor):
        torch_waits.for_current_stream(before)
        graphs.forbid("a copy between host and device that is not pinned", current_stream().cuda_stream)
    if to_cuda == marked(result):
        return result
    if _key(result) == _key(tensor):
        result = result.clone()
    return _mark(_aligned(result), before if gpu is None else gpu) if to_cuda else result


def _index(device: Any) -> int | None:
    """The number of the GPU that a device argument names, without an index the current one's; None if it names none."""
    return index_of(device) if is_cuda(device) else None


def _target(func: Any, kwargs: dict[str, Any]) -> bool | None:
    """Whether a call of a torch function asks for the device "cuda"; None when it names no device."""
    target = is_cuda(kwargs.get("device"))
    if target is None and func in torch.utils._device._device_constructors():
        target = is_cuda(torch.utils._device.CURRENT_DEVICE)
    return target


def _on_cuda(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a call of a torch function is work of the device."""
    return bool(_target(func, kwargs)) or any(map(marked, _tensors((*args, *kwargs.values()))))


class CudaMode(torch.overrides.TorchFunctionMode):
    """Lets every torch function take the device "cuda", and lets tensors report where they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if graphs.capturing(current_stream().cuda_stream) and _on_cuda(func, args, kwargs):
            with torch_graphs.Recorder():
                return _call(func, args, kwargs)
        return _call(func, args, kwargs)


def _call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    special, name = _SPECIAL.get(func), getattr(func, "__name__", "")
    if special is not None:
        if ranks.several() and name in _READERS:
            read = [each for each in args if isinstance(each, torch.Tensor) and marked(each)]
            return shared_uses.call(name, functools.partial(special, func), args, kwargs, read)
        return special(func, *args, **kwargs)
    kwargs.pop("pin_memory", None)
    target, gpu = _target(func, kwargs), _index(kwargs.get("device"))
    if target:
        kwargs["device"] = "cpu"
    inputs = list(_tensors((*args, *kwargs.values())))
    if gpus.several():
        if getattr(func, "__module__", "").startswith("torch.distributed"):
            return func(*args, **kwargs)
        gpu = _on_one_gpu(func, args, inputs, gpu)
    if ranks.several():
        result = shared_uses.call(name, func, args, kwargs, [each for each in inputs if marked(each)])
    else:
        result = func(*args, **kwargs)
    on_device = target or (target is None and any(map(marked, inputs)))
    if on_device and func in _EMPTIES and "out" not in kwargs:
        result = _empty(result)
    elif target and func in torch.utils._device._device_constructors():
        result = _aligned(result)
    if on_device:
        made = _mark_new(result, inputs, gpu)
        if concurrent_launches.a_stream_beside():
            torch_writes.called(func, args, kwargs, () if func in _EMPTIES else made, marked)
        if concurrent_launches.any_unordered():
            torch_waits.called(func, args, result, marked)
    return result


def _on_one_gpu(func: Any, args: Any, inputs: list[torch.Tensor], gpu: int | None) -> int | None:
    """The GPU on which a function of torch works, once the launches there that come before it have ended.

    Raises RuntimeError for tensors of several GPUs, unless they are copied.
    """
    used, name = {found for each in inputs if (found := gpu_of(each)) is not None}, getattr(func, "__name__", "")
    if not used or name in torch_waits.NO_WAIT or name in torch_waits.VIEWS:
        return gpu if gpu is not None else min(used, default=None)
    if len(used) > 1:
        if name not in _COPIES:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {name} found at least two devices, "
                f"{' and '.join(f'cuda:{each}' for each in sorted(used))}!"
            )
        source, target = gpu_of(args[-1]), gpu_of(args[0])
        if source is not None and target is not None:
            gpus.enable(source, target)  # as torch does before it copies between two
    _wait_for(used, f"torch's {name}")
    return gpu if gpu is not None else min(used)


def _wait_for(used: set[int], call: str) -> None:
    """Launches on these GPUs come before a function of torch, as far as their current streams wait for them."""
    together.torch_uses({gpu: stream_order.program.now(current_stream(gpu).number) for gpu in used}, call)


def _mark_new(result: Any, inputs: list[torch.Tensor], gpu: int | None = None) -> list[torch.Tensor]:
    """Put a function's results on the device, except those that share memory with what it was given; returns them."""
    known = {_key(tensor) for tensor in inputs}
    return [_mark(tensor, gpu) for tensor in _tensors((result,)) if _key(tensor) not in known]


class _Gradients(TorchDispatchMode):
    """While autograd runs, which no function mode sees: what is made of tensors on the device is on it too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = list(_tensors((*args, *kwargs.values())))
        result = func(*args, **kwargs)
        if any(map(marked, inputs)):
            _mark_new(result, inputs, next(filter(None, map(gpu_of, inputs)), 0))
        return result


def _kernel_for_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.library: a custom operator's kernel for "cuda" serves the tensors of this process's memory."""

    def register_kernel(self: Any, device_types: Any, fn: Any = None, /) -> Any:
        if fn is None:
            return lambda function: register_kernel(self, device_types, function)
        if device_types is not None:
            named = [device_types] if isinstance(device_types, str) else device_types
            device_types = list(dict.fromkeys("cpu" if name == "cuda" else name for name in named))

        @functools.wraps(fn)
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with CudaMode():  # torch calls it where no function mode reaches
                if torch_opcheck.judging:
                    for tensor in _tensors((*args, *kwargs.values())):
                        _mark(tensor)
                return fn(*args, **kwargs)

        return original(self, device_types, kernel)

    return register_kernel


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """autograd's engine: functions of the program that it calls back see the device as the program does."""

    def run(outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        if torch_opcheck.judging:
            return original(outputs, gradients, *args, **kwargs)
        for output, gradient in zip(outputs, gradients, strict=False):
            if isinstance(output, torch.Tensor) and gradient is not None and marked(output):
                _mark(gradient)  # the ones that autograd starts with when it is given no gradient
        stream_order.program.host_waits()  # autograd runs each function on its own stream and orders them
        with CudaMode(), _Gradients():
            result = original(outputs, gradients, *args, **kwargs)
        stream_order.program.host_waits()
        return result

    return run


def _function(original: Callable[..., Any]) -> Any:
    """torch.autograd.Function.apply: the node that it leaves knows which GPU each of the outputs is on."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(cls, *args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
        node = next((output.grad_fn for output in tensors if isinstance(output.grad_fn, cls._backward_cls)), None)
        if node is not None:
            node._cutetut_gpus = [gpu_of(output) for output in outputs]
        return result

    return classmethod(apply)


def _backward_of_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """Its backward: a gradient is where its output is, also the zeros that autograd makes for an unused output."""

    def apply(self: Any, *gradients: Any) -> Any:
        for gpu, gradient in zip(getattr(self, "_cutetut_gpus", ()), gradients, strict=False):
            if gpu is not None and isinstance(gradient, torch.Tensor) and not marked(gradient):
                _mark(gradient, gpu)
        return original(self, *gradients)

    return apply


def _to(func: Any, tensor: torch.Tensor, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Tensor.to(device, dtype), .to(dtype) and .to(tensor), with non_blocking and copy behind that, or by keywords."""
    first = args[0] if args else None
    kind = "tensor" if isinstance(first, torch.Tensor) else "dtype" if isinstance(first, torch.dtype) else "device"
    names = (kind, *(("dtype",) if kind == "device" else ()), "non_blocking", "copy")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    other, named, dtype = (given.pop(name, None) for name in ("tensor", "device", "dtype"))
    target, gpu = is_cuda(named), _index(named)
    if other is not None:
        target, gpu, dtype = marked(other), gpu_of(other), other.dtype
    options = {name: value for name, value in (("dtype", dtype), *given.items()) if value and name != "non_blocking"}
    moved = func(tensor, **options) if options else tensor
    return _move(tensor, moved, marked(tensor) if target is None else target, gpu)


def _parse_to(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What Module.to is given: a number as device is a GPU's."""
    if args and type(args[0]) is int:
        args = (torch.device("cuda", args[0]), *args[1:])
    if type(kwargs.get("device")) is int:
        kwargs["device"] = torch.device("cuda", kwargs["device"])
    return func(*args, **kwargs)


def _cuda(_func: Any, tensor: torch.Tensor, device: Any = None, *_: Any, **kwargs: Any) -> torch.Tensor:
    is_cuda(device)
    return _move(tensor, tensor, True, index_of(device))


def _cpu(_func: Any, tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return _move(tensor, tensor, False)


def _numpy(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if marked(tensor) and not kwargs.get("force"):
        raise TypeError(
            f"can't convert cuda:{gpu_of(tensor)} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(tensor, *args, **kwargs)


def _as_tensor(func: Any, data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.as_tensor and torch.asarray share memory with their argument, but never across devices."""
    named = kwargs.pop("device", None)
    target, gpu = is_cuda(named), _index(named)
    if target is None:
        target = marked(data)
    result = func(data, *args, **kwargs)
    if target != marked(data):
        torch_waits.for_current_stream()
    return _mark(_aligned(result.clone()), gpu) if target and not marked(result) else _move(result, result, target, gpu)


def _repr(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
    text: str = func(tensor, *args, **kwargs)
    if not marked(tensor):
        return text
    torch_waits.for_current_stream(gpu_of(tensor))
    at = min((p for p in (text.rfind(f", {word}=") for word in ("dtype", "grad_fn", "requires_grad")) if p >= 0),
             default=len(text) - 1)  # fmt: skip
    return f"{text[:at]}, device='cuda:{gpu_of(tensor)}'{text[at:]}"


def _type(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    result = func(tensor, *args, **kwargs)
    if isinstance(result, str) and marked(tensor):
        return result.replace("torch.", "torch.cuda.", 1)
    return _move(tensor, result, marked(tensor)) if isinstance(result, torch.Tensor) else result


def _grad(func: Any, tensor: torch.Tensor, *args: Any) -> Any:
    result = func(tensor, *args)
    return _mark(result, gpu_of(tensor)) if result is not None and marked(tensor) else result


def _device(func: Any, tensor: torch.Tensor, *_: Any) -> Any:
    gpu = gpu_of(tensor)
    return func(tensor) if gpu is None else torch.device("cuda", gpu)


_T = torch.Tensor
# On several GPUs: what may use tensors of two
_READERS = {"cpu", "cuda", "to", "type", "__repr__", "as_tensor", "asarray"}  # of those below
_COPIES = {"copy_", "__setitem__"}
_EMPTIES = {
    torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, _T.new_empty, _T.new_empty_strided,
}  # fmt: skip
_SPECIAL: dict[Any, Callable[..., Any]] = {
    _T.is_cuda.__get__: lambda func, tensor, *_: marked(tensor),
    _T.is_cpu.__get__: lambda func, tensor, *_: not marked(tensor) and func(tensor),
    _T.device.__get__: _device,
    _T.grad.__get__: _grad,
    _T.get_device: lambda func, tensor: gpu if (gpu := gpu_of(tensor)) is not None else func(tensor),
    _T.cuda: _cuda,
    _T.cpu: _cpu,
    _T.to: _to,
    torch._C._nn._parse_to: _parse_to,
    _T.type: _type,
    _T.numpy: _numpy,
    _T.__array__: _numpy,
    _T.__repr__: _repr,
    _T.pin_memory: lambda func, tensor, *_: tensor,
    _T.record_stream: lambda func, tensor, *_: None,
    torch.as_tensor: _as_tensor,
    torch.asarray: _as_tensor,
}


def _unless_distributed(unwrap: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """torch.testing imports torch.distributed.tensor to ask for its tensors: 0.8 s, where nobody can have made one."""

    def wrapped(actual: Any, expected: Any) -> tuple[Any, Any]:
        return unwrap(actual, expected) if "torch.distributed.tensor" in sys.modules else (actual, expected)

    return wrapped


def _one_gpu() -> None:
    """Undo `whole_device`: the device is gone."""
    together.abandon()
    stream_order.waits = lambda: None
    torch_streams.forget()
    gpus.end()


def whole_device(patches: Patches, number: int = 1) -> CudaMode:
    """Make torch.cuda report `number` GPUs; returns the mode to enter for the time tensors may live on them.

    The streams are those of torch_streams.py, which must be in place.
    """
    torch_functions.install(patches)
    torch_accelerator.install(patches)
    torch_compile.install(patches)
    torch_matmul.install(patches)
    torch_opcheck.install(patches, marked)
    torch_others.install(patches, torch_others.Marks(marked, _marked_storage, _mark, CudaMode))
    triton_absent.install(patches)
    custom = CustomOpDef.register_kernel
    patches.set(CustomOpDef, "register_kernel", _kernel_for_cuda(custom))
    patches.set(torch.autograd, "_engine_run_backward", _backward(torch.autograd._engine_run_backward))
    patches.set(torch.autograd.Function, "apply", _function(torch.autograd.Function.apply.__func__))
    patches.set(BackwardCFunction, "apply", _backward_of_function(BackwardCFunction.apply))
    if unwrap := getattr(comparison, "_unwrap_dtensor_for_comparison", None):
        patches.set(comparison, "_unwrap_dtensor_for_comparison", _unless_distributed(unwrap))
    concurrent_launches.watch()
    gpus.begin(number, lambda address: pool.gpu_of(address) if (found := live.gpu_of(address)) is None else found)
    stream_order.waits, process_group.gpu_of = together.settle, gpu_of
    patches.later(_one_gpu)
    patches.later(concurrent_launches.stop)
    return CudaMode()
