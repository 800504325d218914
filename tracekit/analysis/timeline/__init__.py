"""One rank's time: steps, lanes of compute and communication, waits, collectives and messages."""
