"""How often is what tracekit says of a GPU job right? Jobs of benchmarks/gpu_jobs, with known truth, answer it."""
