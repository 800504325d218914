"""What the steps lose to checkpoints, evaluation and logging."""
