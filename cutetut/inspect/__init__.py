"""What a compiled kernel is made of, and what it does: taken apart, counted, and diagnosed in the emulator."""
