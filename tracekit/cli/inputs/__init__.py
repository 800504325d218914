"""What commands take: shared options, the run they are about, a trace that Perfetto reads."""
