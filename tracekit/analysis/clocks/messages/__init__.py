"""Clocks that only messages relate: what these bound, and what the jumps of other clocks tell."""
