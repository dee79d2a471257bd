"""The host side of the emulated GPU: whatever launches kernels or owns their memory, answered without CUDA.

`driver.py` makes CuTe DSL run here.  `compilation.py` changes how it compiles, `compile_cache.py` keeps what came out.
`host_calls.py` answers the compiled code and `launches.py` holds one launch; `cuda_api.py` stands in for cuda-python.
`live.py` finds the memory a pointer belongs to, `pool.py` keeps it as torch's allocator does, `fresh.py` knows what
nobody has written.  `cuda_torch.py` makes the device "cuda" of torch: `torch_functions.py` and `torch_streams.py` are
torch.cuda, `torch_graphs.py` with `graphs.py` what a stream captures, `torch_matmul.py`, `torch_compile.py`,
`torch_opcheck.py` and `torch_others.py` what else asks for a GPU, `triton_absent.py` a package that programs import.
`stream_order.py` knows what work comes after what, `torch_waits.py` when torch makes the host wait, and
`concurrent_launches.py` compares launches that nothing orders.  Nothing else in the emulator imports CuTe DSL, torch or
cuda-python.
"""
