"""What single events mean: which names are communication, who launched what, in which phase, module and group."""
