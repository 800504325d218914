"""Which kernels and operators a step's time goes to."""
