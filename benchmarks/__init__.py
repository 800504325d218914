"""What tracekit costs, and how often it is right."""
