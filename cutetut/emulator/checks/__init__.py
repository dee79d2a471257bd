"""What a kernel must not do: races, missing fences, unwritten values, deadlocks; knows memory and clocks, no unit."""
