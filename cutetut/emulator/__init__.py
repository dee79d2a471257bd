"""An emulator of one Hopper GPU: PTX and launch parameters in, memory effects and a report out.

It knows nothing of CuTe DSL, torch or CUDA's own libraries: `host/` connects it to them.  Its rooms, in the order in
which they build on each other: `ptx/` (text to instructions), `numbers/` (formats and rounding), `machine/` (threads,
registers, memory, who runs next), `checks/` (what a kernel must not do), `units/` (a file per unit of the hardware),
`compiled/` (their arithmetic as machine code), `measure/` (counting and timing what runs), `launch.py` (one launch from
its beginning to its end) and `host/` (their calls to a GPU, answered).
"""
