"""One observer for each form of parallelism: its modules, groups and calls."""
