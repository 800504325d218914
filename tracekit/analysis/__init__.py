"""One question a file: per-rank passes that run in workers, then analyses over the whole run."""
