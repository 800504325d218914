"""When a step pauses its training for a checkpoint, an evaluation, or logging."""
