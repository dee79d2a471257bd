"""Counting and timing what a kernel does while it runs; nothing here changes what it does."""
