"""The HTML report: one file that opens offline. `contract` says what its script reads, `write` makes the file."""
