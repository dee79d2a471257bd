"""The machine: threads, registers, memory, the decoded program and who runs next; names no unit and no check."""
