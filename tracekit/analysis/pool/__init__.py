"""Which process does a rank's work: this one, or a worker."""
