"""What commands run in the ranks of a job: the training of the demo, and a training script that is examined."""
