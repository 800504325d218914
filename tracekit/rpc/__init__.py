"""Remote calls: how long a step waits for them, and where a round trip goes."""
