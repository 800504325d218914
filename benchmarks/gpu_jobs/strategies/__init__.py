"""Training loops, one module for each form of parallelism. Each is a generator: it yields where its host waits."""
