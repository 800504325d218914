"""How the capture gets into a program without changing it: patches, live objects, spans."""
