"""What tracekit says of a run: a catalogue of findings with ids, thresholds and sentences, and their order."""
