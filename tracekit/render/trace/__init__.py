"""What a merged trace consists of, whatever its format: tracks, slices, arrows, and how slices nest."""
