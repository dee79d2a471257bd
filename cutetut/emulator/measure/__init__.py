"""Counting and timing what a kernel does while it runs.

It knows the units, whose operands say what an instruction moves and computes, and sees every step through an observer
(observe.py).  It must not change what a kernel does, and nothing that runs a kernel may need it: decoding.py only asks
whether somebody observes.
"""
