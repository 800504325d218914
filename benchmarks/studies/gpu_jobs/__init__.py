"""How often is what tracekit says of a GPU job right? Simulated jobs with known truth answer it (tests/gpu_jobs)."""
