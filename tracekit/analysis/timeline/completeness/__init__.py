"""Which steps lack events, or have times that are known to be wrong: they do not count."""
