"""Report -> bytes, one module an output format. Drawing only: nothing here computes a number."""
