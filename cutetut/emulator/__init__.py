"""An emulator of one Hopper GPU: PTX and launch parameters in, memory effects and a report out.

It knows nothing of CuTe DSL, torch or CUDA's own libraries: `host/` connects it to them.  Read it in the order
`ptx.py` (text to instructions), `machine.py` (threads and registers), `program.py` (decoding),
`scheduler.py` (who runs next), then the unit a chapter is about.
"""
