"""The pages of a merged trace, all ranks with one clock, whatever the format."""
