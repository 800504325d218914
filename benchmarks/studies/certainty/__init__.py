"""How often is the verdict on stragglers right, and how often is its certainty deserved? Planted cases answer it."""
