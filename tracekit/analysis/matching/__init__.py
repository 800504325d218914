"""Which collectives, sends and receives of different ranks belong together, and which do not fit."""
