"""What is on the page of a merged trace, whichever format it is written in."""
