"""The training side: `@tracekit.probe` and what it records. It imports torch lazily, and no analysis."""
