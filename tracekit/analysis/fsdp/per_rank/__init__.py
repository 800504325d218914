"""What a worker finds out about one rank's gathers and reductions."""
