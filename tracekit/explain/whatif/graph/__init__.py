"""From a recorded run, or a table of operations, to a graph that can be replayed."""
