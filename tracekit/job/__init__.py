"""What belongs together across ranks: collectives, sends and receives, and the clocks (`clocks/`)."""
