"""When one rank was in which step, and when it computed, communicated, copied and waited."""
