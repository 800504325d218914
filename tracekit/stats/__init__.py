"""Statistics that know nothing of traces."""
