"""All ranks on one page with one clock: what is on it, whatever the format."""
