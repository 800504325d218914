"""What single events mean: which are communication, who launched them, in which phase, module and group."""
