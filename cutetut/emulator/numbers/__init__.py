"""Number formats, how results are rounded and combined, and the types of PTX as numpy sees them.

It knows bits and arrays.  It must not know instructions, registers or threads: every function here can be tested on
arrays alone.
"""
