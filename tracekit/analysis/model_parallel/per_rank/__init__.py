"""What a worker finds out about communication within one rank's layers."""
