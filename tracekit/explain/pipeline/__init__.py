"""Pipeline parallelism: stages, bubbles and their causes, and what would shorten a step."""
