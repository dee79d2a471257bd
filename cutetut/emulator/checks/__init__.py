"""What a kernel must not do: races, missing fences, unwritten values, deadlocks.

It knows the machine, its memory and its threads, and keeps for them who has seen what (clocks) and what was written
(marks).  It must not know any unit: units report their copies and barriers in its own terms, and where a check has
to follow what an instruction computes, that is written down below both (machine/arithmetic.py, machine/lanes.py).
"""
