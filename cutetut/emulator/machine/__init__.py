"""The machine: threads, registers, memory, the decoded program and who runs next.

It knows what every unit needs: operands, address spaces, operations under way, and the tables in which units and checks
register (opcodes.py).  It must not name a unit or a check: it calls what has registered, launch.py hands it the rest
(`Checks` in scheduler.py), and a module that needs one above it says what it asks of it in a Protocol.
"""
