"""Arithmetic in machine code: what numpy computes for the arithmetic units, several times faster (see runs.py).

It knows what an arithmetic instruction computes (machine/arithmetic.py), rows of registers, and host addresses.  It
must not know how the units do it, nor threads that wait, nor any check: decoding.py gives it runs of instructions with
nothing around them, units/loadstore.py addresses that have been checked, launch.py takes its choice of who runs next;
without it the same comes from numpy.
"""
