"""The gate of doubt: which ranks and steps do not count, and why. Checks run once, in order."""
