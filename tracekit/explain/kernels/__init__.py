"""Kernels and operators: which take the most time, for which shapes, and how near to the device's peaks."""
