"""Whether a run keeps to the limits that a project sets itself."""
