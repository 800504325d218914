"""A guard on values: what tracekit says of a corpus of runs is frozen, so that every change of a number is seen."""
