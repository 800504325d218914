"""Where trace files are, which rank and run each belongs to, and their text without compression."""
