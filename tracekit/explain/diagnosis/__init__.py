"""What slows the step: the chain that bounds it, the causes of its time, and the ranking of findings."""
