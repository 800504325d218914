"""How often is what tracekit says of real processes right? Probes are run with and without a defect."""
