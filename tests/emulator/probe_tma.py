"""What the TMA of a Hopper GPU does where the PTX ISA is silent: `python -m tests.emulator.probe_tma` prints it.

For interleaved maps the ISA names the layouts (NC/8HWC8, NC/16HWC16) and gives no formula.  The tensor here
holds its own 16-bit element numbers, so what arrives in shared memory says where it came from.
"""

from __future__ import annotations

import itertools

import numpy as np

from tests.emulator import hardware
from tests.emulator.tensors import Map, aligned
from tests.emulator.test_tensormap import encode
from tests.emulator.test_tma import BOX_AT, load_text


def arrive(tensor: Map, coordinates: tuple[int, ...], data: np.ndarray, nbytes: int) -> tuple[np.ndarray, bool]:
    """Shared memory as 16-bit numbers after a load that should bring nbytes, and whether that many came."""
    size = -(-max(nbytes, 1024) // 128) * 128
    out, arrived = np.zeros(size, np.uint8), np.zeros(1, np.uint32)
    image = aligned(np.frombuffer(bytes.fromhex(encode(tensor.case())), np.uint8))
    hardware.run_on_gpu(load_text(tensor, 0, nbytes, size // 4), image, data, np.array(coordinates, np.int32), out,
                        arrived, dynamic_smem=BOX_AT + size)  # fmt: skip
    return out.view(np.uint16), bool(arrived[0])


def interleaved() -> None:
    """Boxes of an interleaved map, each with the driver's verdict, byte count and the elements that arrived."""
    data = np.arange(1 << 15, dtype=np.uint16)
    for mode, boxes in ((1, [(8, 4, 2), (4, 4, 2), (16, 4, 2), (1, 4, 2)]), (2, [(16, 4, 2), (8, 4, 2), (32, 4, 2)])):
        for box, strides in itertools.product(boxes, [(64, 1024), (512, 4096), (32, 512)]):
            tensor = Map("u16", (32, 8, 4), strides, box, interleave=mode, swizzle=1 if mode == 2 else 0)
            image = encode(tensor.case())
            if image.startswith("CUDA_ERROR"):
                print(f"interleave {mode} box {box} strides {strides}: {image}")
                continue
            nbytes = int.from_bytes(bytes.fromhex(image)[64:72], "little")
            for coordinates in ((0, 0, 0), (1, 0, 0), (8, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0)):
                values, complete = arrive(tensor, coordinates, data, nbytes)
                shown = values[: nbytes // 2].reshape(-1, 8)[:, [0, 1, 7]].tolist()
                what = "came" if complete else "DID NOT COME"
                print(f"interleave {mode} box {box} strides {strides} at {coordinates}: {nbytes} bytes {what}")
                print(f"    first, second and last of every 16 bytes: {shown}")


def nan_bits() -> None:
    """The pattern that fills what is out of bounds."""
    for element, size in (("f16", 2), ("bf16", 2), ("f32", 4), ("tf32", 4), ("f64", 8)):
        tensor = Map(element, (64 // size,), (), (64 // size,), nan=1)
        values, _ = arrive(tensor, (1 << 20,), np.zeros(64, np.uint8), 64)
        print(f"NaN fill of {element}: {values[:4].tobytes()[:size][::-1].hex()}")


if __name__ == "__main__":
    nan_bits()
    interleaved()
