"""Whether a run's steps take longer than those of other runs of the job, and what the difference consists of."""
