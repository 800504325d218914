"""What commands run in the ranks of a job: the training of the demo."""
