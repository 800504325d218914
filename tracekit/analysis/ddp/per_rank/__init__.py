"""What a worker finds out about one rank's gradients and their reductions."""
