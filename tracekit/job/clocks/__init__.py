"""How the ranks' clocks relate: each rank's offset, drift and jumps against the reference rank."""
