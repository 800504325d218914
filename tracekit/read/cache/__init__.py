"""What is written for later: summaries for the next command, decoded traces for a later part of the same one."""
