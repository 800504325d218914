"""What belongs together over ranks: collectives, sends and receives; and what does not fit."""
