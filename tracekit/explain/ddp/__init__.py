"""Data parallelism: when gradients were reduced, in which buckets, and what other buckets would expose."""
