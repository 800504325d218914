"""What a change would save: the recorded run as a graph of operations, replayed with other durations."""
