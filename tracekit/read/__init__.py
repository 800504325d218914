"""Files to columns: find the trace files of a run, inflate and decode them. Bytes in, columns out; no analysis."""
