"""tracekit: where the time of a distributed training step goes, and what to do about it."""

__version__ = "0.1.0"
