"""What every format of a merged trace consists of: tracks, slices, arrows, and how slices nest."""
