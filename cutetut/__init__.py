"""Learn NVIDIA's CuTe DSL on a Hopper GPU, or without one: kernels then run in an emulator of their PTX."""

from . import backend

if not backend.run_as_command():
    backend.activate()


def __getattr__(name: str) -> object:
    if name in ("device", "on_gpu"):
        return getattr(backend.activate(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
