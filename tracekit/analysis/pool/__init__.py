"""Which process does a rank's work: workers of this machine, or of a Dask cluster."""
