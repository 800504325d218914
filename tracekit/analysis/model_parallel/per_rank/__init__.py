"""What a worker computes of communication within one rank's layers."""
