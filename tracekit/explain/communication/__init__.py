"""What communication costs: overlap, collectives over ranks, dimensions of the mesh."""
