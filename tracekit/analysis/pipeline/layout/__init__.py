"""Which stages, microbatches and schedule a pipeline has."""
