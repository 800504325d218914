"""The data that readers, analyses and renderers share. No I/O, no torch."""
