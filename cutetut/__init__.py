"""Learn NVIDIA's CuTe DSL on a Hopper GPU, or without one: kernels then run in an emulator of their PTX.

Importing it has one effect: when CuTe DSL is imported as well, the package decides where kernels run.
"""

from . import backend

__version__ = "0.1.0"

backend.activate_with_dsl()


def __getattr__(name: str) -> object:
    if name in ("device", "on_gpu"):
        return getattr(backend.activate(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
