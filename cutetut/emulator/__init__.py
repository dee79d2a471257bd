"""An emulator of one Hopper GPU: PTX and launch parameters in, memory effects and a report out.

It knows nothing of CuTe DSL, torch or CUDA's own libraries: `host/` connects it to them.  Its parts, each of which may
import from those before it and from no other (tests/emulator/test_imports.py): `findings.py` (what is wrong, as data),
`errors.py` (the same as exceptions), `ptx/` (text to instructions), `numbers/` (formats and rounding), `machine/`
(threads, registers, memory, who runs next), `checks/` (what a kernel must not do), `compiled/` (arithmetic in machine
code), `units/` (a file per unit of the hardware), `measure/` (counting and timing what runs), `decoding.py` (steps,
with what is put around them), `launch.py` (one launch from its beginning to its end), `ptx_file.py` (PTX alone) and
`host/` (their calls to a GPU, answered).  Inside a part, too, no imports run in a circle.
"""
