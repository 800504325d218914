"""What is kept of traces for later: summaries for the next command, decoded columns for the same one."""
