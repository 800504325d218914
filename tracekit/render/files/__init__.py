"""Files that a report becomes: which suffix means which format, and what each format writes and reads back."""
