"""Where trace files are, whose they are, and what is in them once they are unpacked."""
