"""What runs in a training job: `@tracekit.probe` records steps into trace files. Imports torch lazily, no analysis."""
