"""The host side of the emulated GPU: whatever launches kernels or owns their memory, answered without CUDA.

`driver.py` makes CuTe DSL run here.  `compilation.py` changes how it compiles, `compile_cache.py` keeps what came out,
`ffi.py` makes functions for TVM-FFI callable, `newer_gpus.py` knows what needs a later GPU.  `host_calls.py` answers
the compiled code and `launches.py` holds one launch; `cuda_api.py` stands in for cuda-python, with `device.py` for what
an H200 answers about itself and `tensormap_encode.py` for tensor maps.  `patches.py` replaces attributes of modules.

`live.py` finds the memory a pointer belongs to, `dlpack.py` reads tensors of any package, `pool.py` keeps memory as
torch's allocator does, `fresh.py` knows what nobody has written.

`cuda_torch.py` makes the device "cuda" of torch: `torch_functions.py` and `torch_streams.py` are torch.cuda,
`torch_accelerator.py` is torch.accelerator, `torch_graphs.py` with `graphs.py` what a stream captures,
`torch_matmul.py`, `torch_compile.py`, `torch_opcheck.py` and `torch_others.py` what else asks for a GPU,
`triton_absent.py` a package that programs import.

`stream_order.py` knows what work comes after what, `torch_waits.py` when torch makes the host wait, `torch_writes.py`
what its functions write; `concurrent_launches.py` compares launches that nothing orders.

Several GPUs: `gpus.py` knows them, `together.py` runs their launches in turns, `shared_memory.py` and `shared_uses.py`
know the memory that they share.  Several ranks: `ranks.py` and `torch_distributed.py` start them, `process_group.py`
with `collectives.py` and `exchanges.py` is what they have in common, `symmetric.py` and
`nvshmem.py` give shared memory.

Nothing else in the emulator imports CuTe DSL, torch or cuda-python.
"""
