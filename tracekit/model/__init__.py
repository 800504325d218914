"""Pure data: no I/O, no torch."""
