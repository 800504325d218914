"""How the sections on forms of parallelism look."""
