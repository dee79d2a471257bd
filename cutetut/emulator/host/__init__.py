"""The host side of the emulated GPU: whatever launches kernels or owns their memory, answered without CUDA.

`driver.py` makes CuTe DSL run here and `host_calls.py` answers the code it compiles; `cuda_api.py` stands in for
cuda-python, `torch_streams.py` and `cuda_torch.py` for torch.cuda, and `graphs.py` keeps what a stream captures;
`live.py` finds the memory a pointer belongs to.  Nothing else in the emulator imports CuTe DSL, torch or cuda-python.
"""
