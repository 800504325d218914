"""Configuration: how the job's wrappers and frameworks are set, and on which ranks they are set otherwise."""
