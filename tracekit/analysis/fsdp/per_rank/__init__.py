"""What a worker computes of one rank's gathers and reductions."""
