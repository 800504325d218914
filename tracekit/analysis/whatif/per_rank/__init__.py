"""What a worker keeps of one rank for replays."""
